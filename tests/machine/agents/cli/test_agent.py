"""One agent in a terminal, as its session drives it: what goes wrong around it."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from outrider.contract.commands import ChatInput, SendChat
from outrider.contract.errors import ApiError
from outrider.contract.events import AgentEvent
from outrider.contract.ids import new_id
from outrider.machine.agents.cli.adapter_state import CliState, TypedMessage
from outrider.machine.agents.cli.agent import CliAgent
from outrider.machine.agents.cli.chat import RecordedChat
from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.transcripts.transcript import Transcript
from outrider.machine.tmux.control import HEIGHT, WIDTH
from outrider.machine.tmux.server import Tmux
from tests.machine.agents.cli.test_open_message import SPECS, OpenMessageRig, RecordedTranscript
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import (
    Machine,
    end_many,
    kill_server,
    machine,
    objects_of_agents,
    running_in,
    until,
)
from tests.machine.agents.scenario import press

pytestmark = pytest.mark.timeout(120)

ECHO = """
type = "echo"
display_name = "Echo"
command = ["sh", "-c", 'exec python3 -S "$HOME/echo.py"']
install = "-"
settle = 0.1
[input]
prompt = '> '
interrupt = ["C-c"]
[[rules]]
name = "prompt"
status = "idle"
screen = '^>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""

EXPONENTIAL = """
[[rules]]
name = "exponential"
status = "error"
screen = '^you said (a|aa)+!'
"""

SCRIPT = """
import signal
while True:
    try:
        said = input("> ")
        if said == "work":
            signal.pause()
        if said.startswith("exit "):
            raise SystemExit(int(said[5:]))
    except KeyboardInterrupt:
        said = "stop"
    print("\\33[1myou said\\33[0m", said)
"""


def seed(home: Path, project: Path, model: str) -> None:
    """Put the program of the agent into its HOME."""
    home.mkdir()
    (home / "echo.py").write_text(SCRIPT)


KIND = AgentKind(type="echo", seed=seed, environment=lambda model: {})


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine with an agent that repeats what is sent to it."""
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "echo.toml").write_text(ECHO)
    async with machine(tmp_path, KIND, tmp_path, "") as running:
        yield running


async def with_provider(box: Machine, text: str) -> None:
    """Start the daemon again with another provider file."""
    (box.folder / "config" / "providers" / "echo.toml").write_text(text)
    await box.stop()
    await box.start()


async def test_a_screen_whose_pattern_times_out_is_an_error(box: Machine) -> None:
    before, rules = ECHO.split("[[rules]]", 1)
    await with_provider(box, f"{before}{EXPONENTIAL}[[rules]]{rules}")
    agent = await box.launch()
    await agent.turn("hello")
    await agent.say("a" * 70)
    await agent.until("error")
    error = agent.session.describe().error
    assert error is not None
    assert "'^you said (a|aa)+!' takes too long" in error
    with pytest.raises(ApiError, match="takes too long"):  # it might answer a question
        await agent.say("more")


async def test_an_interruption_ends_the_turn(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("work")
    await agent.session.send(SendChat(message="later"))
    assert await agent.interrupt() == "idle"
    await until(lambda: box.event_names().count("generating_completed") == 2)  # and the queue's
    assert [m.content for m in await agent.messages() if m.role == "user"] == ["work", "later"]
    with pytest.raises(ApiError) as refused:
        await agent.interrupt()
    assert refused.value.code == "NOT_GENERATING"


async def test_a_message_with_delivery_interrupt_follows_the_interrupted_turn(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("work")
    await agent.session.send(SendChat(message="now", delivery="interrupt"))
    await until(lambda: box.event_names().count("generating_completed") == 2)
    assert [m.content for m in await agent.messages() if m.role == "user"] == ["work", "now"]


async def test_an_interrupt_without_keys_in_the_file_is_refused(box: Machine) -> None:
    await with_provider(box, ECHO.replace('interrupt = ["C-c"]', ""))
    agent = await box.launch()
    await agent.say("work")
    with pytest.raises(ApiError, match="its provider file has no `interrupt` keys") as refused:
        await agent.interrupt()
    assert refused.value.status == 400
    assert agent.status == "generating"


async def test_the_screen_has_text_colours_and_cursor(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    screen = await agent.session.screen()
    assert (screen.columns, screen.rows) == (WIDTH, HEIGHT)
    lines = screen.text.split("\n")
    assert lines[:3] == ["> hello", "you said hello", ">"]
    assert len(lines) == HEIGHT
    assert (screen.cursor.x, screen.cursor.y) == (2, 2)
    assert "\x1b[1myou said" in screen.ansi


async def test_the_screen_of_a_lost_terminal_is_refused(box: Machine) -> None:
    agent = await box.launch()
    kill_server(box.socket)
    with pytest.raises(ApiError) as refused:
        await agent.session.screen()
    assert refused.value.status in {404, 409}  # the session ends soon


class Disk(list[AgentEvent]):
    """The events that were reported, on a disk that may be full."""

    is_full = False
    failures = 0

    def append(self, event: AgentEvent) -> None:
        if self.is_full:
            self.failures += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(event)


@pytest.fixture
async def disk(box: Machine) -> Disk:
    """Where the machine reports its events."""
    box.reported = disk = Disk()
    await box.stop()
    await box.start()
    return disk


async def test_the_end_of_a_turn_is_reported_once_the_disk_has_space_again(
    box: Machine, disk: Disk
) -> None:
    agent = await box.launch()
    await agent.say("work")
    disk.is_full = True
    press(agent, "C-c")
    await until(lambda: disk.failures > 0)
    disk.is_full = False
    await until(lambda: "generating_completed" in box.event_names())
    assert "error" not in box.event_names()
    assert agent.status == "idle"


async def test_the_end_of_an_agent_is_seen_though_the_disk_was_full(
    box: Machine, disk: Disk
) -> None:
    agent = await box.launch()
    disk.is_full = True
    os.kill(agent.pid, signal.SIGKILL)
    await until(lambda: disk.failures > 0)
    disk.is_full = False
    await until(lambda: agent.ended is not None)


async def test_a_restart_of_the_machine_agent_reports_no_turn(box: Machine) -> None:
    """Of an agent without a transcript, which takes a while to be seen idle."""
    agent = await box.launch()
    await agent.turn("hello")
    before = box.event_names()
    await box.stop()
    await box.start()
    await agent.until("idle")
    assert await agent.turn("again")
    assert box.event_names() == [*before, "generating_started", "generating_completed"]


async def test_an_agent_whose_tmux_does_not_answer_is_restored_later(box: Machine) -> None:
    """As on a busy machine: it is not taken for gone, and restored by the next start."""
    agent = await box.launch()
    pid = agent.pid
    server = psutil.Process(pid).parent()
    assert server is not None
    await box.stop()
    server.suspend()
    try:
        await box.start()
        assert box.sessions.describe() == []
        await box.stop()
    finally:
        server.resume()
    await box.start()
    await agent.until("idle")
    assert agent.pid == pid


@pytest.mark.parametrize(("code", "reason"), [(0, "exited"), (3, "crashed")])
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
async def test_a_program_that_a_person_ends_has_its_end_reason(
    box: Machine, code: int, reason: str, is_running: bool
) -> None:
    """Also while the machine agent is stopped."""
    agent = await box.launch()
    if not is_running:
        await box.stop()
    press(agent, f"exit {code}", "Enter")
    if not is_running:
        await until(lambda: not running_in(box.folder / "home"))
        await box.start()
    await until(lambda: agent.ended is not None)
    assert agent.ended is not None
    assert agent.ended.end_reason == reason


async def test_sessions_that_have_ended_leave_only_their_records(box: Machine) -> None:
    await end_many(box, "echo", 2)
    before = objects_of_agents()
    await end_many(box, "echo", 8)
    assert objects_of_agents() == before


def without_terminal(rig: OpenMessageRig, transcript: Transcript) -> CliAgent:
    """Return the adapter of an agent of which only the transcript is left."""
    spec = SPECS["claude"]
    return CliAgent(
        spec, ScreenRules(spec), Tmux("unused"), None,
        source=RecordedChat(transcript, spec, rig.record, rig.journal),
        record=rig.record, journal=rig.journal,
    )  # fmt: skip


async def test_an_unfinished_message_keeps_its_id_and_time(tmp_path: Path) -> None:
    rig = OpenMessageRig(tmp_path)
    running = RecordedTranscript({}, "conversation")
    running.call(at=7, is_running=True)
    before = await without_terminal(rig, running).messages()
    complete = RecordedTranscript({}, "conversation")
    complete.call(at=9, is_running=False)
    assert await without_terminal(rig, complete).messages() == before


async def test_a_message_delivered_by_a_killed_daemon_keeps_its_id(tmp_path: Path) -> None:
    """The daemon was killed before it could save that the agent has taken the message."""
    rig = OpenMessageRig(tmp_path)
    message_id = new_id("msg")
    CliState(rig.record).last_typed = TypedMessage(message_id, 1)
    rig.journal.enqueue(rig.record.id, message_id, ChatInput(text_fallback="again"))
    agent = without_terminal(rig, rig.transcript)
    rig.transcript.prompt("again")
    assert message_id not in [message.id for message in await agent.messages()]
    rig.transcript.prompt("again")
    assert [message.id for message in await agent.messages()][1] == message_id


async def test_a_launch_that_is_cancelled_leaves_no_window(
    box: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the stop of the daemon, right after the window was opened."""
    other = await box.launch()  # keeps the tmux server running
    server = box.tmux.server

    async def cancelled() -> str | None:
        launching.cancel()
        return await server()

    monkeypatch.setattr(box.tmux, "server", cancelled)
    launching = asyncio.create_task(box.launch())
    await asyncio.wait({launching})
    assert launching.cancelled()
    windows = [pane.name for pane in await box.tmux.panes() if pane.name.startswith("session_")]
    assert windows == [other.id]


async def test_an_agent_whose_first_close_is_cancelled_is_ended_by_the_second(
    box: Machine,
) -> None:
    adapter = (await box.launch()).session.adapter
    assert adapter.terminal is not None
    closing = asyncio.create_task(adapter.close())
    # Until it ends the processes.
    while adapter.terminal.window is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    await adapter.close()
    assert not running_in(box.folder / "home")
