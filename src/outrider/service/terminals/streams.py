"""Terminals of the machines, for clients of any node.

    client's WebSocket ── TerminalStream ─┬─ (same node) ───────────────────────┐
                                          └─ TerminalRelay ═ bus ═ TerminalRelay
                                                                                │
                                              machine's socket ── MachineTerminals

`contract.link.terminals` has the messages and windows of a machine's socket. What a client does not
read stays in its window: the machine stops sending on that stream, and only on that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from outrider.contract.errors import OutriderError
from outrider.contract.link.terminals import (
    Closed,
    Data,
    Grant,
    Open,
    Opened,
    StreamCode,
    TerminalStreams,
)

RESTART: Final = 1012
"""Close code: the machine or its node restarts; open the terminal again."""

TRY_AGAIN: Final = 1013
"""Close code: the connection to the machine was lost; open the terminal again in a moment."""

UNSUPPORTED: Final = 4501
"""Close code: the machine agent has no live terminals."""

# Bytes that `TerminalStream.read` returns at a time.
_MAX_READ: Final = 64 * 1024


class TerminalStreamClosed(OutriderError):
    """The stream is closed; `code` is a `StreamCode` or one of this module."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Viewer(Protocol):
    """Who has opened a stream. Its methods must not block."""

    def opened(self) -> None:
        """Handle that the machine has attached the terminal."""

    def received(self, data: bytes) -> None:
        """Handle output, at most a window of which is not reported as consumed."""

    def room_available(self) -> None:
        """Handle that the machine takes more input."""

    def closed(self, code: int, reason: str) -> None:
        """Handle the end of the stream; nothing follows."""


class Line(Protocol):
    """What a viewer does with its stream."""

    def room(self) -> int:
        """Return how many bytes `send` takes now."""

    def send(self, data: bytes) -> None:
        """Send input, at most `room` bytes."""

    async def wait_for_room(self) -> None:
        """Wait while too many other messages of the viewer, such as new sizes, are to be sent."""

    def resize(self, columns: int, rows: int) -> None:
        """Send the size of the viewer's screen."""

    def consumed(self, count: int) -> None:
        """Report that output is passed on."""

    def close(self) -> None:
        """End the stream; `closed` is not called."""


class MachineTerminals:
    """The streams on one socket of a machine.

    Args:
        send: sends a binary message; waits while the machine does not read, and raises
            ConnectionError once the socket is lost.
        is_supported: whether the machine agent takes these messages.
    """

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], *, is_supported: bool = True
    ) -> None:
        self.is_supported = is_supported
        self._send = send
        self.streams = TerminalStreams(is_machine=False)
        self._viewers: dict[int, Viewer] = {}
        self._sending: asyncio.Task[None] | None = None

    def open(self, request: Open, viewer: Viewer) -> Line:
        """Open a stream; `viewer.opened` or `viewer.closed` follows.

        Raises:
            TerminalStreamClosed: there are too many, or the machine agent has no live terminals.
        """
        if not self.is_supported:
            raise TerminalStreamClosed(
                UNSUPPORTED, "This machine's agent has no live terminals yet: update it"
            )
        number = self.streams.open(request)
        if number is None:
            raise TerminalStreamClosed(
                StreamCode.TOO_MANY,
                f"{len(self.streams)} terminals of this machine are open: close one of them",
            )
        self._viewers[number] = viewer
        self.wake()
        return _LocalLine(self, number)

    def receive(self, message: bytes) -> None:
        """Handle a binary message of the machine.

        Raises:
            DecodeError: close the machine's connection.
        """
        try:
            self.streams.receive(message)
        finally:
            for stream, content in self.streams.events():
                viewer = self._viewers.get(stream)
                if viewer is None:
                    continue
                match content:
                    case Opened():
                        viewer.opened()
                    case Data(data):
                        viewer.received(data)
                    case Grant():
                        viewer.room_available()
                    case Closed(code=code, reason=reason):
                        del self._viewers[stream]
                        viewer.closed(code, reason)
        self.wake()

    def end(self, code: int, reason: str) -> None:
        """Close all streams: the socket has ended."""
        # Emptied first: a viewer may close its stream as soon as it is notified.
        viewers, self._viewers = self._viewers, {}
        self.streams = TerminalStreams(is_machine=False)
        for viewer in viewers.values():
            viewer.closed(code, reason)
        if self._sending is not None:
            self._sending.cancel()

    def close(self, stream: int) -> None:
        """End a stream: its viewer has left."""
        if self._viewers.pop(stream, None) is not None:
            self.streams.close(stream, StreamCode.ENDED)
            self.wake()

    def wake(self) -> None:
        """Send what waits, in a task of its own."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_waiting(), name="send to terminals")

    async def _send_waiting(self) -> None:
        """Send what waits, one message at a time, so that frames of the link get in between."""
        try:
            while message := self.streams.next_message():
                await self._send(message)
        except ConnectionError:
            pass  # the end of the socket is reported by `end`


class _LocalLine:
    """The stream of a viewer on the machine's own node."""

    def __init__(self, terminals: MachineTerminals, number: int) -> None:
        self._terminals = terminals
        self._number = number

    def room(self) -> int:
        return self._terminals.streams.room(self._number)

    def send(self, data: bytes) -> None:
        self._terminals.streams.send(self._number, data)
        self._terminals.wake()

    async def wait_for_room(self) -> None:
        pass  # of several sizes only the newest waits

    def resize(self, columns: int, rows: int) -> None:
        self._terminals.streams.resize(self._number, columns, rows)
        self._terminals.wake()

    def consumed(self, count: int) -> None:
        self._terminals.streams.consumed(self._number, count)
        self._terminals.wake()

    def close(self) -> None:
        self._terminals.close(self._number)


class TerminalStream:
    """A client's end of a stream: one task may read while another one writes."""

    def __init__(self) -> None:
        self.line: Line | None = None
        self._unread: deque[bytes] = deque()
        self._is_open = False
        self._end: TerminalStreamClosed | None = None
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def wait_opened(self) -> None:
        """Return once the machine has attached the terminal.

        Raises:
            TerminalStreamClosed: it has refused.
        """
        while not self._is_open:
            if self._end is not None:
                raise self._end
            self._readable.clear()
            await self._readable.wait()

    async def read(self) -> bytes:
        """Return the next output; report with `consumed` when it is passed on.

        Raises:
            TerminalStreamClosed: the stream is closed, and all its output is read.
        """
        while not self._unread:
            if self._end is not None:
                raise self._end
            self._readable.clear()
            await self._readable.wait()
        parts, size = [self._unread.popleft()], 0
        # Several parts as one message: a program that draws a screen writes in small pieces.
        while self._unread and (size := size + len(parts[-1])) + len(self._unread[0]) <= _MAX_READ:
            parts.append(self._unread.popleft())
        return b"".join(parts)

    def consumed(self, count: int) -> None:
        """Report that output is passed on: the machine may send as much again."""
        if self.line is not None:
            self.line.consumed(count)

    async def write(self, data: bytes) -> None:
        """Send input; waits while the machine takes no more.

        Raises:
            TerminalStreamClosed: the stream is closed.
        """
        sent = 0
        while sent < len(data):
            if self._end is not None:
                raise self._end
            assert self.line is not None
            room = self.line.room()
            if room:
                self.line.send(data[sent : sent + room])
                sent += room
            else:
                self._writable.clear()
                await self._writable.wait()

    async def resize(self, columns: int, rows: int) -> None:
        """Send the size of the client's screen."""
        line = self.line
        if line is not None:
            await line.wait_for_room()
            line.resize(columns, rows)

    def close(self) -> None:
        """End the stream, and drop its output. Idempotent."""
        line, self.line = self.line, None
        self._unread.clear()
        if self._end is None:
            self._end = TerminalStreamClosed(StreamCode.ENDED, "The viewer has left")
            if line is not None:
                line.close()
        self._readable.set()
        self._writable.set()

    # Called by the line

    def opened(self) -> None:
        """Handle that the machine has attached the terminal."""
        self._is_open = True
        self._readable.set()

    def received(self, data: bytes) -> None:
        """Handle output."""
        self._unread.append(data)
        self._readable.set()

    def room_available(self) -> None:
        """Handle that the machine takes more input."""
        self._writable.set()

    def closed(self, code: int, reason: str) -> None:
        """Handle the end of the stream."""
        if self._end is None:
            self._end = TerminalStreamClosed(code, reason)
        self._readable.set()
        self._writable.set()


class LocalTerminals:
    """The machines with a socket on this node."""

    def __init__(self) -> None:
        self._machines: dict[str, MachineTerminals] = {}

    def attach(self, machine_id: str, terminals: MachineTerminals) -> None:
        """Add a machine's socket, which replaces an older one."""
        self._machines[machine_id] = terminals

    def detach(self, machine_id: str, terminals: MachineTerminals, *, moved: bool) -> None:
        """Remove a machine's socket, unless a newer one has replaced it; close its streams."""
        if self._machines.get(machine_id) is terminals:
            del self._machines[machine_id]
        if moved:
            terminals.end(RESTART, "The machine has moved to another node: open it again")
        else:
            terminals.end(TRY_AGAIN, "The machine's connection dropped: open it again in a moment")

    def open(self, machine_id: str, request: Open, viewer: Viewer) -> Line | None:
        """Open a stream to a machine with a socket on this node; None if it has none.

        Raises:
            TerminalStreamClosed: it is refused.
        """
        terminals = self._machines.get(machine_id)
        return None if terminals is None else terminals.open(request, viewer)
