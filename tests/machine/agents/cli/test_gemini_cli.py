"""What only Gemini CLI does: it wants a login, restarts itself, and outlives its terminal."""

from pathlib import Path

import pytest

from outrider.contract.errors import ApiError
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.gemini_cli import GEMINI_CLI
from tests.machine.agents.machine import Machine, kill_server, running_in, until

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("gemini-cli"),
]


@pytest.fixture
def kind() -> AgentKind:
    return GEMINI_CLI


async def test_without_a_login_it_is_told_what_to_do(box: Machine) -> None:
    del box.environment["GEMINI_API_KEY"]
    (Path(box.environment["HOME"]) / ".gemini" / "settings.json").write_text("{}")
    await box.stop()
    await box.start()
    with pytest.raises(ApiError) as refused:
        await box.launch()
    assert "log in" in refused.value.message
    assert not running_in(Path(box.environment["HOME"]))


@pytest.mark.parametrize("daemon", ["running", "stopped"])
async def test_without_its_terminal_it_is_ended(box: Machine, daemon: str) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    home = Path(box.environment["HOME"])
    if daemon == "stopped":
        await box.stop()
        kill_server(box.socket)
        await box.start()
    else:
        kill_server(box.socket)
    await agent.until("error")
    await until(lambda: not running_in(home), why=lambda: str(running_in(home)))
    assert len(await agent.messages()) == 2


async def test_an_answer_no_to_the_folder_is_taken(box: Machine, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    agent = await box.launch(strange)
    assert agent.status == "waiting_approval"
    await agent.resolve("reject")
    await agent.until("idle", "error")


async def test_two_of_one_minute_have_a_chat_each(box: Machine) -> None:
    first, second = await box.launch(), await box.launch()
    await first.turn("to the first")
    await second.turn("to the second")
    assert [m.content for m in await first.messages() if m.role == "user"] == ["to the first"]
    assert [m.content for m in await second.messages() if m.role == "user"] == ["to the second"]
