"""One simulated machine: the real agent's `MachineLink` and outbox on sockets of this process."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Raw
from tests.contract.link.memory_log import MemoryLog
from tests.rig.samples import STATE, session

from benchmarks import scripted_machine
from benchmarks.scripted_machine import MACHINE, PROVIDERS, answer
from benchmarks.simulator.socket import TIMING, Socket
from outrider import __version__
from outrider.contract.commands import CommandType
from outrider.contract.events import EventName
from outrider.contract.frames import Command, CommandResult, Snapshot
from outrider.contract.link.machine import (
    Close,
    CommandReceived,
    CommandsLost,
    Connect,
    MachineLink,
    Refused,
    SendHello,
    Welcomed,
)
from outrider.contract.link.outbox import Outbox
from outrider.contract.resources import Machine, Session, Workspace

_PROVIDERS: Final = PROVIDERS[:5]

_TITLES: Final = (
    "Test the discount that applies above a hundred euros",
    "Move the shop to the new tax table",
    "Find out why the nightly build is slow",
    "Add a page for the terms of delivery",
)
_PROJECTS: Final = ("shop", "ledger", "website", "firmware", "notes")

_GIGABYTE: Final = 10**9


class Enrolled(msgspec.Struct, frozen=True):
    """A machine that the service knows: its id and the token that opens its socket."""

    daemon_id: str
    token: str


class Observer(Protocol):
    """Counts what happens to the machines of a fleet."""

    def connected(self, machine: "SimulatedMachine", seconds_away: float | None) -> None:
        """Count a welcome; `seconds_away` is how long it had been disconnected, if it was."""

    def lost(self, code: int | None) -> None:
        """Count a machine's loss of its connection, with the close code if there was one."""

    def refused(self) -> None:
        """Count a machine that the service refused permanently."""

    def answered(self) -> None:
        """Count an answer to a command."""

    def delay(self) -> float:
        """Return how many seconds to delay the next answer."""


class SimulatedMachine:
    """A machine with two sessions and five providers.

    Its sessions differ from those of every other machine, as real ones do.

    Args:
        dial: opens a socket for this machine under a number, which ends in `socket_opened` or
            `socket_closed`.
    """

    def __init__(
        self,
        enrolled: Enrolled,
        number: int,
        dial: Callable[["SimulatedMachine", int], None],
        observer: Observer,
    ) -> None:
        self.daemon_id = enrolled.daemon_id
        self.token = enrolled.token
        self.can_reconnect = True
        self._hostname = f"worker-{number:05}"
        self._boot = time.time() - 86_400 * (1 + number % 90)
        self._sessions = [_session("claude-code", number), _session("codex", number)]
        self._dial = dial
        self._observer = observer
        self._log = MemoryLog()
        self._outbox = Outbox(self._log)
        self._link = MachineLink(
            self._outbox, version=__version__, describe=self._snapshot, timing=TIMING
        )
        self._sockets: dict[int, Socket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = False
        self._lost_at: float | None = None
        self._close_code: int | None = None

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

    def socket_opened(self, number: int, socket: Socket) -> None:
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
        self._close_code = code
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
                    asyncio.get_running_loop().call_later(delay, self._dial, self, number)
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
                case CommandsLost() if self._is_connected:
                    self._is_connected, self._lost_at = False, time.monotonic()
                    self._observer.lost(self._close_code)
                case Refused():
                    self._observer.refused()
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

    def _welcomed(self) -> None:
        if self._is_connected:
            return  # it has moved to another node
        self._is_connected = True
        lost_at, self._lost_at = self._lost_at, None
        self._observer.connected(self, None if lost_at is None else time.monotonic() - lost_at)

    def _answer(self, command: Command) -> None:
        self._observer.answered()
        result = self._result(command)
        if delay := self._observer.delay():
            asyncio.get_running_loop().call_later(delay, self._send_late, result)
        else:
            self._outbox.result(result)

    def _send_late(self, result: CommandResult) -> None:
        self._outbox.result(result)
        self._update()

    def _result(self, command: Command) -> CommandResult:
        """Return the result of a command: the machine knows an agent's status and a chat."""
        if command.command != CommandType.AGENT_STATUS:
            return answer(command)
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
        return Snapshot(machine=self._machine(), providers=_PROVIDERS, sessions=self._sessions)

    def _machine(self) -> Machine:
        load = round(random.uniform(0.05, 4), 2)
        return msgspec.structs.replace(
            MACHINE,
            hostname=self._hostname,
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(time.time() - self._boot, 1),
        )


def _session(agent: str, number: int) -> Session:
    now = int(time.time() * 1000)
    project = _PROJECTS[number % len(_PROJECTS)]
    return session(
        type=agent,
        title=f"{_TITLES[number % len(_TITLES)]} ({number})",
        workspace=Workspace(path=f"/home/dev{number}/{project}", name=project),
        model="claude-sonnet" if agent == "claude-code" else "gpt-5",
        created_at=now,
        last_activity_at=now,
    )
