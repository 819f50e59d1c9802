"""Live terminals: people watch, and type into, the windows of agents and named terminals.

    stream of the link ──▶ _Viewer ── pty ── tmux client ──┐
    stream of the link ──▶ _Viewer ── pty ── tmux client ──┴─▶ window of the private tmux server

Each viewer has a tmux client of its own on a pty, which `contract.link.terminals` connects with a
WebSocket at the service. tmux draws the whole screen for a viewer that joins, with its colours,
its cursor, and the modes that the program has set (alternate screen, mouse, bracketed paste), and
for a viewer that is slow it leaves out what is outdated, instead of keeping it.

The alternative was one client in control mode for all viewers (`%output`, and `capture-pane -e`
for the first screen). Measured here on two shared cores, with tmux 3.3a: a key's echo takes 0.13 ms
through a client on a pty and 0.19 ms in control mode (a pty without tmux: 0.03 ms). `yes` sends
0.09 MB/s to a client on a pty and 2.4 MB/s in control mode, for the same load of tmux. A client
costs 0.5 MB of its own, 3.7 MB with what it shares. And in control mode, `capture-pane` does
not return the modes of a program, so htop would get no mouse.

Nothing is read from a pty while its stream has no room, so a program that writes without end is
slowed down by tmux, and a viewer has at most the window of its stream in memory.

A window has the size of the viewer that has typed or resized last; viewers in mode `read` have no
say. An agent's window has at least 80 by 24 characters, because the rules that read its screen
expect whole lines, and gets its own size back some time after its last viewer has left.
"""

import asyncio
import fcntl
import os
import signal
import struct
import termios
import tty
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from outrider.contract.commands import NamesSession
from outrider.contract.errors import ApiError, conflict, not_found
from outrider.contract.link.terminals import (
    Closed,
    Data,
    Grant,
    Open,
    Resize,
    StreamCode,
    StreamEvent,
    TerminalStreams,
)
from outrider.machine.agents.pane import Pane
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.tmux.control import HEIGHT, WIDTH, TmuxError, WindowGone
from outrider.machine.tmux.server import Tmux, View

RESTORE_SECONDS: Final = 30.0
"""Seconds after its last viewer has left in which a window keeps that viewer's size."""

_MIN_COLUMNS: Final = 80
_MIN_ROWS: Final = 24
_CHUNK: Final = 64 * 1024

_log = structlog.get_logger(__name__)


@dataclass
class OpenableWindow:
    """A window that people may open.

    Args:
        is_agent: whether it has a smallest size, and a size of its own.
    """

    pane: Pane
    is_agent: bool


@dataclass
class _Shared:
    """A window that is open, its viewers, and the size that it is to have."""

    window: OpenableWindow
    viewers: set[int] = field(default_factory=set)
    size: tuple[int, int] | None = None
    resizing: asyncio.Task[None] | None = None
    restoring: asyncio.TimerHandle | None = None


FindWindow = Callable[[Open], Awaitable[OpenableWindow]]
"""Returns the window that a viewer asks for; ApiError if there is none."""


class LiveTerminals:
    """The viewers of this machine's terminals.

    Args:
        find: finds the window of a request.
        restore_seconds: how long a window keeps its last viewer's size.
    """

    def __init__(
        self, tmux: Tmux, find: FindWindow, *, restore_seconds: float = RESTORE_SECONDS
    ) -> None:
        self._tmux = tmux
        self._find = find
        self._restore_seconds = restore_seconds
        self._on_output: Callable[[], None] = lambda: None
        self._viewers: dict[int, _Viewer] = {}
        self._shared: dict[str, _Shared] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def subscribe(self, on_output: Callable[[], None]) -> None:
        """Call `on_output`, possibly often, when streams may have something to send."""
        self._on_output = on_output

    def handle(self, streams: TerminalStreams, events: list[StreamEvent]) -> None:
        """Carry out what has happened to the streams of the current connection."""
        for number, message in events:
            viewer = self._viewers.get(number)
            match message:
                case Open():
                    viewer = _Viewer(number, message, streams, self._output)
                    self._viewers[number] = viewer
                    viewer.task = self._start(self._serve(viewer), f"terminal {number}")
                case Data(data) if viewer is not None:
                    viewer.receive(data)
                    self._resize(viewer)
                case Resize(columns=columns, rows=rows) if viewer is not None:
                    viewer.resize(columns, rows)
                    self._resize(viewer)
                case Grant() if viewer is not None:
                    viewer.resume()
                case Closed() if viewer is not None:
                    # Here, because a task that is cancelled before its first step cleans up
                    # nothing, and so that `lost` does not cancel one that is cleaning up.
                    del self._viewers[number]
                    viewer.leave()
        self._output()

    def lost(self) -> None:
        """Release every viewer: the connection has ended. The terminals stay."""
        for viewer in self._viewers.values():
            viewer.leave()
        self._viewers.clear()

    async def close(self) -> None:
        """End every viewer, and give the windows of agents their own size back."""
        self.lost()
        for shared in list(self._shared.values()):
            self._restore(shared)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _output(self) -> None:
        self._on_output()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, viewer: "_Viewer") -> None:
        """Attach a viewer, and return when it has left or its terminal has ended."""
        shared = None
        try:
            window = await self._find(viewer.request)
            # The size is settled before the client starts: it draws once, and not twice.
            shared = self._join(viewer, window)
            if shared.resizing is not None:
                await asyncio.wait({shared.resizing})
            columns, rows = await self._tmux.size(window.pane)
            await viewer.attach(self._tmux, window.pane)
            viewer.streams.opened(viewer.number, columns, rows)
            self._output()
            await viewer.ended()
            viewer.close(StreamCode.ENDED, "The terminal has ended")
        except ApiError as error:
            viewer.close(_code(error), error.message)
        except WindowGone as error:
            viewer.close(StreamCode.NOT_FOUND, str(error))
        except (TmuxError, OSError) as error:
            viewer.close(StreamCode.FAILED, f"The terminal failed: {error}")
        except Exception:  # noqa: BLE001  # one terminal must not end the connection
            _log.exception("terminal failed", stream=viewer.number)
            viewer.close(StreamCode.FAILED, "The terminal failed: see the machine agent's log")
        finally:
            viewer.detach()
            if self._viewers.get(viewer.number) is viewer:
                del self._viewers[viewer.number]
            self._output()
            if shared is not None:
                self._part(viewer, shared)
                if viewer.view is not None:
                    await self._tmux.end_viewer(shared.window.pane, viewer.view)

    # The size of a window

    def _join(self, viewer: "_Viewer", window: OpenableWindow) -> _Shared:
        shared = self._shared.setdefault(window.pane.id, _Shared(window))
        shared.viewers.add(id(viewer))
        if shared.restoring is not None:
            shared.restoring.cancel()
            shared.restoring = None
        viewer.shared = shared
        self._resize(viewer)
        return shared

    def _part(self, viewer: "_Viewer", shared: _Shared) -> None:
        shared.viewers.discard(id(viewer))
        if not shared.viewers and shared.restoring is None:
            loop = asyncio.get_running_loop()
            shared.restoring = loop.call_later(self._restore_seconds, self._restore, shared)

    def _restore(self, shared: _Shared) -> None:
        """Give a window without viewers its own size back."""
        if shared.restoring is not None:
            shared.restoring.cancel()
        if self._shared.get(shared.window.pane.id) is shared:
            del self._shared[shared.window.pane.id]
        if shared.window.is_agent and shared.size not in (None, (WIDTH, HEIGHT)):
            self._set_size(shared, WIDTH, HEIGHT)

    def _resize(self, viewer: "_Viewer") -> None:
        """Give the window the size of a viewer that may type."""
        if viewer.shared is not None and viewer.request.mode == "write":
            columns, rows = viewer.size
            if viewer.shared.window.is_agent:
                columns, rows = max(columns, _MIN_COLUMNS), max(rows, _MIN_ROWS)
            self._set_size(viewer.shared, columns, rows)

    def _set_size(self, shared: _Shared, columns: int, rows: int) -> None:
        if shared.size == (columns, rows):
            return
        shared.size = columns, rows
        if shared.resizing is None:
            name = f"resize {shared.window.pane.name}"
            shared.resizing = self._start(self._apply_size(shared), name)

    async def _apply_size(self, shared: _Shared) -> None:
        """Resize a window until it has the newest size; sizes in between are left out."""
        done = None
        try:
            while shared.size is not None and shared.size != done:
                # Viewers may resize while tmux does so: only the newest size counts.
                done = shared.size
                with suppress(TmuxError):  # the window is gone: its viewers are notified
                    await self._tmux.resize(shared.window.pane, *done)
        finally:
            shared.resizing = None


class _Viewer:
    """One stream, and the tmux client whose pty it is connected with.

    `_input` is what was typed and is not written yet: at most the window of the stream.
    """

    def __init__(
        self,
        number: int,
        request: Open,
        streams: TerminalStreams,
        on_output: Callable[[], None],
    ) -> None:
        self.number = number
        self.request = request
        self.streams = streams
        self.size = request.columns, request.rows
        self.shared: _Shared | None = None
        self.task: asyncio.Task[None] | None = None
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._master = -1
        self.view: View | None = None
        self._is_reading = self._is_writing = False
        self._left = asyncio.Event()

    async def attach(self, tmux: Tmux, pane: Pane) -> None:
        """Start the client, and connect its pty with the stream."""
        self._master, terminal = os.openpty()
        try:
            # What is typed before the client has set this itself must arrive unchanged.
            tty.setraw(terminal)
            os.set_blocking(self._master, False)
            self._set_size()
            is_reader = self.request.mode == "read"
            self.view = await tmux.start_viewer(pane, terminal, read_only=is_reader)
        finally:
            os.close(terminal)
        self._set_size()  # it may have changed meanwhile
        self.resume()
        self._write()

    async def ended(self) -> None:
        """Wait until the client has ended or the viewer has left; then pass on the last output."""
        assert self.view is not None
        ended = asyncio.ensure_future(self.view.client.wait())
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            left.cancel()
        while self._read():
            pass

    def receive(self, data: bytes) -> None:
        """Type what has arrived; a viewer in mode `read` types nothing."""
        if self.request.mode == "read" or self._left.is_set():
            self.streams.consumed(self.number, len(data))
            return
        self._input += data
        if not self._is_writing:
            self._write()

    def resize(self, columns: int, rows: int) -> None:
        """Give the client's terminal the size of the viewer's screen."""
        self.size = columns, rows
        self._set_size()

    def resume(self) -> None:
        """Read output again: the stream has room."""
        if self._master >= 0 and not self._is_reading and self.streams.room(self.number):
            self._is_reading = True
            self._loop.add_reader(self._master, self._read)

    def leave(self) -> None:
        """End the viewer, because its stream has ended."""
        self._left.set()
        if self.view is None and self.task is not None:
            self.task.cancel()

    def close(self, code: StreamCode, reason: str) -> None:
        """Close the stream, unless it has ended."""
        self.streams.close(self.number, code, reason)

    def detach(self) -> None:
        """Disconnect the pty; its client ends by itself, or is ended by `Tmux.end_viewer`."""
        if self._master >= 0:
            self._stop_reading()
            self._stop_writing()
            os.close(self._master)
            self._master = -1

    def _set_size(self) -> None:
        if self._master < 0:
            return
        columns, rows = self.size
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # The pty is not the client's controlling terminal: the kernel sends it no signal.
        if self.view is not None and self.view.client.returncode is None:
            os.kill(self.view.client.pid, signal.SIGWINCH)

    def _read(self) -> bool:
        """Pass on output as far as there is room; return whether there may be more."""
        room = self.streams.room(self.number)
        if self._master < 0 or not room:
            self._stop_reading()
            return False
        try:
            data = os.read(self._master, min(room, _CHUNK))
        except BlockingIOError:
            return False
        except OSError:  # the client has closed the terminal
            data = b""
        if not data:
            self._stop_reading()
            return False
        self.streams.send(self.number, data)
        self._on_output()
        return True

    def _write(self) -> None:
        """Type as much of the input as the pty takes now."""
        if self._master < 0:
            return  # `attach` does it
        count = 0
        try:
            while count < len(self._input):
                count += os.write(self._master, self._input[count : count + _CHUNK])
        except BlockingIOError:
            pass
        except OSError:
            count = len(self._input)  # the client has ended: nobody reads it
        del self._input[:count]
        self.streams.consumed(self.number, count)
        self._on_output()
        if not self._input:
            self._stop_writing()
        elif not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._master, self._write)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._master)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._master)


def agent_window(sessions: Sessions, session_id: str | None) -> OpenableWindow:
    """Return the window of an agent.

    Raises:
        ApiError: 404, there is no such session, or its agent has ended; 409, it has no window.
    """
    terminal = sessions.find(NamesSession(session_id=session_id)).adapter.terminal
    if terminal is None:
        raise conflict("This agent does not run in a terminal")
    if terminal.window is None:
        raise not_found("The agent has ended, and its terminal with it")
    return OpenableWindow(terminal.window, is_agent=True)


def _code(error: ApiError) -> StreamCode:
    try:
        return StreamCode(4000 + error.status)
    except ValueError:
        return StreamCode.FAILED
