"""Real agents that speak the protocol: what the scenario for all kinds does not ask."""

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from outrider.contract.commands import SendChat
from outrider.contract.errors import ApiError
from outrider.machine.agents.acp.controls import Value
from tests.machine.agents.kinds.acp import ACP, CLAUDE_ACP, GEMINI_ACP
from tests.machine.agents.machine import ROOT, Machine, StubModel, running_in, until
from tests.machine.agents.scenario import said

pytestmark = pytest.mark.timeout(300)

EVERY = [
    pytest.param(
        kind,
        id=kind.type,
        marks=pytest.mark.real_agent,
    )
    for kind in ACP
]
REOPENED = [kind for kind in EVERY if kind.id != GEMINI_ACP.type]
ONLY_CLAUDE = [pytest.param(CLAUDE_ACP, id=CLAUDE_ACP.type, marks=pytest.mark.real_agent)]


@pytest.mark.parametrize("kind", REOPENED)
async def test_a_session_goes_on_after_a_restart_of_the_daemon(
    box: Machine, model: StubModel
) -> None:
    agent = await box.launch()
    await agent.turn("remember the number 4711")
    before = await agent.messages()
    native = agent.evidence()["agentSession"]
    await box.stop()
    assert not running_in(box.folder / "home")
    await box.start()
    assert await agent.messages() == before
    answer = (await agent.turn("and now"))[-1]
    assert answer.content == "Hello from stub. You said: and now"
    assert (await agent.messages())[: len(before)] == before
    assert agent.evidence()["agentSession"] == native
    assert await said(agent, "user") == ["remember the number 4711", "and now"]


@pytest.mark.parametrize("kind", REOPENED)
async def test_a_turn_that_a_restart_cut_off(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("be SLOW:0.5")
    await until(lambda: "agent_message_chunk" in str(agent.evidence()["updates"]))
    await box.stop()
    assert not running_in(box.folder / "home")
    await box.start()
    assert agent.status == "error"
    assert "cut off" in (agent.session.state().error or "")
    assert (await agent.turn("go on"))[0].content == "go on"
    assert agent.status == "idle"


@pytest.mark.parametrize("kind", EVERY)
async def test_it_dies_and_leaves_nothing(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    psutil.Process(agent.pid).kill()
    await agent.until("error")
    home = box.folder / "home"
    await until(lambda: not running_in(home), why=lambda: str(running_in(home)))


@pytest.mark.real_agent
@pytest.mark.parametrize("kind", [GEMINI_ACP], ids=lambda kind: kind.type)
async def test_an_agent_whose_own_record_a_load_would_cost(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("remember the number 4711")
    before = await agent.messages()
    await box.stop()
    await box.start()
    assert agent.status == "error"
    assert "cannot open an earlier session again" in agent.error
    assert await agent.messages() == before
    assert not running_in(box.folder / "home")
    records = (box.folder / "home").glob(".gemini/tmp/*/chats/session-*")
    assert "remember the number 4711" in "".join(record.read_text() for record in records)


@pytest.mark.parametrize("kind", ONLY_CLAUDE)
async def test_controls(box: Machine) -> None:
    agent = await box.launch()
    shown = {control.id: control for control in agent.session.state().controls}
    assert shown["mode"].value == "default"
    assert "plan" in shown["mode"].options
    assert shown["model"].type == "select"
    wanted: dict[str, Value] = {"mode": "acceptEdits"}
    await agent.session.send(SendChat(message="hello", controls=wanted))
    await agent.until("idle")
    assert {c.id: c.value for c in agent.session.state().controls}["mode"] == "acceptEdits"


@pytest.mark.parametrize("kind", ONLY_CLAUDE)
async def test_thoughts_are_no_text(box: Machine) -> None:
    agent = await box.launch()
    kinds = [message.kind for message in await agent.turn("please THINK")]
    assert kinds == ["text", "thinking", "text"]


@pytest.mark.parametrize("kind", ONLY_CLAUDE)
async def test_nobody_has_logged_in(box: Machine) -> None:
    del box.environment["ANTHROPIC_API_KEY"]
    await box.stop()
    await box.start()
    agent = await box.launch()
    with pytest.raises(ApiError) as refused:
        await agent.say("hello")
    assert "is not logged in (Authentication required): run `claude` once" in refused.value.message
    assert agent.status == "error"
    assert await agent.messages() == []


@pytest.fixture(scope="session")
def example() -> Path:
    """The SDK's own example agent, out of the source package of the version that is installed."""
    folder = ROOT / ".cache" / "agents" / "acp-sdk"  # it may also have those of other versions
    installed = version("agent-client-protocol")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
         "--no-binary", "agent-client-protocol", f"agent-client-protocol=={installed}"],
        check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = folder.glob(f"*-{installed}.tar.gz")
    with tarfile.open(archive) as files:
        (name,) = [n for n in files.getnames() if n.endswith("/examples/agent.py")]
        files.extract(name, folder, filter="data")
    return folder / name


@pytest.mark.parametrize("kind", ONLY_CLAUDE)
async def test_the_sdks_own_example_by_a_provider_file(box: Machine, example: Path) -> None:
    providers = box.folder / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "example.toml").write_text(
        'type = "example"\ncategory = "acp"\ndisplay_name = "Example"\n'
        f"command = ['{sys.executable}', '{example}']\n"
        'install = "pip install agent-client-protocol"\n'
    )
    await box.stop()
    await box.start()
    agent = await box.launch(kind="example")
    added = await agent.turn("hello there")
    assert [m.content for m in added] == ["hello there", "Client sent:hello there"]
    assert agent.evidence()["agent"] == "example-agent 0.1.0"
