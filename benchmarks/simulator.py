"""Thousands of simulated machines on one event loop, in a thread of the benchmark.

    simulated, Fleet   the thread; the machines, their faults, and what has happened to them
    SimulatedMachine   two sessions that change, behind the real agent's `MachineLink` and outbox
    Socket             a connection: the sans-I/O protocol of `websockets` on a bare transport

A machine is some objects and timers without a task of its own, so that one loop can hold them all.
"""

import asyncio
import gc
import math
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec
import uvloop
from tests.contract.link.memory_log import MemoryLog
from tests.rig.patience import eventually
from tests.rig.samples import MACHINE, PROVIDER, session
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI, parse_uri

from benchmarks import scripted_machine
from benchmarks.processes import LOADING, BenchmarkError
from benchmarks.service import Server
from outrider import __version__
from outrider.contract.enrollment import Enrolled
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
from outrider.machine.link.connection import SocketTiming

_AT_ONCE: Final = 200
"""Machines that connect for the first time at the same time; when they reconnect, all do."""

_CONNECT_SECONDS: Final = 300.0
_LATE_SECONDS: Final = 5.0
_TIMING: Final = SocketTiming()
"""The intervals of the real machine agent."""

_PROVIDERS: Final = [
    msgspec.structs.replace(PROVIDER, type=kind, display_name=name)
    for kind, (category, name) in BUILT_IN_TYPES.items()
    if category == "cli"
]
_GIGABYTE: Final = 10**9


@contextmanager
def simulated(machines: Sequence[Enrolled], *servers: Server) -> Iterator["Fleet"]:
    """Provide a fleet of machines, none connected yet, for the length of a block."""
    gc.disable()  # a collection would visit every machine, while commands wait
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # ends what still runs
        loop = runner.get_loop()

        def run() -> None:
            if LOADING:
                os.sched_setaffinity(0, LOADING)  # of this thread
            loop.run_forever()

        thread = threading.Thread(target=run, name="machines", daemon=True)
        thread.start()
        try:
            yield Fleet(machines, [parse_uri(server.websocket_url) for server in servers], loop)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            gc.enable()


@dataclass
class FleetStatus:
    """The state of a fleet: `connected` is of now, the other counts are since the start.

    `closed` counts lost connections. `longest_away` is the longest time in seconds for which a
    machine that reconnected was disconnected.
    """

    connected: int = 0
    refused: int = 0
    answered: int = 0
    late: int = 0
    closed: int = 0
    reconnected: int = 0
    longest_away: float = 0.0


class Fleet:
    """Simulated machines. The methods are for the benchmark's thread.

    Each connection tries the `addresses` in a random order, like a load balancer.

    Attributes:
        away: the ids of the machines that do not reconnect once their connection ends.
        late_share: the share of the command results that are late, by 5 s.
    """

    def __init__(
        self,
        machines: Sequence[Enrolled],
        addresses: list[WebSocketURI],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._machines = [
            SimulatedMachine(machine, number, self) for number, machine in enumerate(machines)
        ]
        self._started = 0
        self.addresses = addresses
        self.away: Collection[str] = ()
        self.late_share = 0.0
        self.status = FleetStatus()

    def connect(self, count: int) -> float:
        """Connect machines, 200 at a time, until `count` are; return how long that took."""
        began = time.perf_counter()
        new = iter(self._machines[self._started : count])
        self._started = count

        async def connect_one_after_another() -> None:
            for machine in new:
                await machine.connect()

        async def connect() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(connect_one_after_another())

        self._run(connect(), _CONNECT_SECONDS)
        return time.perf_counter() - began

    @contextmanager
    def at_work(self, turns: float, drops: float = 0, late_share: float = 0) -> Iterator[None]:
        """Keep random machines at work in this block.

        Args:
            turns: how many turns of agents begin or end per second.
            drops: how many sockets are lost per second.
        """

        async def repeat(per_second: float, action: Callable[[SimulatedMachine], None]) -> None:
            while per_second:
                await asyncio.sleep(random.expovariate(per_second))
                action(random.choice(self._machines))

        self.late_share = late_share
        work = repeat(turns, SimulatedMachine.turn), repeat(drops, SimulatedMachine.drop)
        repeated = [asyncio.run_coroutine_threadsafe(one, self._loop) for one in work]
        try:
            yield
        finally:
            self.late_share = 0
            for one in repeated:
                if not one.cancel():
                    one.result()  # raise what ended it

    def wait_until_connected(self, count: int, seconds: float, *, stored: bool = False) -> None:
        """Wait until `count` machines are connected; with `stored`, and all their events stored.

        Raises:
            BenchmarkError: they are not within `seconds`.
        """

        def is_so() -> bool:
            return self.status.connected >= count and not (
                stored and any(machine.has_events for machine in self._machines)
            )

        self._run(eventually(is_so, math.inf), seconds)

    def _run(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)
        except TimeoutError as error:
            raise BenchmarkError(f"the fleet after {seconds:g} s: {self.status}") from error


class SimulatedMachine:
    """A machine with two sessions and five providers, which answers as the scripted one does.

    Its sessions differ from those of every other machine, as real ones do.
    """

    def __init__(self, enrolled: Enrolled, number: int, fleet: Fleet) -> None:
        self.token = enrolled.token
        self._daemon_id = enrolled.daemon_id
        self._number = number
        self._sessions = [_session("claude-code", number), _session("codex", number)]
        self._fleet = fleet
        self._log = MemoryLog()
        self._outbox = Outbox(self._log)
        self._link = MachineLink(
            self._outbox, version=__version__, describe=self._snapshot, timing=_TIMING
        )
        self._sockets: dict[int, Socket] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_at = math.inf
        self._connected = asyncio.Event()
        self._lost_at: float | None = None

    @property
    def has_events(self) -> bool:
        """Whether there are events that the service has not stored yet."""
        return bool(self._log.waiting)

    async def connect(self) -> None:
        """Make the first connection; return once the machine is welcome."""
        self._link.start()
        self._update()
        await self._connected.wait()

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
        event = scripted_machine.event(self._daemon_id, agent)
        if starts:
            event.event, event.duration = EventName.GENERATING_STARTED, None
        self._outbox.session_changed(agent)
        self._outbox.event(event)
        self._update()

    def socket_opened(self, number: int, socket: "Socket") -> None:
        """Use a new connection."""
        self._sockets[number] = socket
        self._link.connection_opened(number, _now())
        self._update()

    def socket_received(self, number: int, message: str) -> None:
        """Handle a frame of the service."""
        self._link.receive(number, message, _now())
        self._update()

    def socket_closed(self, number: int, code: int | None) -> None:
        """Handle the end of a connection, or that it could not be opened."""
        self._sockets.pop(number, None)
        self._link.connection_lost(number, _now(), code)
        self._update()

    async def _dial(self, number: int, delay: float) -> None:
        """Open a socket; it ends in `socket_opened` or `socket_closed`."""
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        for uri in random.sample(self._fleet.addresses, len(self._fleet.addresses)):
            socket = partial(Socket, uri, number, self)
            with suppress(OSError):  # nothing listens there, or nothing answered in time
                async with asyncio.timeout(_TIMING.open_timeout):
                    await loop.create_connection(socket, uri.host, uri.port)
                return
        self.socket_closed(number, None)

    def _update(self) -> None:
        """Carry out what the link returns after a report to it, and send what waits."""
        for action in self._link.actions():
            match action:
                case Connect(number, delay) if self._daemon_id not in self._fleet.away:
                    self._dialling = asyncio.create_task(self._dial(number, delay))
                case SendHello(number, hello) if number in self._sockets:
                    self._sockets[number].send(hello)
                case Close(number, code, reason):
                    if (socket := self._sockets.pop(number, None)) is not None:
                        socket.close(code, reason)
        for event in self._link.events():
            match event:
                case Welcomed():
                    self._welcomed()
                case CommandReceived(command):
                    self._answer(command)
                case CommandsLost() if self._connected.is_set():
                    self._connected.clear()
                    self._lost_at = _now()
                    self._fleet.status.connected -= 1
                    self._fleet.status.closed += 1
                case LinkRefused():
                    self._fleet.status.refused += 1
        while (batch := self._link.next_batch(_now())) is not None:
            number, frames = batch
            for frame in frames:
                self._sockets[number].send(frame)
            self._link.batch_written(_now())
        self._schedule()

    def _schedule(self) -> None:
        """Call `_tick` when the link's next deadline is due."""
        deadline = self._link.deadline(_now())
        # A timer that is too early does no harm: `_tick` sets the next one.
        if deadline is not None and deadline < self._tick_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)
            self._tick_at = deadline

    def _tick(self) -> None:
        self._tick_at = math.inf
        self._link.tick(_now())
        self._update()

    def _welcomed(self) -> None:
        if self._connected.is_set():
            return  # it has moved to another node
        self._connected.set()
        status = self._fleet.status
        status.connected += 1
        if self._lost_at is not None:
            status.reconnected += 1
            status.longest_away = max(status.longest_away, _now() - self._lost_at)

    def _answer(self, command: Command) -> None:
        status, result = self._fleet.status, scripted_machine.answer(command)
        status.answered += 1
        if random.random() < self._fleet.late_share:
            status.late += 1
            asyncio.get_running_loop().call_later(_LATE_SECONDS, self._send_late, result)
        else:
            self._outbox.result(result)

    def _send_late(self, result: CommandResult) -> None:
        self._outbox.result(result)
        self._update()

    def _snapshot(self) -> Snapshot:
        load = round(random.uniform(0.05, 4), 2)
        machine = msgspec.structs.replace(
            MACHINE,
            hostname=f"worker-{self._number:05}",
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(_now() + self._number, 1),
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


def _now() -> float:
    return asyncio.get_running_loop().time()


class Socket(asyncio.Protocol):
    """A connection of a machine, which pings the service as the real machine agent does."""

    __slots__ = ("_is_pinging", "_machine", "_number", "_timer", "_transport", "_websocket")

    def __init__(self, uri: WebSocketURI, number: int, machine: SimulatedMachine) -> None:
        self._websocket = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._number = number
        self._machine = machine
        self._is_pinging = False
        """A ping has been sent, and no pong has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request to upgrade."""
        self._transport = cast("asyncio.Transport", transport)
        request = self._websocket.connect()
        request.headers["Authorization"] = f"Bearer {self._machine.token}"
        request.headers["User-Agent"] = f"outrider/{__version__}"
        self._websocket.send_request(request)
        self._flush()
        self._call_later(_TIMING.open_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        """Pass messages to the machine, and answer pings."""
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._answered()
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._machine.socket_received(self._number, bytes(event.data).decode())
            elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
                self._is_pinging = False
        self._flush()
        if self._websocket.close_expected():
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Report the end to the machine."""
        self._timer.cancel()
        close = self._websocket.close_rcvd
        self._machine.socket_closed(self._number, None if close is None else close.code)

    def send(self, frame: FromDaemon) -> None:
        """Send a frame; do nothing if the connection is closing."""
        if self._websocket.state is State.OPEN:
            self._websocket.send_text(encode(frame))
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""
        if self._websocket.state is State.OPEN:
            self._websocket.send_close(code, reason)
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection without a close frame."""
        self._transport.abort()

    def _answered(self) -> None:
        """Use the connection, if the service has accepted it."""
        self._timer.cancel()
        if self._websocket.handshake_exc is not None:
            self.abort()
            return
        self._call_later(_TIMING.ping_interval, self._ping)
        self._machine.socket_opened(self._number, self)

    def _ping(self) -> None:
        """Send a ping; drop the connection if the last one has no pong."""
        if self._is_pinging:
            self.abort()
            return
        self._is_pinging = True
        self._websocket.send_ping(b"")
        self._flush()
        self._call_later(_TIMING.ping_interval, self._ping)

    def _call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, action)

    def _flush(self) -> None:
        output = b"".join(self._websocket.data_to_send())
        if output and not self._transport.is_closing():
            self._transport.write(output)
