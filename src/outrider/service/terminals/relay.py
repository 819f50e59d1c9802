"""Carries terminals between the client's node and the node that has the machine's socket.

    client's node                                          machine's node
    TerminalStream ─ _RemoteLine ─ Relayed, in order ─▶ _RemoteViewer ─ MachineTerminals
                   ◀─────────────────────────────────
                   ◀─────────────── Alive ──────────▶   every second, both ways

The messages of a stream are those of `contract.link.terminals`, with the same window in each
direction, so what waits for the bus is bounded. Each side numbers its messages: the bus may repeat
one (it is ignored), and lose some (the stream is closed).

Crash windows. A stream that the other node has not named for `lost_after` seconds is closed
(`Lifetimes`): that node is dead, or does not know the stream. When the bus is down, all relayed
streams are closed. In both cases the client opens its terminal again.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

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
from outrider.service.cluster.bus import BusDown
from outrider.service.cluster.messages import Alive, Message, OpenStream, Relayed
from outrider.service.cluster.transport import Lifetimes, Transport
from outrider.service.terminals.streams import (
    TRY_AGAIN,
    Line,
    LocalTerminals,
    TerminalStream,
    TerminalStreamClosed,
    Viewer,
)

# Bytes consumed before they are reported to the machine's node.
_REPORTED_FROM: Final = WINDOW // 8

_LOST: Final = "The connection between the service's nodes was lost: open it again in a moment"

_log = structlog.get_logger(__name__)


_open_decoder: Final = msgspec.json.Decoder(Open)


class _End:
    """One node's end of a relayed stream; `relay` has all ends of the node."""

    def __init__(self, stream: str, node: str, relay: "TerminalRelay") -> None:
        self.stream = stream
        self.node = node
        self._relay = relay
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
        self._relay.post(self.node, Relayed(self.stream, self._sent, codec.encode(1, message)))

    async def wait_for_room(self) -> None:
        """Wait while too many messages wait for the bus."""
        await self._relay.wait_for_room(self.node)

    def receive(self, message: codec.StreamMessage) -> bool:
        """Handle a message of the other end; return whether the stream goes on."""
        raise NotImplementedError

    def lost(self) -> None:
        """Close this end: the other one cannot be reached."""
        raise NotImplementedError


class _RemoteLine(_End):
    """The client's end: what a viewer does with a stream of another node's machine."""

    def __init__(self, stream: str, node: str, relay: "TerminalRelay", viewer: Viewer) -> None:
        super().__init__(stream, node, relay)
        self._viewer = viewer
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
        self._relay.forget(self.stream)

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

    def __init__(self, stream: str, node: str, relay: "TerminalRelay") -> None:
        super().__init__(stream, node, relay)
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
        self._relay.forget(self.stream)

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
    """Opens terminals on machines of all nodes, and serves those of other nodes' clients.

    Args:
        node_of: returns the node that has a machine's socket; None if none has it.
        local: the machines with a socket here.
        report_interval: seconds between the reports of streams.
        lost_after: seconds without a report after which a stream is lost.
    """

    def __init__(
        self,
        transport: Transport,
        node_of: Callable[[str], Awaitable[str | None]],
        local: LocalTerminals,
        *,
        report_interval: float = 1.0,
        lost_after: float = 5.0,
    ) -> None:
        self._transport = transport
        self._node_of = node_of
        self._local = local
        self._report_interval = report_interval
        self._lifetimes = Lifetimes(round(lost_after / report_interval), self._lose)
        self._ends: dict[str, _End] = {}

    def count(self) -> int:
        """Return how many streams have an end here."""
        return len(self._ends)

    async def open(self, machine_id: str, request: Open) -> TerminalStream | None:
        """Return a stream that is open; None if no node has a socket of the machine.

        Raises:
            TerminalStreamClosed: the machine has refused it.
            BusDown: the machine's node cannot be reached.
        """
        stream = TerminalStream()
        stream.line = self._local.open(machine_id, request, stream)
        if stream.line is None and self._transport.is_shared:
            stream.line = await self._open_elsewhere(machine_id, request, stream)
        if stream.line is None:
            return None
        try:
            await stream.wait_opened()
        except BaseException:
            stream.close()
            raise
        return stream

    async def run(self) -> None:
        """Receive messages of other nodes and report streams to them, until cancelled."""
        if not self._transport.is_shared:
            return
        async with self._transport.subscribed(_topic(self._transport.node), self._on_message):
            while True:
                await asyncio.sleep(self._report_interval)
                streams: defaultdict[str, list[str]] = defaultdict(list)
                for end in self._ends.values():
                    streams[end.node].append(end.stream)
                for node, names in streams.items():
                    self.post(node, Alive(names))
                self._lifetimes.tick()

    def bus_down(self) -> None:
        """Close all relayed streams: some of their messages may have been lost."""
        for node in {end.node for end in self._ends.values()}:
            self._node_lost(node)

    def post(self, node: str, message: OpenStream | Relayed | Alive) -> None:
        """Send a message to a node soon; if that fails, the streams with the node are closed."""
        self._transport.post(_topic(node), message, on_failed=partial(self._node_lost, node))

    async def wait_for_room(self, node: str) -> None:
        """Wait while too many messages to a node wait for the bus."""
        await self._transport.wait_for_room(_topic(node))

    def forget(self, stream: str) -> None:
        """Remove an end that is closed."""
        self._ends.pop(stream, None)
        self._lifetimes.remove(stream)

    async def _open_elsewhere(self, machine_id: str, request: Open, viewer: Viewer) -> Line | None:
        """Open a stream to a machine of another node; None if none has it."""
        node = await self._node_of(machine_id)
        if node is None or node == self._transport.node:
            return None
        if not self._transport.is_up:
            raise BusDown("The machine's answer would not be received")
        line = _RemoteLine(secrets.token_hex(12), node, self, viewer)
        # Before the request is sent: the answer may come before this returns.
        self._add(line)
        encoded = msgspec.json.encode(request)
        self.post(node, OpenStream(self._transport.node, line.stream, machine_id, encoded))
        return line

    def _on_message(self, message: Message) -> None:
        """Handle a message on this node's topic."""
        match message:
            case OpenStream():
                self._open_for(message)
            case Alive(streams):
                self._lifetimes.reported(streams)
            case Relayed(stream, sequence, content):
                end = self._ends.get(stream)
                if end is not None:
                    self._receive(end, sequence, content)

    def _open_for(self, message: OpenStream) -> None:
        """Open a stream for a client of another node."""
        if message.stream in self._ends:
            return  # repeated by the bus
        viewer = _RemoteViewer(message.stream, message.node, self)
        try:
            request = _open_decoder.decode(message.request)
            line = self._local.open(message.machine, request, viewer)
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
        self._add(viewer)

    def _receive(self, end: _End, sequence: int, content: bytes) -> None:
        is_next = end.is_next(sequence)
        if is_next is None:
            return
        self._lifetimes.reported([end.stream])
        try:
            _, message = codec.decode(content)
            goes_on = is_next and (message is None or end.receive(message))
        except DecodeError as error:
            _log.warning("malformed message between nodes", node=end.node, error=str(error))
            is_next = goes_on = False
        if not is_next:
            end.post(Closed(code=TRY_AGAIN, reason=_LOST))
            self._lose(end.stream)
        elif not goes_on:
            self.forget(end.stream)

    def _add(self, end: _End) -> None:
        self._ends[end.stream] = end
        self._lifetimes.add(end.stream)

    def _node_lost(self, node: str) -> None:
        """Close the streams with a node that messages do not reach."""
        self._transport.drop_posted(_topic(node))
        for end in list(self._ends.values()):
            if end.node == node:
                self._lose(end.stream)

    def _lose(self, stream: str) -> None:
        end = self._ends[stream]
        self.forget(stream)
        end.lost()


def _topic(node: str) -> str:
    return f"terminals {node}"
