"""What is known of each machine that is connected, or dropped less than a grace period ago.

A machine that stays away longer is offline: only the database knows it then. Which machines
were connected is in the database too, so that a restart of the service begins a grace
period for each of them.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
import structlog

from outrider.cloud.store import machines
from outrider.cloud.store.database import Database
from outrider.contract.errors import OutriderError
from outrider.contract.events import EventName
from outrider.contract.frames import Change, Hello, Snapshot
from outrider.contract.resources import Machine, Provider, Session

MAX_SESSIONS: Final = 1000
"""Sessions of one machine that the service keeps in mind."""

_SAVE_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class Announce(Protocol):
    """Told when a machine came online or went offline for good; a short absence is neither."""

    async def __call__(self, name: EventName, state: "MachineState") -> None:
        """Tell whoever has subscribed to it."""


class TooManySessions(OutriderError):
    """A machine reports more sessions than the service keeps in mind."""


class MachineState:
    """A machine as it was last reported. Times are epoch milliseconds."""

    __slots__ = (
        "account_id",
        "connected_at",
        "encoded",
        "event_seq",
        "hostname",
        "id",
        "last_seen_at",
        "machine",
        "nickname",
        "online",
        "platform",
        "providers",
        "sessions",
        "version",
    )

    def __init__(self, row: machines.Machine) -> None:
        self.id = row.id
        self.account_id = row.account_id
        self.nickname = row.nickname
        self.hostname = row.hostname
        self.platform = row.platform
        self.version = row.version
        self.connected_at = row.connected_at
        self.last_seen_at = row.last_seen_at
        self.event_seq = row.event_seq
        self.online = False
        self.machine: Machine | None = None
        self.providers: list[Provider] = []
        self.sessions: dict[str, Session] = {}
        self.encoded: bytes | None = None
        """The machine's entry in the list of machines, kept until something changes."""
        if row.snapshot is not None:
            snapshot = msgspec.json.decode(row.snapshot, type=Snapshot)
            self.replace(snapshot.machine, snapshot.providers, snapshot.sessions)

    def replace(
        self, machine: Machine, providers: list[Provider], sessions: Iterable[Session]
    ) -> None:
        """Take a full report in place of what was known."""
        self.machine = machine
        self.hostname, self.platform = machine.hostname, machine.platform
        self.providers = providers
        self.sessions = {}
        self._add(sessions)

    def change(self, change: Change) -> None:
        """Take what has changed."""
        if change.machine is not None:
            self.machine = change.machine
        for session_id in change.removed:
            self.sessions.pop(session_id, None)
        self._add(change.sessions)

    def snapshot(self) -> bytes | None:
        """Return what is known, to be saved; None where nothing was ever reported."""
        if self.machine is None:
            return None
        return msgspec.json.encode(
            Snapshot(
                machine=self.machine,
                providers=self.providers,
                sessions=list(self.sessions.values()),
            )
        )

    def _add(self, sessions: Iterable[Session]) -> None:
        self.encoded = None
        for session in sessions:
            session.target_id = f"{self.id}:session:{session.id}"
            self.sessions[session.id] = session
        if len(self.sessions) > MAX_SESSIONS:
            raise TooManySessions(f"A machine may report {MAX_SESSIONS} sessions at the most")


class Presence:
    """The machines that are connected or in their grace period.

    Args:
        grace_period: seconds for which a dropped machine still counts as connected.
        announce: told of machines that come and go.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        grace_period: float,
        announce: Announce,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._announce = announce
        self._database = database
        self._grace_period = grace_period
        self._clock = clock
        self._machines: dict[str, MachineState] = {}
        self._accounts: dict[str, dict[str, MachineState]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._expiries: set[asyncio.Task[None]] = set()
        self._unsaved: set[str] = set()

    def get(self, machine_id: str) -> MachineState | None:
        """Return the machine with this id if it is connected or in its grace period."""
        return self._machines.get(machine_id)

    def of_account(self, account_id: str) -> list[MachineState]:
        """Return the account's machines, the grace period counting as connected."""
        return sorted(self._accounts.get(account_id, {}).values(), key=lambda state: state.id)

    async def restore(self) -> None:
        """Begin a grace period for the machines that were connected when the service ended."""
        for row in await machines.connected(self._database):
            self._keep(MachineState(row))
            self._begin_grace(row.id)

    async def connected(self, row: machines.Machine, hello: Hello) -> MachineState:
        """Take it that a machine has said hello.

        Raises:
            TooManySessions: it names more than `MAX_SESSIONS`.
        """
        now = self._now()
        state = MachineState(row._replace(snapshot=None))
        state.version = hello.version
        state.connected_at = state.last_seen_at = now
        state.replace(hello.machine, hello.providers, hello.sessions)
        state.online = True
        self._end_grace(row.id)
        is_new = row.id not in self._machines
        self._keep(state)
        await machines.save(
            self._database,
            row.id,
            {
                "connected": True,
                "connected_at": now,
                "last_seen_at": now,
                "hostname": state.hostname,
                "platform": state.platform,
                "version": state.version,
                "snapshot": state.snapshot(),
            },
        )
        if is_new:
            await self._announce(EventName.MACHINE_CONNECTED, state)
        return state

    def reported(self, state: MachineState, report: Snapshot | Change) -> None:
        """Take a machine's report.

        Raises:
            TooManySessions: it names more than `MAX_SESSIONS`.
        """
        state.last_seen_at = self._now()
        if isinstance(report, Snapshot):
            state.replace(report.machine, report.providers, report.sessions)
        else:
            state.change(report)
        self._unsaved.add(state.id)

    def dropped(self, machine_id: str) -> None:
        """Take it that the machine's socket has gone: its grace period begins."""
        state = self._machines.get(machine_id)
        if state is not None and state.online:
            state.online = False
            self._begin_grace(machine_id)

    async def gone(self, machine_id: str) -> None:
        """Take it that the machine is offline, with no grace period."""
        self._end_grace(machine_id)
        state = self._machines.pop(machine_id, None)
        if state is None:
            return
        state.online = False
        owned = self._accounts[state.account_id]
        del owned[machine_id]
        if not owned:
            del self._accounts[state.account_id]
        self._unsaved.discard(machine_id)
        _log.info("machine offline", machine=machine_id)
        await machines.save(
            self._database,
            machine_id,
            {
                "connected": False,
                "last_seen_at": state.last_seen_at,
                "snapshot": state.snapshot(),
            },
        )
        await self._announce(EventName.MACHINE_DISCONNECTED, state)

    async def keep_saving(self) -> None:
        """Write reports down every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Write down what has been reported since the last call."""
        unsaved, self._unsaved = self._unsaved, set()
        rows = {}
        for machine_id in unsaved:
            state = self._machines.get(machine_id)
            data = None if state is None else state.snapshot()
            if state is not None and data is not None:
                rows[machine_id] = (data, state.last_seen_at)
        if rows:
            await machines.save_snapshots(self._database, rows)

    async def close(self) -> None:
        """Stop every timer. Machines stay `connected` in the database for the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._expiries:
            await asyncio.wait(self._expiries, timeout=5)
        await self.save()

    def _keep(self, state: MachineState) -> None:
        self._machines[state.id] = state
        self._accounts.setdefault(state.account_id, {})[state.id] = state

    def _begin_grace(self, machine_id: str) -> None:
        self._end_grace(machine_id)
        loop = asyncio.get_running_loop()
        self._timers[machine_id] = loop.call_later(self._grace_period, self._expire, machine_id)

    def _end_grace(self, machine_id: str) -> None:
        timer = self._timers.pop(machine_id, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, machine_id: str) -> None:
        task = asyncio.create_task(self.gone(machine_id), name=f"offline {machine_id}")
        self._expiries.add(task)
        task.add_done_callback(self._expiries.discard)

    def _now(self) -> int:
        return int(self._clock() * 1000)
