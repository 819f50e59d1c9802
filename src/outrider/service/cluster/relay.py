"""Relays commands from the node that has the request to the node that has the machine's socket.

    node A                                               node B
    Dispatcher ─ send ─▶ CommandRelay ─ ForwardCommand ─▶ CommandRelay ─▶ socket
                                        (machine's topic)
    Dispatcher ◀─────── CommandRelay ◀─ RelayedResult ── CommandRelay ◀─ socket
                                        (topic of node A)

A node subscribes to the topic of each machine whose socket it has, so the number of subscribers
that receive a command says whether any node has the machine. Results return on the requesting
node's topic, which is part of the command's id: whichever node receives a result knows where it
belongs.

Crash windows. A node may die or freeze with commands in flight. Every second each node therefore
sends the ids of the commands still in flight on its machines to the nodes that requested them
(`InFlight`). A command that no node has reported for `lost_after` seconds fails with a 503 at its
requester (`Lifetimes`).

A command in flight belongs to the node that holds the machine's socket. When the machine moves to
another node, its old node hands its commands over (`Handover`); when the socket is lost, the
requesting nodes are notified (`ConnectionLost`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import NamedTuple, Protocol

import structlog
from msgspec import structs

from outrider.contract.errors import ApiError
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
from outrider.service.cluster.bus import BusDown
from outrider.service.cluster.messages import (
    CloseConnection,
    ConnectionLost,
    ForwardCommand,
    Handover,
    InFlight,
    Message,
    RelayedResult,
)
from outrider.service.cluster.transport import Lifetimes, Transport
from outrider.tracing import OFF, Tracing

_log = structlog.get_logger(__name__)


class Socket(Protocol):
    """This node's end of a machine's connection."""

    async def send(self, frame: Command | Cancel) -> None:
        """Send a frame; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed.
        """


CloseHandler = Callable[[str, CloseCode, str, int | None], None]
"""Closes a machine's socket on this node because another node asks for it.

It gets the machine's id, the code, the reason, and the number of a newer connection; with a number
only an older socket is to be closed.
"""


class _LocalConnection:
    """A machine's socket on this node, and the ids of the commands in flight on it."""

    def __init__(self, socket: Socket, connection: int) -> None:
        self.socket = socket
        self.connection = connection
        self.in_flight: set[str] = set()
        self.in_flight_before: frozenset[str] = frozenset()
        """Those of the last report. Most are answered within a second and never reported."""
        self.early: set[str] = set()
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
        self.early.add(command_id)
        return True


class _Pending(NamedTuple):
    """A command of this node that has no result yet."""

    machine_id: str
    future: asyncio.Future[CommandResult]


class CommandRelay:
    """Sends commands to machines, wherever their sockets are, and returns the results.

    Args:
        close_connection: closes a machine's socket on this node.
        report_interval: seconds between reports of commands in flight.
        lost_after: seconds without a report after which a command is lost.
        tracing: begins the spans of commands that come from other nodes.
    """

    def __init__(
        self,
        transport: Transport,
        close_connection: CloseHandler,
        *,
        report_interval: float = 1.0,
        lost_after: float = 5.0,
        tracing: Tracing = OFF,
    ) -> None:
        self._transport = transport
        self._report_interval = report_interval
        self._tracing = tracing
        self._close_connection = close_connection
        self._connections: dict[str, _LocalConnection] = {}
        self._pending: dict[str, _Pending] = {}
        self._lifetimes = Lifetimes(round(lost_after / report_interval), self._lose)
        self._tasks: set[asyncio.Task[None]] = set()

    def new_command_id(self) -> str:
        """Return an id for a command; its result finds its way to this node by it."""
        return f"{new_id('cmd')}@{self._transport.node}"

    def expect(self, machine_id: str, command_id: str) -> asyncio.Future[CommandResult]:
        """Return the future of a command's result, which may fail with an `ApiError`.

        Call it before the command is sent, and `completed` in the end.
        """
        future: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._pending[command_id] = _Pending(machine_id, future)
        self._lifetimes.add(command_id)
        return future

    def pending(self) -> list[asyncio.Future[CommandResult]]:
        """Return the futures of this node's commands that have no result yet."""
        return [pending.future for pending in self._pending.values()]

    def connection_lost(self, machine_id: str) -> None:
        """Fail all commands in flight on a machine whose socket is lost, with a 503."""
        for command_id, pending in self._pending.items():
            if pending.machine_id == machine_id:
                self._lose(command_id)

    async def register(self, machine_id: str, socket: Socket, connection: int) -> None:
        """Make this socket the machine's current connection; older ones on any node are closed."""
        # Before the subscription: a command that arrives meanwhile already uses this socket.
        older = self._connections.get(machine_id)
        self._connections[machine_id] = _LocalConnection(socket, connection)
        if older is not None:
            await self._report_loss(machine_id, older)
        elif self._transport.is_shared:
            await self._transport.subscribe(machine_id, partial(self._on_machine, machine_id))
        if self._transport.is_shared:
            # Only now: the claim ends older sockets, whose nodes hand their commands over here.
            await self._claim(machine_id, connection)

    async def unregister(self, machine_id: str, socket: Socket, *, has_moved: bool) -> None:
        """Remove the socket, unless a newer one has replaced it.

        Args:
            has_moved: the machine has another socket by now, on which its results will come.
        """
        current = self._connections.get(machine_id)
        if current is None or current.socket is not socket:
            return
        # Unsubscribed before the commands are handed over: otherwise a command published in between
        # would be counted as received by this node, and be dropped.
        del self._connections[machine_id]
        if self._transport.is_shared:
            await self._transport.unsubscribe(machine_id)
        if not has_moved:
            await self._report_loss(machine_id, current)
        elif current.in_flight and self._transport.is_shared:
            await self._send_once(machine_id, Handover(list(current.in_flight)))

    async def send(self, machine_id: str, frame: Command | Cancel) -> bool:
        """Send a frame to a machine; False if no node has a socket of it.

        Raises:
            BusDown: this node has none, and the other nodes cannot be reached.
        """
        current = self._connections.get(machine_id)
        if current is not None:
            if isinstance(frame, Command):
                current.in_flight.add(frame.id)
            return await _send(current.socket, frame)
        if not self._transport.is_shared:
            return False
        # A command whose result would be lost is not sent: the caller may repeat it without harm.
        if not self._transport.is_up:
            raise BusDown("The result would not be received", may_be_sent=False)
        return await self._transport.publish(machine_id, ForwardCommand(encode(frame))) > 0

    def in_flight(self, machine_id: str) -> int:
        """Return how many commands, of any node, are in flight on a machine connected here.

        For a machine of another node it is 0: that node counts and enforces the limit.
        """
        current = self._connections.get(machine_id)
        return 0 if current is None else len(current.in_flight)

    def completed(self, machine_id: str, command_id: str) -> None:
        """Stop tracking a command of this node: it has a result, or its client has disconnected."""
        self._pending.pop(command_id, None)
        self._lifetimes.remove(command_id)
        current = self._connections.get(machine_id)
        if current is not None:
            current.in_flight.discard(command_id)

    async def deliver_result(self, machine_id: str, result: CommandResult) -> None:
        """Pass a machine's result to the node that requested it; drop one that none requested."""
        current = self._connections.get(machine_id)
        if current is not None:
            if _node_of(result.id) != self._transport.node and not current.expects(result.id):
                return
            current.in_flight.discard(result.id)
        await self._pass_result(machine_id, result)

    async def close_elsewhere(self, machine_id: str, code: CloseCode, reason: str) -> None:
        """Close the machine's socket if another node has it."""
        if self._transport.is_shared and machine_id not in self._connections:
            await self._send_once(machine_id, CloseConnection(code, reason, None))

    async def run(self) -> None:
        """Receive messages of other nodes and report commands in flight, until cancelled."""
        if not self._transport.is_shared:
            return
        try:
            async with self._transport.subscribed(_topic(self._transport.node), self._on_node):
                while True:
                    await asyncio.sleep(self._report_interval)
                    await self._report_in_flight()
                    self._lifetimes.tick()
        finally:
            for task in self._tasks:
                task.cancel()

    def bus_down(self) -> None:
        """Fail the commands sent to other nodes: their results may have been lost."""
        for command_id, pending in self._pending.items():
            if pending.machine_id not in self._connections:
                self._lose(command_id)

    async def _report_in_flight(self) -> None:
        """Report to the requesting nodes which of their commands are still in flight here."""
        reports: defaultdict[str, list[str]] = defaultdict(list)
        for current in self._connections.values():
            if not current.in_flight and not current.in_flight_before:
                continue
            # Only what was in flight at the last report too: most commands need no report at all.
            for command_id in current.in_flight & current.in_flight_before:
                reports[_node_of(command_id)].append(command_id)
            current.in_flight_before = frozenset(current.in_flight)
        self._lifetimes.reported(reports.pop(self._transport.node, []))
        for node, commands in reports.items():
            await self._send_once(_topic(node), InFlight(commands))

    def _on_machine(self, machine_id: str, message: Message) -> None:
        """Handle a message on the topic of a machine that is connected here."""
        current = self._connections.get(machine_id)
        match message:
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

    def _on_node(self, message: Message) -> None:
        """Handle a message on this node's own topic."""
        match message:
            case RelayedResult(machine, frame):
                result = decode_from_daemon(frame)
                if isinstance(result, CommandResult):
                    self._resolve(machine, result)
            case ConnectionLost(machine):
                self.connection_lost(machine)
            case InFlight(commands):
                self._lifetimes.reported(commands)

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
        if node == self._transport.node:
            self._resolve(machine_id, result)
        elif node and self._transport.is_shared:
            await self._transport.send(_topic(node), RelayedResult(machine_id, encode(result)))

    def _resolve(self, machine_id: str, result: CommandResult) -> None:
        """Complete a command of this node. A late result is dropped."""
        pending = self._pending.get(result.id)
        if pending is None or pending.machine_id != machine_id:
            _log.debug("late result dropped", machine=machine_id, command=result.id)
        elif not pending.future.done():
            pending.future.set_result(result)

    def _lose(self, command_id: str) -> None:
        """Fail a command of this node: it will not be answered."""
        future = self._pending[command_id].future
        if not future.done():
            text = (
                "The machine's connection dropped before it answered; "
                "what was asked may have been done. Try again in a moment"
            )
            future.set_exception(ApiError(503, text))

    async def _claim(self, machine_id: str, connection: int) -> None:
        """Close the machine's older sockets on all other nodes."""
        reason = "A newer connection of this machine took over"
        await self._send_once(machine_id, CloseConnection(CloseCode.REPLACED, reason, connection))

    async def _report_loss(self, machine_id: str, lost: _LocalConnection) -> None:
        """Notify the nodes with commands in flight on a socket that it is lost."""
        nodes = {_node_of(command_id) for command_id in lost.in_flight}
        for node in nodes - {self._transport.node}:
            await self._transport.send(_topic(node), ConnectionLost(machine_id))

    async def _send_once(self, topic: str, message: Message) -> None:
        """Send a message without a retry.

        What fails here is repaired once the bus is back: every node then reconciles its sockets
        with the database.
        """
        await self._transport.send(topic, message, retries=0)

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


def _topic(node: str) -> str:
    return f"node {node}"


def _node_of(command_id: str) -> str:
    """Return the node that requested a command; empty for an id that is not ours."""
    node = command_id.rpartition("@")[2]
    return node if len(node) == 12 and node.isalnum() else ""  # as `Transport.node`
