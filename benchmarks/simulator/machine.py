"""One simulated machine: the real agent's `MachineLink` and outbox on sockets of this process."""

import asyncio
import random
import time
from typing import TYPE_CHECKING, Final, cast

import msgspec
from msgspec import Raw
from tests.contract.link.memory_log import MemoryLog
from tests.rig.samples import MACHINE, PROVIDER, STATE, session
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from benchmarks import scripted_machine
from benchmarks.simulator import Enrolled
from outrider import __version__
from outrider.contract.commands import CommandType
from outrider.contract.events import EventName
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    Command,
    CommandResult,
    FromDaemon,
    Snapshot,
    encode,
)
from outrider.contract.link.machine import (
    Close,
    CommandReceived,
    CommandsLost,
    Connect,
    LinkRefused,
    MachineLink,
    SendHello,
    Welcomed,
)
from outrider.contract.link.outbox import Outbox
from outrider.contract.providers import BUILT_IN_TYPES
from outrider.contract.resources import Session, Workspace
from outrider.daemon.link import SocketTiming

if TYPE_CHECKING:
    from benchmarks.simulator.__main__ import Fleet

_TIMING: Final = SocketTiming()
"""The intervals of the real machine agent."""

_PROVIDERS: Final = [
    msgspec.structs.replace(PROVIDER, type=kind, display_name=name)
    for kind, (category, name) in BUILT_IN_TYPES.items()
    if category == "cli"
]
_GIGABYTE: Final = 10**9


class SimulatedMachine:
    """A machine with two sessions and five providers.

    Its sessions differ from those of every other machine, as real ones do.
    """

    def __init__(self, enrolled: Enrolled, number: int, fleet: "Fleet") -> None:
        self.daemon_id = enrolled.daemon_id
        self.token = enrolled.token
        self.can_reconnect = True
        self._number = number
        self._boot = time.time() - 86_400 * (1 + number % 90)
        self._sessions = [_session("claude-code", number), _session("codex", number)]
        self._fleet = fleet
        self._log = MemoryLog()
        self._outbox = Outbox(self._log)
        self._link = MachineLink(
            self._outbox, version=__version__, describe=self._snapshot, timing=_TIMING
        )
        self._sockets: dict[int, Socket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = False
        self._lost_at: float | None = None

    @property
    def waiting_events(self) -> int:
        """How many events the service has not stored yet."""
        return len(self._log.waiting)

    def connect(self) -> None:
        """Make the first connection."""
        self._link.start()
        self._update()

    def drop(self) -> None:
        """Lose the connection, without a close frame."""
        if (socket := self._sockets.get(self._link.current or 0)) is not None:
            socket.abort()

    def turn(self) -> None:
        """Begin an agent's turn, or end it."""
        agent = self._sessions[0]
        starts = agent.status == "idle"
        agent.status = "generating" if starts else "idle"
        agent.last_activity_at = int(time.time() * 1000)
        event = scripted_machine.event(self.daemon_id, agent)
        if starts:
            event.event, event.duration = EventName.GENERATING_STARTED, None
        self._outbox.session_changed(agent)
        self._outbox.event(event)
        self._update()

    def socket_opened(self, number: int, socket: "Socket") -> None:
        """Use a new connection."""
        self._sockets[number] = socket
        self._link.connection_opened(number, time.monotonic())
        self._update()

    def socket_received(self, number: int, message: str) -> None:
        """Handle a frame of the service."""
        self._link.receive(number, message, time.monotonic())
        self._update()

    def socket_closed(self, number: int, code: int | None) -> None:
        """Handle the end of a connection, or that it could not be opened."""
        self._sockets.pop(number, None)
        self._link.connection_lost(number, time.monotonic(), code)
        self._update()

    def _tick(self) -> None:
        self._timer = None
        self._link.tick(time.monotonic())
        self._update()

    def _update(self) -> None:
        """Carry out what the link returns after a report to it, and send what waits."""
        for action in self._link.actions():
            match action:
                case Connect(number, delay) if self.can_reconnect:
                    asyncio.get_running_loop().call_later(delay, self._fleet.dial, self, number)
                case SendHello(number, hello) if number in self._sockets:
                    self._sockets[number].send(hello)
                case Close(number, code, reason):
                    if (socket := self._sockets.pop(number, None)) is not None:
                        socket.close(code, reason)
        for event in self._link.events():
            match event:
                case Welcomed() if not self._is_connected:  # else it has moved to another node
                    self._is_connected = True
                    away = None if self._lost_at is None else time.monotonic() - self._lost_at
                    self._fleet.connected(self, away)
                case CommandReceived(command):
                    self._answer(command)
                case CommandsLost() if self._is_connected:
                    self._is_connected, self._lost_at = False, time.monotonic()
                    self._fleet.lost()
                case LinkRefused():
                    self._fleet.status.refused += 1
        while (batch := self._link.next_batch(time.monotonic())) is not None:
            number, frames = batch
            for frame in frames:
                self._sockets[number].send(frame)
            self._link.batch_written(time.monotonic())
        self._schedule()

    def _schedule(self) -> None:
        """Call `tick` when the link's next deadline is due."""
        deadline, now = self._link.deadline(time.monotonic()), time.monotonic()
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            # A timer that is too early does no harm: `_tick` sets the next one.
            if deadline is None or self._timer.when() <= loop.time() + deadline - now:
                return
            self._timer.cancel()
        if deadline is not None:
            self._timer = loop.call_later(max(0.0, deadline - now), self._tick)

    def _answer(self, command: Command) -> None:
        result = self._result(command)
        if delay := self._fleet.delay():
            asyncio.get_running_loop().call_later(delay, self._send_late, result)
        else:
            self._outbox.result(result)

    def _send_late(self, result: CommandResult) -> None:
        self._outbox.result(result)
        self._update()

    def _result(self, command: Command) -> CommandResult:
        """Return the result of a command: the machine knows an agent's status and a chat."""
        if command.command != CommandType.AGENT_STATUS:
            return scripted_machine.answer(command)
        agent = self._sessions[0]
        state = STATE | {
            "id": f"{self.daemon_id}:session:{agent.id}",
            "sessionId": agent.id,
            "status": agent.status,
            "title": agent.title,
            "updatedAt": agent.last_activity_at,
        }
        return CommandResult(id=command.id, result=Raw(msgspec.json.encode(state)))

    def _snapshot(self) -> Snapshot:
        load = round(random.uniform(0.05, 4), 2)
        machine = msgspec.structs.replace(
            MACHINE,
            hostname=f"worker-{self._number:05}",
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(time.time() - self._boot, 1),
        )
        return Snapshot(machine=machine, providers=_PROVIDERS, sessions=self._sessions)


def _session(agent: str, number: int) -> Session:
    now = int(time.time() * 1000)
    return session(
        type=agent,
        title=f"Move the shop to the new tax table ({number})",
        workspace=Workspace(path=f"/home/dev{number}/shop", name="shop"),
        created_at=now,
        last_activity_at=now,
    )


class Socket(asyncio.Protocol):
    """A connection of a machine: the sans-I/O protocol of `websockets` on a bare transport.

    It is one object without a task of its own, so that one process can hold many thousands.
    """

    __slots__ = ("_machine", "_number", "_pings", "_timer", "_transport", "_websocket")

    def __init__(self, websocket: ClientProtocol, number: int, machine: SimulatedMachine) -> None:
        self._websocket = websocket
        self._number = number
        self._machine = machine
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pings = 0
        """Pings without a pong."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request to upgrade."""
        self._transport = cast("asyncio.Transport", transport)
        request = self._websocket.connect()
        request.headers["Authorization"] = f"Bearer {self._machine.token}"
        request.headers["User-Agent"] = f"outrider/{__version__}"
        self._websocket.send_request(request)
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_TIMING.open_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        """Pass messages to the machine, and answer pings."""
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._upgraded()
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._machine.socket_received(self._number, bytes(event.data).decode())
            elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
                self._pings = 0
        self._flush()
        if self._transport is not None and self._websocket.close_expected():
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Report the end to the machine."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        close = self._websocket.close_rcvd
        self._machine.socket_closed(self._number, None if close is None else close.code)

    def send(self, frame: FromDaemon) -> None:
        """Send a frame; do nothing if the connection has ended."""
        if self._transport is not None:
            self._websocket.send_text(encode(frame))
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""
        if self._transport is not None:
            self._websocket.send_close(code, reason)
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    def _upgraded(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(self._websocket.handshake_exc, InvalidHandshake):
            self.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_TIMING.ping_interval, self._ping)
        self._machine.socket_opened(self._number, self)

    def _ping(self) -> None:
        """Send a ping; drop the connection if the last one has no pong."""
        if self._pings:
            self.abort()
            return
        self._pings += 1
        self._websocket.send_ping(b"")
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_TIMING.ping_interval, self._ping)

    def _flush(self) -> None:
        output = b"".join(self._websocket.data_to_send())
        if output and self._transport is not None:
            self._transport.write(output)


async def connect(url: str, number: int, machine: SimulatedMachine) -> None:
    """Open a connection; `socket_opened` or `socket_closed` of its machine follows.

    Raises:
        OSError: nothing listens there, or nothing answered in time.
    """
    uri = parse_uri(url)
    websocket = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
    async with asyncio.timeout(_TIMING.open_timeout):
        await asyncio.get_running_loop().create_connection(
            lambda: Socket(websocket, number, machine), uri.host, uri.port
        )
