"""Carries terminals between the client's node and the node that has the machine's socket.

    client's node                                          machine's node
    TerminalStream ─ _RemoteLine ─ Relayed, in order ─▶ _RemoteViewer ─ MachineTerminals
                   ◀─────────────────────────────────
                   ◀─────────────── Alive ──────────▶   every second, both ways

The messages of a stream are those of `contract.link.terminals`, with the same window in each
direction, so what waits for the bus is bounded. Each side numbers its messages: the bus may repeat
one (it is ignored), and lose some (the stream is closed).

Crash windows. A stream that the other node has not named for `lost_after` seconds is closed: that
node is dead, or does not know the stream. Each side measures this time in its own reports, as it
receives none while it is frozen itself. When the bus is down, all relayed streams are closed. In
both cases the client opens its terminal again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
import structlog

from outrider.contract.frames import DecodeError
from outrider.contract.link import terminals as codec
from outrider.contract.link.terminals import (
    MAX_DATA,
    WINDOW,
    Closed,
    Data,
    Grant,
    Open,
    Opened,
    Resize,
    StreamCode,
)
from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.terminals.streams import TRY_AGAIN, Line, TerminalStreamClosed, Viewer

_REPORTED_FROM: Final = WINDOW // 8
"""Bytes consumed before they are reported to the machine's node."""

_MAX_WAITING: Final = 256
"""Messages that wait for the bus to another node before a viewer's resize waits too."""

_LOST: Final = "The connection between the service's nodes was lost: open it again in a moment"

_log = structlog.get_logger(__name__)


# The messages between nodes. Their tags and the order of their fields are the wire format.


class OpenStream(msgspec.Struct, tag="open", array_like=True, frozen=True):
    """To the machine's node: open a stream; `node` is the sender, `request` an `Open` as JSON."""

    node: str
    stream: str
    machine: str
    request: bytes


class Relayed(msgspec.Struct, tag="message", array_like=True, frozen=True):
    """Either way: message number `sequence` of a stream, as the codec encodes it."""

    stream: str
    sequence: int
    message: bytes


class Alive(msgspec.Struct, tag="alive", array_like=True, frozen=True):
    """Either way, every second: the streams with the receiver that the sender has."""

    streams: list[str]


_decoder: Final = msgspec.msgpack.Decoder(OpenStream | Relayed | Alive)
_encode: Final = msgspec.msgpack.Encoder().encode
_open_decoder: Final = msgspec.json.Decoder(Open)


class LocalTerminals(Protocol):
    """Opens streams to machines of this node; see `terminals.Terminals.open_here`."""

    def open_here(self, machine_id: str, request: Open, viewer: Viewer) -> Line | None:
        """Open a stream; None if the machine has no socket here."""


class _Outbox:
    """The messages that wait for the bus to one node, sent in order by one task."""

    def __init__(self, bus: Bus, node: str, failed: Callable[[str], None]) -> None:
        self._bus = bus
        self._node = node
        self._failed = failed
        self._waiting: deque[bytes] = deque()
        self._has_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or is being sent."""
        return not self._waiting and (self._task is None or self._task.done())

    @property
    def is_full(self) -> bool:
        """Whether `_MAX_WAITING` messages wait."""
        return len(self._waiting) >= _MAX_WAITING

    def post(self, message: OpenStream | Relayed | Alive) -> None:
        """Send a message soon."""
        self._waiting.append(_encode(message))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send(), name="relay terminals")

    async def wait_for_room(self) -> None:
        """Return once fewer than `_MAX_WAITING` messages wait."""
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._has_room.set()
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        while self._waiting:
            message = self._waiting.popleft()
            if not self.is_full:
                self._has_room.set()
            try:
                receivers = await self._bus.publish(_channel(self._node), message)
            except BusDown as error:
                _log.warning("relaying terminals failed", node=self._node, error=str(error))
                receivers = 0
            if not receivers:
                self._failed(self._node)
                return


class _End:
    """One node's end of a relayed stream.

    Attributes:
        silence: reports that this node has sent since the last one that named the stream arrived.
    """

    def __init__(self, stream: str, node: str, outbox: _Outbox) -> None:
        self.stream = stream
        self.node = node
        self.silence = 0
        self._outbox = outbox
        self._sent = 0
        self._received = 0

    def is_next(self, sequence: int) -> bool | None:
        """Return whether this is the next message: False if messages are lost, None if repeated."""
        if sequence <= self._received:
            return None
        self._received += 1
        return sequence == self._received

    def post(self, message: codec.StreamMessage) -> None:
        """Send a message to the other end."""
        self._sent += 1
        self._outbox.post(Relayed(self.stream, self._sent, codec.encode(1, message)))

    async def wait_for_room(self) -> None:
        """Wait while too many messages wait for the bus."""
        await self._outbox.wait_for_room()

    def receive(self, message: codec.StreamMessage) -> bool:
        """Handle a message of the other end; return whether the stream goes on."""
        raise NotImplementedError

    def lost(self) -> None:
        """Close this end: the other one cannot be reached."""
        raise NotImplementedError


class _RemoteLine(_End):
    """The client's end: what a viewer does with a stream of another node's machine."""

    def __init__(
        self, stream: str, node: str, outbox: _Outbox, viewer: Viewer, forget: Callable[[str], None]
    ) -> None:
        super().__init__(stream, node, outbox)
        self._viewer = viewer
        self._forget = forget
        self._room = WINDOW
        self._ungranted = 0  # bytes received and not granted again
        self._consumed = 0  # those of them that are consumed

    def room(self) -> int:
        return self._room

    def send(self, data: bytes) -> None:
        self._room -= len(data)
        for start in range(0, len(data), MAX_DATA):
            self.post(Data(data[start : start + MAX_DATA]))

    def resize(self, columns: int, rows: int) -> None:
        self.post(Resize(columns=columns, rows=rows))

    def consumed(self, count: int) -> None:
        self._consumed += count
        if self._consumed >= _REPORTED_FROM:
            self._ungranted -= self._consumed
            self.post(Grant(self._consumed))
            self._consumed = 0

    def close(self) -> None:
        self.post(Closed(code=StreamCode.ENDED))
        self._forget(self.stream)

    def receive(self, message: codec.StreamMessage) -> bool:
        match message:
            case Opened():
                self._viewer.opened()
            case Data(data):
                self._ungranted += len(data)
                if self._ungranted > WINDOW:
                    raise DecodeError("More bytes arrived than the window allows")
                self._viewer.received(data)
            case Grant(count):
                self._room = min(self._room + count, WINDOW)
                self._viewer.room_available()
            case Closed(code=code, reason=reason):
                self._viewer.closed(code, reason)
                return False
        return True

    def lost(self) -> None:
        self._viewer.closed(TRY_AGAIN, _LOST)


class _RemoteViewer(_End):
    """The machine's end: the viewer of a stream for a client on another node."""

    def __init__(
        self, stream: str, node: str, outbox: _Outbox, forget: Callable[[str], None]
    ) -> None:
        super().__init__(stream, node, outbox)
        self._forget = forget
        self.line: Line | None = None
        self._room = WINDOW  # what the other end may still send

    # As the viewer of the stream

    def opened(self) -> None:
        self.post(Opened(columns=1, rows=1))  # the size is of no interest to a viewer

    def received(self, data: bytes) -> None:
        self.post(Data(data))

    def room_available(self) -> None:
        assert self.line is not None
        granted = self.line.room() - self._room
        if granted > 0:
            self._room += granted
            self.post(Grant(granted))

    def closed(self, code: int, reason: str) -> None:
        self.post(Closed(code=code, reason=reason))
        self._forget(self.stream)

    # As the end of the relay

    def receive(self, message: codec.StreamMessage) -> bool:
        assert self.line is not None
        match message:
            case Data(data):
                if len(data) > self.line.room():
                    raise DecodeError("More bytes arrived than the window allows")
                self._room -= len(data)
                self.line.send(data)
            case Grant(count):
                self.line.consumed(count)
            case Resize(columns=columns, rows=rows):
                self.line.resize(columns, rows)
            case Closed():
                self.line.close()
                return False
        return True

    def lost(self) -> None:
        if self.line is not None:
            self.line.close()


class TerminalRelay:
    """Opens streams to machines of other nodes, and serves theirs to machines of this one.

    Args:
        node: this node's id.
        node_of: returns the node that has a machine's socket; None if none has it.
        local: the machines with a socket here.
        report_interval: seconds between the reports of streams.
        lost_after: seconds without a report after which a stream is lost.
    """

    def __init__(
        self,
        bus: Bus,
        node: str,
        node_of: Callable[[str], Awaitable[str | None]],
        local: LocalTerminals,
        *,
        report_interval: float = 1.0,
        lost_after: float = 5.0,
    ) -> None:
        self._bus = bus
        self._node = node
        self._node_of = node_of
        self._local = local
        self._report_interval = report_interval
        self._lost_after = round(lost_after / report_interval)
        self._ends: dict[str, _End] = {}
        self._outboxes: dict[str, _Outbox] = {}

    def count(self) -> int:
        """Return how many streams have an end here."""
        return len(self._ends)

    async def open(self, machine_id: str, request: Open, viewer: Viewer) -> Line | None:
        """Open a stream; None if no other node has the machine.

        Raises:
            BusDown: the other nodes cannot be reached.
        """
        if not self._bus.is_shared:
            return None
        node = await self._node_of(machine_id)
        if node is None or node == self._node:
            return None
        if not self._bus.is_up:
            raise BusDown("The machine's answer would not be received")
        outbox, stream = self._outbox(node), secrets.token_hex(12)
        line = _RemoteLine(stream, node, outbox, viewer, self._forget)
        self._ends[stream] = line
        outbox.post(OpenStream(self._node, stream, machine_id, msgspec.json.encode(request)))
        return line

    async def run(self) -> None:
        """Receive messages of other nodes and report streams to them, until cancelled."""
        if not self._bus.is_shared:
            return
        await self._bus.subscribe(_channel(self._node), self._on_message)
        try:
            while True:
                await asyncio.sleep(self._report_interval)
                self._report()
                self._give_up_lost()
        finally:
            await self._bus.unsubscribe(_channel(self._node), self._on_message)
            for outbox in self._outboxes.values():
                outbox.close()

    def bus_down(self) -> None:
        """Close all relayed streams: some of their messages may have been lost."""
        for node in list(self._outboxes):
            self._node_lost(node)

    def _report(self) -> None:
        streams: dict[str, list[str]] = {node: [] for node in self._outboxes}
        for end in self._ends.values():
            streams[end.node].append(end.stream)
        for node, of_node in streams.items():
            outbox = self._outboxes[node]
            if of_node and not outbox.is_full:
                outbox.post(Alive(of_node))
            elif not of_node and outbox.is_idle:
                del self._outboxes[node]

    def _give_up_lost(self) -> None:
        for end in list(self._ends.values()):
            end.silence += 1
            if end.silence > self._lost_after:
                self._lose(end)

    def _on_message(self, data: bytes) -> None:
        """Handle a message on this node's channel; never raises."""
        try:
            message = _decoder.decode(data)
        except msgspec.DecodeError as error:  # of a newer release
            _log.warning("message of another node dropped", error=str(error))
            return
        match message:
            case OpenStream():
                self._open_for(message)
            case Alive(streams):
                for stream in streams:
                    if stream in self._ends:
                        self._ends[stream].silence = 0
            case Relayed(stream, sequence, content):
                end = self._ends.get(stream)
                if end is not None:
                    self._receive(end, sequence, content)

    def _open_for(self, message: OpenStream) -> None:
        """Open a stream for a client of another node."""
        if message.stream in self._ends:
            return  # repeated by the bus
        outbox = self._outbox(message.node)
        viewer = _RemoteViewer(message.stream, message.node, outbox, self._forget)
        try:
            request = _open_decoder.decode(message.request)
            line = self._local.open_here(message.machine, request, viewer)
        except TerminalStreamClosed as error:
            viewer.closed(error.code, error.reason)
            return
        except msgspec.DecodeError as error:
            viewer.closed(StreamCode.FAILED, str(error))
            return
        if line is None:
            viewer.closed(TRY_AGAIN, "The machine is connecting to another node: try again")
            return
        viewer.line = line
        self._ends[message.stream] = viewer

    def _receive(self, end: _End, sequence: int, content: bytes) -> None:
        is_next = end.is_next(sequence)
        if is_next is None:
            return
        end.silence = 0
        try:
            _, message = codec.decode(content)
            goes_on = is_next and (message is None or end.receive(message))
        except DecodeError as error:
            _log.warning("malformed message between nodes", node=end.node, error=str(error))
            is_next = goes_on = False
        if not is_next:
            end.post(Closed(code=TRY_AGAIN, reason=_LOST))
            self._lose(end)
        elif not goes_on:
            self._forget(end.stream)

    def _outbox(self, node: str) -> _Outbox:
        outbox = self._outboxes.get(node)
        if outbox is None:
            outbox = self._outboxes[node] = _Outbox(self._bus, node, self._node_lost)
        return outbox

    def _node_lost(self, node: str) -> None:
        """Close the streams with a node that messages do not reach."""
        outbox = self._outboxes.pop(node, None)
        if outbox is not None:
            outbox.close()
        for end in list(self._ends.values()):
            if end.node == node:
                self._lose(end)

    def _lose(self, end: _End) -> None:
        self._forget(end.stream)
        end.lost()

    def _forget(self, stream: str) -> None:
        self._ends.pop(stream, None)


def _channel(node: str) -> str:
    return f"terminals {node}"
