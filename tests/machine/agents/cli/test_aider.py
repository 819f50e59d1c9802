"""What only aider does: it asks for a git repository, and keeps a history for each session."""

from pathlib import Path

import pytest

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.aider import AIDER
from tests.machine.agents.machine import Machine
from tests.machine.agents.scenario import said

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("aider"),
]


@pytest.fixture
def kind() -> AgentKind:
    return AIDER


async def test_a_folder_without_a_repository_is_a_question(box: Machine, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    agent = await box.launch(strange)
    assert agent.status == "waiting_approval"
    pending = agent.session.state().pending_action
    assert pending is not None
    assert pending.message.startswith("No git repo found")
    await box.stop()
    await box.start()
    assert agent.session.state().pending_action == pending
    await agent.resolve("approve")
    await agent.until("idle")
    assert (strange / ".git").is_dir()
    assert (await agent.turn("hello"))[0].content == "hello"


async def test_two_in_one_project_have_a_chat_each(box: Machine) -> None:
    first, second = await box.launch(), await box.launch()
    await first.turn("to the first")
    await second.turn("to the second")
    assert await said(first, "user") == ["to the first"]
    assert await said(second, "user") == ["to the second"]
    assert not list(box.project.glob(".aider.chat*"))


async def test_a_file_is_written_once_it_is_allowed(box: Machine) -> None:
    agent = await box.launch()
    for name, verdict in (("yes.txt", "approve"), ("no.txt", "reject")):
        await agent.say(f"make FILE[{name}]")
        await agent.until("waiting_approval")
        pending = agent.session.state().pending_action
        assert pending is not None
        assert name in pending.message
        await agent.resolve("approve" if verdict == "approve" else "reject")
        await agent.until("idle")
        assert (box.project / name).exists() is (verdict == "approve")
