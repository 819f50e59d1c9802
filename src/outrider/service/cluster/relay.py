"""Relays commands from the node that has the request to the node that has the machine's socket.

    node A                                               node B
    Dispatcher ─ send ─▶ CommandRelay ─ ForwardCommand ─▶ CommandRelay ─▶ socket
                                        (machine's channel)
    Dispatcher ◀─────── CommandRelay ◀─ RelayedResult ── CommandRelay ◀─ socket
                                        (channel of node A)

A node subscribes to the channel of each machine whose socket it has, so the number of subscribers
that receive a command says whether any node has the machine. Results return on the requesting
node's channel, which is part of the command's id: whichever node receives a result knows where it
belongs.

Crash windows. A node may die or freeze with commands in flight. Every second each node therefore
sends the ids of the commands still in flight on its machines to the nodes that requested them
(`InFlight`). A command that no node has reported for `lost_after` seconds fails with a 503 at its
requester. The requester measures this time in its own reports: while it was frozen itself it
received none, and it must not fail commands whose reports wait to be read.

A command in flight belongs to the node that holds the machine's socket. When the machine moves to
another node, its old node hands its commands over (`Handover`); when the socket is lost, the
requesting nodes are notified (`ConnectionLost`).
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Coroutine
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog
from msgspec import structs

from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    Cancel,
    CloseCode,
    Command,
    CommandResult,
    Failure,
    decode_from_daemon,
    decode_from_service,
    encode,
)
from outrider.contract.ids import new_id
from outrider.service.cluster.bus import Bus, BusDown, MessageHandler
from outrider.tracing import OFF, Tracing

_SEND_RETRIES: Final = 5
_RETRY_BYTES: Final = 1024
"""What a retry needs beside its frame."""

MAX_RETRIED_BYTES: Final = 64 * 1024 * 1024
"""Messages to other nodes that may wait for a retry; further ones are dropped."""

_log = structlog.get_logger(__name__)


# The messages between nodes. Their tags and the order of their fields are the wire format, which
# nodes of two releases share during a rolling update.


class ForwardCommand(msgspec.Struct, tag="carry", array_like=True, frozen=True):
    """To the machine's node: send this frame to it."""

    frame: bytes


class CloseConnection(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """To the machine's node: close its socket. With `connection`, only an older one."""

    code: int
    reason: str
    connection: int | None


class Handover(msgspec.Struct, tag="inherit", array_like=True, frozen=True):
    """To the machine's new node: these commands are in flight on the machine."""

    commands: list[str]


class RelayedResult(msgspec.Struct, tag="answer", array_like=True, frozen=True):
    """To the requesting node: the machine's result."""

    machine: str
    frame: bytes


class ConnectionLost(msgspec.Struct, tag="lost", array_like=True, frozen=True):
    """To the requesting node: the machine's socket was lost before its result."""

    machine: str


class InFlight(msgspec.Struct, tag="owing", array_like=True, frozen=True):
    """To the requesting node, every second: these commands are in flight on machines here."""

    commands: list[str]


Message = ForwardCommand | CloseConnection | Handover | RelayedResult | ConnectionLost | InFlight

_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_encoder: Final = msgspec.msgpack.Encoder()


class Socket(Protocol):
    """This node's end of a machine's connection."""

    async def send(self, frame: Command | Cancel) -> None:
        """Send a frame; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed.
        """


class Requests(Protocol):
    """The commands of this node that wait for their results. Its methods must not block."""

    def resolve(self, machine_id: str, result: CommandResult) -> None:
        """Complete a command with a machine's result."""

    def connection_lost(self, machine_id: str) -> None:
        """Fail the commands in flight on a machine: it will not answer them."""

    def command_lost(self, command_id: str) -> None:
        """Fail a command: it will not be answered."""


class CloseHandler(Protocol):
    """Closes a machine's socket on this node because another node asks for it."""

    def __call__(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        """Close it. With `connection`, only if it is an older one than that."""


class _LocalConnection:
    """A machine's socket on this node, and the ids of the commands in flight on it."""

    __slots__ = ("connection", "early", "handler", "in_flight", "in_flight_before", "socket")

    def __init__(self, socket: Socket, connection: int, handler: MessageHandler) -> None:
        self.socket = socket
        self.connection = connection
        self.handler = handler
        self.in_flight: set[str] = set()
        self.in_flight_before: frozenset[str] = frozenset()
        """Those of the last report. Most are answered within a second and never reported."""
        self.early: frozenset[str] = frozenset()
        """Commands whose results were passed on although they were not in flight here."""

    def expects(self, command_id: str) -> bool:
        """Return whether to pass on a result to another node.

        A command that is not in flight here may be one whose result has overtaken its `Handover`.
        A machine could invent any number of them, so only as many as can be in flight are passed
        on, each once.
        """
        if command_id in self.in_flight:
            return True
        if command_id in self.early or len(self.early) >= MAX_COMMANDS_IN_FLIGHT:
            return False
        self.early |= {command_id}
        return True


class _Requested:
    """A command of this node that is in flight.

    Attributes:
        silence: reports that this node has sent since another last reported the command.
    """

    __slots__ = ("machine", "silence")

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.silence = 0


class CommandRelay:
    """Sends commands to machines, wherever their sockets are, and returns the results.

    Args:
        requests: the commands of this node that wait for their results.
        close_connection: closes a machine's socket on this node.
        report_interval: seconds between reports of commands in flight.
        lost_after: seconds without a report after which a command is lost.
        retry_interval: seconds before a message that could not be published is retried.
        max_retried_bytes: see `MAX_RETRIED_BYTES`.
        tracing: begins the spans of commands that come from other nodes.

    Attributes:
        node: the random id of this node.
    """

    def __init__(
        self,
        bus: Bus,
        requests: Requests,
        close_connection: CloseHandler,
        *,
        report_interval: float = 1.0,
        lost_after: float = 5.0,
        retry_interval: float = 1.0,
        max_retried_bytes: int = MAX_RETRIED_BYTES,
        tracing: Tracing = OFF,
    ) -> None:
        self.node = secrets.token_hex(6)
        self._report_interval = report_interval
        self._lost_after = round(lost_after / report_interval)
        self._retry_interval = retry_interval
        self._max_retried_bytes = max_retried_bytes
        self._retried_bytes = 0
        self._tracing = tracing
        self._bus = bus
        self._requests = requests
        self._close_connection = close_connection
        self._connections: dict[str, _LocalConnection] = {}
        self._requested: dict[str, _Requested] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def new_command_id(self) -> str:
        """Return an id for a command; its result finds its way to this node by it."""
        return f"{new_id('cmd')}@{self.node}"

    async def register(self, machine_id: str, socket: Socket, connection: int) -> None:
        """Make this socket the machine's current connection; older ones on any node are closed."""
        older = self._connections.get(machine_id)
        handler = older.handler if older is not None else partial(self._on_machine, machine_id)
        current = _LocalConnection(socket, connection, handler)
        self._connections[machine_id] = current
        if older is not None:
            await self._report_loss(machine_id, older)
        elif self._bus.is_shared:
            await self._bus.subscribe(machine_id, current.handler)
        if self._bus.is_shared:
            await self._claim(machine_id, connection)

    async def unregister(self, machine_id: str, socket: Socket, *, has_moved: bool) -> None:
        """Remove the socket, unless a newer one has replaced it.

        Args:
            has_moved: the machine has another socket by now, on which its results will come.
        """
        current = self._connections.get(machine_id)
        if current is None or current.socket is not socket:
            return
        del self._connections[machine_id]
        if self._bus.is_shared:
            await self._bus.unsubscribe(machine_id, current.handler)
        if not has_moved:
            await self._report_loss(machine_id, current)
        elif current.in_flight and self._bus.is_shared:
            await self._publish(machine_id, Handover(list(current.in_flight)))

    async def send(self, machine_id: str, frame: Command | Cancel) -> bool:
        """Send a frame to a machine; False if no node has a socket of it.

        Raises:
            BusDown: this node has none, and the other nodes cannot be reached.
        """
        current = self._connections.get(machine_id)
        if isinstance(frame, Command) and self._bus.is_shared:
            self._requested[frame.id] = _Requested(machine_id)
        if current is not None:
            if isinstance(frame, Command):
                current.in_flight.add(frame.id)
            return await _send(current.socket, frame)
        if not self._bus.is_shared:
            return False
        if not self._bus.is_up:
            raise BusDown("The result would not be received", may_be_sent=False)
        return await self._bus.publish(machine_id, _encode(ForwardCommand(encode(frame)))) > 0

    def in_flight(self, machine_id: str) -> int:
        """Return how many commands, of any node, are in flight on a machine connected here.

        For a machine of another node it is 0: that node counts and enforces the limit.
        """
        current = self._connections.get(machine_id)
        return 0 if current is None else len(current.in_flight)

    def completed(self, machine_id: str, command_id: str) -> None:
        """Stop tracking a command of this node: it has a result, or its client has disconnected."""
        self._requested.pop(command_id, None)
        current = self._connections.get(machine_id)
        if current is not None:
            current.in_flight.discard(command_id)

    async def deliver_result(self, machine_id: str, result: CommandResult) -> None:
        """Pass a machine's result to the node that requested it; drop one that none requested."""
        current = self._connections.get(machine_id)
        if current is not None:
            if _node_of(result.id) != self.node and not current.expects(result.id):
                return
            current.in_flight.discard(result.id)
        await self._pass_result(machine_id, result)

    async def close_elsewhere(self, machine_id: str, code: CloseCode, reason: str) -> None:
        """Close the machine's socket if another node has it."""
        if self._bus.is_shared and machine_id not in self._connections:
            await self._publish(machine_id, CloseConnection(code, reason, None))

    async def run(self) -> None:
        """Receive messages of other nodes and report commands in flight, until cancelled."""
        if not self._bus.is_shared:
            return
        await self._bus.subscribe(_channel(self.node), self._on_node)
        try:
            while True:
                await asyncio.sleep(self._report_interval)
                await self._report_in_flight()
                self._give_up_lost()
        finally:
            await self._bus.unsubscribe(_channel(self.node), self._on_node)
            for task in self._tasks:
                task.cancel()

    def bus_down(self) -> None:
        """Fail the commands sent to other nodes: their results may have been lost."""
        for command_id, requested in list(self._requested.items()):
            if requested.machine not in self._connections:
                self._requests.command_lost(command_id)

    async def _report_in_flight(self) -> None:
        """Report to the requesting nodes which of their commands are still in flight here."""
        reports: defaultdict[str, list[str]] = defaultdict(list)
        for current in self._connections.values():
            if not current.in_flight and not current.in_flight_before:
                continue
            for command_id in current.in_flight & current.in_flight_before:
                reports[_node_of(command_id)].append(command_id)
            current.in_flight_before = frozenset(current.in_flight)
        self._on_in_flight(reports.pop(self.node, []))
        for node, commands in reports.items():
            await self._publish(_channel(node), InFlight(commands))

    def _give_up_lost(self) -> None:
        """Fail the commands of this node that no node reports as in flight."""
        for command_id, requested in list(self._requested.items()):
            requested.silence += 1
            if requested.silence > self._lost_after:
                self._requests.command_lost(command_id)

    def _on_in_flight(self, commands: list[str]) -> None:
        for command_id in commands:
            requested = self._requested.get(command_id)
            if requested is not None:
                requested.silence = 0

    def _on_machine(self, machine_id: str, data: bytes) -> None:
        """Handle a message on the channel of a machine that is connected here."""
        current = self._connections.get(machine_id)
        match _decoder.decode(data):
            case ForwardCommand(frame):
                self._start(self._forward(machine_id, frame))
            case Handover(commands):
                if current is not None:
                    current.in_flight.update(set(commands) - current.early)
            case CloseConnection(code, reason, connection):
                if connection is None or current is None or current.connection < connection:
                    self._close_connection(machine_id, CloseCode(code), reason, connection)
                elif current.connection > connection:
                    # The sender missed the claim of the newer connection: repeat it.
                    self._start(self._claim(machine_id, current.connection))

    def _on_node(self, data: bytes) -> None:
        """Handle a message on this node's own channel."""
        match _decoder.decode(data):
            case RelayedResult(machine, frame):
                result = decode_from_daemon(frame)
                if isinstance(result, CommandResult):
                    self._requests.resolve(machine, result)
            case ConnectionLost(machine):
                self._requests.connection_lost(machine)
            case InFlight(commands):
                self._on_in_flight(commands)

    async def _forward(self, machine_id: str, data: bytes) -> None:
        """Send another node's frame to a machine that is connected here."""
        frame = decode_from_service(data)
        current = self._connections.get(machine_id)
        if current is None:
            return  # the machine has just moved: its new node has received the message too
        if isinstance(frame, Cancel):
            current.in_flight.discard(frame.id)
            await _send(current.socket, frame)
        elif isinstance(frame, Command):
            attributes = {"outrider.command": frame.command, "outrider.machine.id": machine_id}
            name = f"relay {frame.command}"
            with self._tracing.start(name, "consumer", frame.traceparent, attributes) as span:
                if span.traceparent is not None:
                    frame = structs.replace(frame, traceparent=span.traceparent)
                await self._forward_command(machine_id, current, frame)

    async def _forward_command(
        self, machine_id: str, current: _LocalConnection, command: Command
    ) -> None:
        if len(current.in_flight) >= MAX_COMMANDS_IN_FLIGHT:
            await self._refuse(machine_id, command)
            return
        current.in_flight.add(command.id)
        await _send(current.socket, command)  # if that fails, `unregister` reports the loss

    async def _refuse(self, machine_id: str, command: Command) -> None:
        message = f"{MAX_COMMANDS_IN_FLIGHT} commands of this machine are unanswered already"
        result = CommandResult(id=command.id, error=Failure(status=503, message=message))
        await self._pass_result(machine_id, result)

    async def _pass_result(self, machine_id: str, result: CommandResult) -> None:
        node = _node_of(result.id)
        if node == self.node:
            self._requests.resolve(machine_id, result)
        elif node and self._bus.is_shared:
            await self._publish_to_node(node, RelayedResult(machine_id, encode(result)))

    async def _claim(self, machine_id: str, connection: int) -> None:
        """Close the machine's older sockets on all other nodes."""
        reason = "A newer connection of this machine took over"
        await self._publish(machine_id, CloseConnection(CloseCode.REPLACED, reason, connection))

    async def _report_loss(self, machine_id: str, lost: _LocalConnection) -> None:
        """Notify the nodes with commands in flight on a socket that it is lost."""
        for node in {_node_of(command_id) for command_id in lost.in_flight} - {self.node}:
            await self._publish_to_node(node, ConnectionLost(machine_id))

    async def _publish_to_node(self, node: str, message: RelayedResult | ConnectionLost) -> None:
        """Publish a message that a node waits for, retrying for a few seconds.

        A command whose result is dropped here fails at its requester after `lost_after` seconds.
        """
        if await self._publish(_channel(node), message):
            return
        size = _RETRY_BYTES + (len(message.frame) if isinstance(message, RelayedResult) else 0)
        if self._retried_bytes + size > self._max_retried_bytes:
            _log.warning("message to another node dropped: too many wait", node=node, size=size)
            return
        self._retried_bytes += size
        self._start(self._retry(node, message, size))

    async def _retry(self, node: str, message: RelayedResult | ConnectionLost, size: int) -> None:
        try:
            for _ in range(_SEND_RETRIES):
                await asyncio.sleep(self._retry_interval)
                if await self._publish(_channel(node), message):
                    return
        finally:
            self._retried_bytes -= size

    async def _publish(self, channel: str, message: Message) -> bool:
        """Publish a message; return whether that succeeded.

        What fails here is repaired once the bus is back: every node then reconciles its sockets
        with the database.
        """
        try:
            await self._bus.publish(channel, _encode(message))
        except BusDown as error:
            _log.warning("publishing to other nodes failed", channel=channel, error=str(error))
            return False
        return True

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="relay")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _send(socket: Socket, frame: Command | Cancel) -> bool:
    try:
        await socket.send(frame)
    except ConnectionError:
        return False
    return True


def _encode(message: Message) -> bytes:
    return _encoder.encode(message)


def _channel(node: str) -> str:
    return f"node {node}"


def _node_of(command_id: str) -> str:
    """Return the node that requested a command; empty for an id that is not ours."""
    node = command_id.rpartition("@")[2]
    return node if len(node) == 12 and node.isalnum() else ""  # see `token_hex(6)` above
