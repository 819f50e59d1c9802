"""The bash of a named terminal, which people and the API use together."""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.contract.commands import Terminal, TerminalOutput
from outrider.contract.errors import ApiError
from outrider.machine.agents.pane import Pane
from outrider.machine.terminals.output import OutputCapture
from outrider.machine.terminals.shell import Shell, close_left_windows
from outrider.machine.terminals.terminal import Terminals
from outrider.machine.tmux.server import PaneSnapshot, Tmux
from tests.machine.agents.machine import kill_server
from tests.machine.conftest import eventually
from tests.rig.waiting import TIMEOUT

NAME = "build"


class Desk:
    """A person at the window of a terminal, and a program that uses its name over the API."""

    def __init__(self, tmux: Tmux) -> None:
        self.tmux = tmux
        self.terminals = Terminals(tmux)

    async def window(self) -> Pane:
        return await self.terminals.window(NAME)

    async def sit_down(self) -> None:
        """Open the window, and wait for the prompt."""
        await self.run("PS1='rea''dy> '")  # the command is shown with its quotes
        await self.type("Enter")
        await self.shows("ready>")

    async def type(self, *keys: str) -> None:
        await self.tmux.press(await self.window(), keys)

    async def enter(self, line: str) -> None:
        await self.type(*line, "Enter")

    async def shows(self, text: str) -> None:
        window = await self.window()

        async def is_shown() -> bool:
            return text in (await self.tmux.snapshot(window)).text

        await eventually(is_shown, f"{text!r} is not shown")

    async def run(self, command: str, within: float = TIMEOUT) -> TerminalOutput:
        deadline = asyncio.get_running_loop().time() + within
        return await self.terminals.run(Terminal(command=command, name=NAME), deadline)


@pytest.fixture
async def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: object
) -> AsyncIterator[Desk]:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmux = Tmux(f"outrider-test-{uuid.uuid4().hex[:12]}")
    desk = Desk(tmux)
    yield desk
    await desk.terminals.close()
    await tmux.close()
    kill_server(tmux.socket)


async def test_a_window_opens_while_a_command_runs(desk: Desk, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    waiting = f"echo begun; until [ -e {marker} ]; do sleep 0.02; done; echo went"
    running = asyncio.create_task(desk.run(waiting))
    await desk.shows("begun")
    marker.touch()
    assert (await running).output == "begun\nwent\n"


async def test_a_window_opens_while_a_command_starts_its_shell(desk: Desk, tmp_path: Path) -> None:
    marker = tmp_path / "go"
    waiting = f"until [ -e {marker} ]; do sleep 0.02; done"
    running = asyncio.create_task(desk.run(waiting))
    await eventually(lambda: bool(desk.terminals.list().terminals))
    await desk.window()
    assert not running.done()
    marker.touch()
    await running


async def test_people_and_the_api_use_the_same_shell(desk: Desk, tmp_path: Path) -> None:
    await desk.sit_down()
    await desk.enter("cd /; x=typed")
    result = await desk.run("echo $x; pwd; y=sent; (exit 7)")
    assert (result.output, result.exit_code, result.cwd) == ("typed\n/\n", 7, "/")
    await desk.enter('echo "y is $y"')
    await desk.shows("y is sent")
    assert (await desk.run("[ -t 0 ] || [ -t 1 ] || echo no tty")).output == "no tty\n"
    await desk.shows("[API] [ -t 0 ]")
    await desk.shows("no tty")


async def test_what_is_half_typed_stays(desk: Desk) -> None:
    await desk.sit_down()
    await desk.type(*"echo half")
    await desk.shows("echo half")
    assert (await desk.run("echo from the API")).output == "from the API\n"
    await desk.enter(" and half")
    await desk.shows("half and half")


async def test_a_command_waits_for_the_program_that_a_person_uses(desk: Desk) -> None:
    await desk.sit_down()
    await desk.enter("echo be''gun; cat")
    await desk.shows("begun")  # what is typed before that, the tty does not echo
    await desk.enter("in use")
    await desk.shows("in use\nin use")
    with pytest.raises(ApiError) as late:
        await desk.run("echo later", within=1)
    assert late.value.status == 504
    await desk.type("C-d")
    assert (await desk.run("echo now")).output == "later\nnow\n"
    window = await desk.window()
    assert "1;99" not in (await desk.tmux.snapshot(window)).text


@pytest.mark.parametrize(
    "command", ["return 3", "echo 'open", "set -u", "mv() { :; }", "f() { :; }; f"]
)
async def test_no_command_leaves_the_terminal_hanging(desk: Desk, command: str) -> None:
    await desk.window()
    await desk.run(command)
    assert (await desk.run("echo on")).output == "on\n"


async def test_exit_ends_it_and_the_next_use_starts_another(desk: Desk) -> None:
    window = await desk.window()
    result = await desk.run("echo bye; exit 3")
    assert (result.output, result.exit_code) == ("bye\n", 3)
    assert (await desk.run("echo again")).output == "again\n"
    await eventually(lambda: _is_gone(desk.tmux, window))
    another = await desk.window()
    assert another != window
    await desk.enter("exit 4")
    await eventually(lambda: _is_gone(desk.tmux, another))
    assert (await desk.run("echo again")).output == "again\n"


async def test_it_ends_with_all_that_runs_in_it(desk: Desk) -> None:
    window = await desk.window()
    await desk.enter("sleep 1000 & cat")
    await desk.terminals.end(NAME)
    await eventually(lambda: _is_gone(desk.tmux, window))
    with pytest.raises(ApiError):
        await desk.terminals.end(NAME)


async def test_opening_at_once_opens_one_window(desk: Desk) -> None:
    first, second = await asyncio.gather(desk.window(), desk.window())
    assert first == second


async def test_without_bash_there_is_no_named_terminal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    for use in (desk.window(), desk.run("true")):
        with pytest.raises(ApiError) as refused:
            await use
        assert refused.value.status == 409


async def test_windows_of_a_killed_machine_agent_are_closed(desk: Desk) -> None:
    left = await desk.tmux.open("terminal-old", ["cat"])
    agent = await desk.tmux.open("session_1", ["cat"])
    await close_left_windows(desk.tmux)
    assert await _is_gone(desk.tmux, left)
    assert await desk.tmux.find("session_1") == agent


async def test_nothing_is_left_of_one_that_did_not_start(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the file with its environment, which may have API keys."""
    programs, temporary = tmp_path / "bin", tmp_path / "tmp"
    programs.mkdir()
    temporary.mkdir()
    (programs / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    with monkeypatch.context() as machine:
        machine.setenv("PATH", str(programs))  # without tmux
        machine.setattr(tempfile, "tempdir", str(temporary))
        with pytest.raises(ApiError) as failed:
            await desk.window()
    assert failed.value.status == 500
    assert list(temporary.iterdir()) == []


class BusyTmux(Tmux):
    """A tmux server that does not say how a program has ended."""

    async def snapshot(self, pane: Pane) -> PaneSnapshot:
        await asyncio.Event().wait()
        raise AssertionError


async def test_its_end_is_not_waited_for_without_a_bound(desk: Desk) -> None:
    tmux = BusyTmux(desk.tmux.socket)
    shell = Shell(tmux, NAME, "/", OutputCapture(), kill_seconds=0.1)
    try:
        await shell.start()
        window = shell.window
        assert window is not None
        async with asyncio.timeout(TIMEOUT):
            await shell.close()
        assert shell.ended
        assert await _is_gone(desk.tmux, window)
    finally:
        await tmux.close()


async def _is_gone(tmux: Tmux, pane: Pane) -> bool:
    return await tmux.find(pane.name) != pane
