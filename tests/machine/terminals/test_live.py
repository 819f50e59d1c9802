"""Real programs in real tmux windows, and the people who watch them and type into them."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outrider.contract.errors import not_found
from outrider.contract.link.terminals import (
    WINDOW,
    Closed,
    Data,
    Open,
    Opened,
    StreamCode,
    StreamEvent,
    TerminalStreams,
)
from outrider.machine.agents.pane import Pane
from outrider.machine.terminals.live import LiveTerminals, OpenableWindow
from outrider.machine.tmux.server import Tmux
from tests.machine.agents.machine import kill_server
from tests.rig.waiting import eventually

RAW_READER = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"ready")
data = b""
while not data.endswith(b"!"):
    data += os.read(0, 65536)
open(sys.argv[1], "wb").write(data)
os.write(1, b"done")
os.read(0, 1)
"""

MODES = (
    r"printf '\033[?1049h\033[?1000h\033[?1006h\033[2J\033[3;5H\033[38;2;1;2;3mherē\033[0m'; cat"
)


@dataclass
class Screen:
    """What one viewer has received, and how its stream ended."""

    data: bytearray = field(default_factory=bytearray)
    unread: int = 0
    opened: Opened | None = None
    closed: Closed | None = None


class Viewers:
    """The service's end of the streams, connected with the machine's live terminals."""

    def __init__(self, tmux: Tmux) -> None:
        self.tmux = tmux
        self.windows: dict[str, OpenableWindow] = {}
        self.screens: dict[int, Screen] = {}
        self.slow: set[int] = set()
        """Viewers that consume nothing."""
        self.live = LiveTerminals(tmux, self._find, restore_seconds=0)
        self.live.subscribe(self._carry_soon)
        self._loop = asyncio.get_running_loop()
        self.connect()

    def connect(self) -> None:
        self.live.lost()
        self.service = TerminalStreams(is_machine=False)
        self.machine = TerminalStreams(is_machine=True)

    async def window(self, *argv: str, is_agent: bool = False) -> str:
        name = f"w{len(self.windows)}"
        self.windows[name] = OpenableWindow(await self.tmux.open(name, argv), is_agent=is_agent)
        return name

    def pane(self, name: str) -> Pane:
        return self.windows[name].pane

    def open(self, name: str, mode: str = "write", columns: int = 100, rows: int = 30) -> int:
        stream = self.service.open(
            Open(name=name, mode="read" if mode == "read" else "write", columns=columns, rows=rows)
        )
        assert stream is not None
        self.screens[stream] = Screen()
        self.carry()
        return stream

    async def opened(
        self, name: str, mode: str = "write", columns: int = 100, rows: int = 30
    ) -> int:
        stream = self.open(name, mode, columns, rows)
        await eventually(lambda: self.screens[stream].opened is not None)
        return stream

    def type(self, stream: int, data: bytes) -> None:
        self.service.send(stream, data)
        self.carry()

    async def shows(self, stream: int, text: bytes) -> None:
        await eventually(lambda: text in self.screens[stream].data)

    async def closed(self, stream: int) -> Closed:
        await eventually(lambda: self.screens[stream].closed is not None)
        closed = self.screens[stream].closed
        assert closed is not None
        return closed

    def carry(self) -> None:
        """Take everything that waits to the other end, as a socket would."""
        while (message := self.service.next_message()) is not None:
            self.machine.receive(message)
        self.live.handle(self.machine, events) if (events := self.machine.events()) else None
        while (message := self.machine.next_message()) is not None:
            self.service.receive(message)
        for stream, content in self.service.events():
            screen = self.screens[stream]
            match content:
                case Opened():
                    screen.opened = content
                case Closed():
                    screen.closed = content
                case Data(data):
                    screen.data += data
                    screen.unread += len(data)
                    if stream not in self.slow:
                        self.service.consumed(stream, screen.unread)
                        screen.unread = 0

    def _carry_soon(self) -> None:
        self._loop.call_soon(self.carry)

    async def _find(self, request: Open) -> OpenableWindow:
        if request.name not in self.windows:
            raise not_found("No such terminal")
        return self.windows[request.name]


@pytest.fixture
async def viewers(tmp_path: Path) -> AsyncIterator[Viewers]:
    socket = f"outrider-test-{uuid.uuid4().hex[:12]}"
    tmux = Tmux(socket)
    viewers = Viewers(tmux)
    yield viewers
    await viewers.live.close()
    await tmux.close()
    kill_server(socket)


async def test_a_viewer_who_joins_sees_the_screen_with_its_colours_cursor_and_modes(
    viewers: Viewers,
) -> None:
    name = await viewers.window("sh", "-c", MODES)
    await eventually(lambda: _screen_has(viewers, name, "herē"))
    stream = await viewers.opened(name)
    await viewers.shows(stream, "herē".encode())
    data = bytes(viewers.screens[stream].data)
    assert b"38;2;1;2;3m" in data  # the colour
    await viewers.shows(stream, b"\x1b[?1000h")  # the mouse
    await viewers.shows(stream, b"\x1b[?1006h")
    await viewers.shows(stream, b"\x1b[?1049h")


async def test_two_viewers_share_a_terminal(viewers: Viewers) -> None:
    name = await viewers.window("cat")
    one, other = await viewers.opened(name), await viewers.opened(name)
    viewers.type(one, "漢字 ünï\r".encode())
    for stream in (one, other):
        await viewers.shows(stream, "漢字 ünï".encode())
    viewers.type(other, b"and back\r")
    await viewers.shows(one, b"and back")


async def test_a_viewer_who_reads_neither_types_nor_resizes(viewers: Viewers) -> None:
    name = await viewers.window("cat")
    writer = await viewers.opened(name, columns=90, rows=25)
    reader = await viewers.opened(name, mode="read", columns=60, rows=20)
    viewers.type(reader, b"not this\r")
    viewers.service.resize(reader, 50, 20)
    viewers.type(writer, b"but this\r")
    await viewers.shows(reader, b"but this")
    assert b"not this" not in viewers.screens[writer].data
    assert await viewers.tmux.size(viewers.pane(name)) == (90, 25)


async def test_a_large_paste_arrives_whole(viewers: Viewers, tmp_path: Path) -> None:
    target = tmp_path / "pasted"
    program = tmp_path / "program.py"
    program.write_text(RAW_READER)
    name = await viewers.window(sys.executable, str(program), str(target))
    stream = await viewers.opened(name)
    await viewers.shows(stream, b"ready")
    text = ("zeile ünïcödé 漢字 0123456789\r" * 2800).encode()
    assert len(text) > 100_000
    viewers.type(stream, text + b"!")
    await viewers.shows(stream, b"done")
    assert target.read_bytes() == text + b"!"


async def test_a_program_sees_the_size_of_the_newest_writer(viewers: Viewers) -> None:
    # tmux tells a program of one resize at once, and of the next ones a little later.
    name = await viewers.window("sh", "-c", "while sleep 0.02; do stty size; done")
    one = await viewers.opened(name, columns=101, rows=31)
    await viewers.shows(one, b"31 101")
    other = await viewers.opened(name, columns=102, rows=32)
    await viewers.shows(other, b"32 102")
    viewers.service.resize(one, 103, 33)
    viewers.carry()
    await viewers.shows(one, b"33 103")


async def test_an_agents_window_stays_wide_and_gets_its_size_back(viewers: Viewers) -> None:
    name = await viewers.window("cat", is_agent=True)
    stream = await viewers.opened(name, columns=40, rows=60)
    opened = viewers.screens[stream].opened
    assert opened is not None
    assert (opened.columns, opened.rows) == (80, 60)
    viewers.service.close(stream, StreamCode.ENDED)
    viewers.carry()
    await eventually(lambda: _has_size(viewers, name, (120, 50)))


async def test_a_viewer_who_does_not_read_is_left_behind_within_the_window(
    viewers: Viewers,
) -> None:
    loud, quiet = await viewers.window("yes", "x" * 90), await viewers.window("cat")
    slow = await viewers.opened(loud)
    viewers.slow.add(slow)
    await eventually(lambda: viewers.machine.room(slow) == 0)
    assert viewers.screens[slow].unread <= WINDOW
    stream = await viewers.opened(quiet)
    for count in range(20):
        viewers.type(stream, b"line %d\r" % count)
        await viewers.shows(stream, b"line %d" % count)
    assert len(viewers.screens[slow].data) <= 2 * WINDOW
    viewers.slow.clear()
    received = len(viewers.screens[slow].data)
    viewers.service.consumed(slow, WINDOW)
    viewers.carry()
    await eventually(lambda: len(viewers.screens[slow].data) > received)
    await viewers.tmux.kill(viewers.pane(loud))


async def test_the_end_of_a_program_or_of_its_window_closes_the_stream(viewers: Viewers) -> None:
    ending, closing = await viewers.window("cat"), await viewers.window("cat")
    other = await viewers.window("echo", "of another agent")
    one, reader = await viewers.opened(ending), await viewers.opened(ending, mode="read")
    two = await viewers.opened(closing)
    viewers.type(one, b"last words\r\x04")
    await viewers.tmux.kill(viewers.pane(closing))
    for stream in (one, reader, two):
        closed = await viewers.closed(stream)
        assert (closed.code, closed.reason) == (StreamCode.ENDED, "The terminal has ended")
        assert b"of another agent" not in viewers.screens[stream].data
    late = await viewers.closed(viewers.open(ending))
    assert late.code == StreamCode.NOT_FOUND
    await eventually(lambda: _has_ended(viewers, other))


async def test_what_is_typed_at_once_arrives_unchanged(viewers: Viewers) -> None:
    """Even before the viewer's client has started."""
    name = await viewers.window("sh", "-c", "stty raw -echo; echo ready; cat -v")
    await viewers.shows(await viewers.opened(name), b"ready")
    stream = viewers.open(name)
    viewers.type(stream, b"typed\r\x04\x03.")
    await viewers.shows(stream, b"typed^M^D^C.")


async def test_a_terminal_that_is_not_there_is_refused(viewers: Viewers) -> None:
    closed = await viewers.closed(viewers.open("nothing"))
    assert (closed.code, closed.reason) == (StreamCode.NOT_FOUND, "No such terminal")


async def test_a_terminal_outlives_the_connection(viewers: Viewers) -> None:
    name = await viewers.window("sh", "-c", "echo before; cat")
    await viewers.opened(name)
    viewers.connect()
    viewers.screens.clear()
    stream = await viewers.opened(name)
    await viewers.shows(stream, b"before")
    viewers.type(stream, b"after\r")
    await viewers.shows(stream, b"after")


async def test_a_viewer_leaves_nothing_behind(viewers: Viewers) -> None:
    name = await viewers.window("cat")
    stream = await viewers.opened(name)
    viewers.service.close(stream, StreamCode.ENDED)
    viewers.carry()

    async def only_the_agents_session() -> bool:
        return await viewers.tmux.run("list-sessions", "-F", "#{session_name}") == ["outrider"]

    await eventually(only_the_agents_session)
    opening = viewers.open(name)
    viewers.service.close(opening, StreamCode.ENDED)  # while it is being opened
    viewers.carry()
    await eventually(only_the_agents_session)


async def test_a_viewer_who_leaves_is_cancelled_once() -> None:
    """A loss of the connection does not interrupt what its task cleans up."""
    finding, cleaned_up = asyncio.Event(), asyncio.Event()

    async def find(_: Open) -> OpenableWindow:
        finding.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.set()
        raise AssertionError

    live = LiveTerminals(Tmux("unused"), find)
    streams = TerminalStreams(is_machine=True)
    request = Open(name="a", mode="write", columns=80, rows=24)
    live.handle(streams, [StreamEvent(1, request)])
    await finding.wait()
    live.handle(streams, [StreamEvent(1, Closed(code=StreamCode.ENDED))])
    await asyncio.sleep(0)  # the task cleans up
    live.lost()
    await live.close()
    assert cleaned_up.is_set()


async def _screen_has(viewers: Viewers, name: str, text: str) -> bool:
    return text in (await viewers.tmux.snapshot(viewers.pane(name))).text


async def _has_ended(viewers: Viewers, name: str) -> bool:
    return (await viewers.tmux.snapshot(viewers.pane(name))).ended


async def _has_size(viewers: Viewers, name: str, size: tuple[int, int]) -> bool:
    return await viewers.tmux.size(viewers.pane(name)) == size
