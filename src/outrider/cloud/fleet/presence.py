"""Which machines are connected: here, or on any node.

A machine whose socket has gone still counts as connected for a grace period; one that stays
away longer is offline, and only the database knows it then. Which machines are connected, and
which node sees to them, is in the database too: when a node is gone, another one begins a
grace period for each of its machines. Whether a machine came or went is decided there, in the
transaction that stores its event, so that it is told once, whatever happens to a node.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.fleet.arrivals import Announce, Arrivals
from outrider.cloud.fleet.directory import FleetDirectory
from outrider.cloud.fleet.machine_state import MachineState
from outrider.cloud.fleet.roster import Roster
from outrider.cloud.store import machines
from outrider.cloud.store.database import Database
from outrider.contract.events import EventName
from outrider.contract.frames import Change, Hello, Snapshot

LONGEST_STALE: Final = 300.0
"""Seconds for which a machine's figures may be known to its own node alone."""

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0

UNKNOWN: Final = 0
"""The number of a connection that the database may not know; every other one is higher."""

_log = structlog.get_logger(__name__)


class Presence:
    """The machines that are connected or in their grace period.

    Args:
        node: this node's id.
        grace_period: seconds for which a dropped machine still counts as connected.
        announce: makes the events of machines that come and go.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        database: Database,
        directory: FleetDirectory,
        node: str,
        grace_period: float,
        announce: Announce,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._announce = announce
        self._directory = directory
        self._database = database
        self._node = node
        self._clock = clock
        self._roster = Roster(grace_period, self._expire)
        self._expiries: set[asyncio.Task[None]] = set()
        self._unsaved: set[str] = set()
        self._arrivals = Arrivals(database, node, announce)

    async def find(self, account_id: str, machine_id: str) -> MachineState | None:
        """Return the account's machine, in its last state if it is offline; None for no such."""
        mine = self._roster.get(machine_id)
        if mine is not None and mine.account_id != account_id:
            return None
        if mine is not None and (mine.online or not self._directory.is_shared):
            return mine
        theirs = await self._directory.read(account_id, machine_id)
        if theirs is not None and (mine is None or _is_newer(theirs, mine)):
            return theirs
        if mine is not None:
            return mine
        row = await machines.by_id(self._database, machine_id)
        return None if row is None or row.account_id != account_id else MachineState(row)

    def here(self, account_id: str) -> list[str]:
        """Return the ids of the account's machines that this node sees to."""
        return list(self._roster.of_account(account_id))

    async def of_account(self, account_id: str) -> list[MachineState]:
        """Return the account's machines, the grace period counting as connected."""
        found = self._roster.of_account(account_id)
        for theirs in await self._directory.of_account(account_id):
            mine = found.get(theirs.id)
            if mine is None or (not mine.online and _is_newer(theirs, mine)):
                found[theirs.id] = theirs
        return sorted(found.values(), key=lambda state: state.id)

    async def connected(
        self, row: machines.Machine, token_hash: bytes, hello: Hello
    ) -> MachineState | None:
        """Take it that a machine has said hello to this node.

        Machines that come at the same time are taken together, in one transaction.

        Args:
            token_hash: of the token that let it in.

        Returns:
            The machine; None where the token has become worthless meanwhile.

        Raises:
            TooMuchState: it is more than may be kept.
            SQLAlchemyError, OSError: the database is away.
        """
        now = self._now()
        state = MachineState(row._replace(snapshot=None))
        state.version = hello.version
        state.connected_at = state.last_seen_at = now
        state.replace(hello.machine, hello.providers, hello.sessions)
        state.stale_at = now + _stale_millis()
        state.connected = state.online = True
        older = self._roster.get(row.id)
        if older is not None:
            state.events = older.events
        self._roster.end_grace(row.id)
        self._roster.keep(state)  # before it is saved: from then on this node must see to it
        values = {
            "connected_at": now,
            "last_seen_at": now,
            "hostname": state.hostname,
            "platform": state.platform,
            "version": state.version,
            "snapshot": state.snapshot(),
        }
        state.connection = UNKNOWN  # for as long as nobody can tell whether it was saved
        attached = await self._arrivals.save(
            state, machines.Arrival(row.id, token_hash, values), was_connected=row.connected
        )
        if attached is None:
            self._keep_out(state, older)
            return None
        state.connection = attached.connection
        state.nickname, state.event_seq = attached.nickname, attached.event_seq
        self._directory.publish(state)
        return state

    def reported(self, state: MachineState, report: Snapshot | Change) -> None:
        """Take a machine's report.

        One that only has fresh figures is for this node alone; the database and the other
        nodes hear of it within `LONGEST_STALE` seconds, or when the machine goes.

        Raises:
            TooMuchState: it is more than may be kept.
        """
        now = state.last_seen_at = self._now()
        if isinstance(report, Snapshot):
            state.replace(report.machine, report.providers, report.sessions)
        else:
            state.change(report)
            if not report.sessions and not report.removed and now < state.stale_at:
                return
        state.stale_at = now + _stale_millis()
        self._unsaved.add(state.id)
        self._directory.publish(state)

    def dropped(self, machine_id: str) -> None:
        """Take it that the machine's socket has gone: its grace period begins."""
        state = self._roster.get(machine_id)
        if state is not None and state.online:
            state.online = False
            self._roster.begin_grace(machine_id)
            self._unsaved.add(machine_id)
            self._directory.publish(state)

    def moved(self, machine_id: str) -> None:
        """Take it that the machine is another node's by now, or was given up there."""
        state = self._roster.get(machine_id)
        if state is not None:
            self._roster.end_grace(machine_id)
            self._roster.forget(machine_id)
            state.connected = False
            self._directory.publish(state)  # what a newer connection has told stays

    async def gone(self, account_id: str, machine_id: str) -> None:
        """Take it that the machine is offline on every node, with no grace period."""
        state = await self.find(account_id, machine_id)
        if state is not None:
            await self._depart(state, anywhere=True)

    async def take_over(self) -> None:
        """Begin a grace period for the machines whose own node is gone."""
        for row in await machines.take_over(self._database, self._node):
            if self._roster.get(row.id) is None:
                state = MachineState(row)
                self._roster.keep(state)
                self._roster.begin_grace(row.id)
                self._directory.publish(state)
                _log.info("machine taken over", machine=row.id)

    async def reclaim(self) -> list[MachineState]:
        """Have this node see to its machines again, after others may have thought it dead.

        Returns:
            The machines that are another's by now, or were given up: their sockets here are
            worth nothing.
        """
        mine = {state.id: state.connection for state in self._roster if state.online}
        kept = await machines.reclaim(self._database, self._node, mine)
        return [
            state
            for machine_id, connection in mine.items()
            if machine_id not in kept
            and (state := self._roster.get(machine_id)) is not None
            and state.connection == connection
        ]

    def republish(self) -> None:
        """Publish every machine of this node again."""
        self._directory.republish(list(self._roster))

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
            state = self._roster.get(machine_id)
            data = None if state is None else state.snapshot()
            if state is not None and data is not None:
                rows[machine_id] = (data, state.last_seen_at)
        if not rows:
            return
        try:
            await machines.save_snapshots(self._database, self._node, rows)
        except (SQLAlchemyError, OSError) as error:
            _log.warning("reports wait for the database", error=str(error))
            self._unsaved |= unsaved

    async def close(self) -> None:
        """Stop every timer. Machines stay `connected` in the database for the next start."""
        self._roster.close()
        for task in self._expiries:
            task.cancel()
        if self._expiries:
            await asyncio.wait(self._expiries, timeout=5)
        await self._arrivals.close()
        self._unsaved |= {state.id for state in self._roster}
        await self.save()

    async def _depart(self, state: MachineState, *, anywhere: bool) -> None:
        """Have a machine offline; told once, by the node that did it.

        Args:
            anywhere: also if another node sees to it, or it has connected again by now.
        """
        announcement = await self._announce(EventName.MACHINE_DISCONNECTED, state)
        values: dict[str, object] = {"last_seen_at": state.last_seen_at}
        snapshot = state.snapshot()
        if snapshot is not None:
            values["snapshot"] = snapshot
        async with self._database.begin() as transaction:
            was_connected = await machines.detach(
                transaction,
                state.id,
                values,
                node=None if anywhere else self._node,
                connection=None if anywhere or state.connection == UNKNOWN else state.connection,
            )
            if was_connected:
                await announcement.store(transaction)
        if anywhere or self._roster.get(state.id) is state:
            self._roster.end_grace(state.id)
            self._roster.forget(state.id)
        if was_connected:
            _log.info("machine offline", machine=state.id)
            state.connected = state.online = False
            self._directory.publish(state)
            announcement.stored()

    def _keep_out(self, state: MachineState, older: MachineState | None) -> None:
        """Forget a machine that was kept too early, in favour of what it was before."""
        if self._roster.get(state.id) is not state:
            return
        self._roster.forget(state.id)
        if older is not None:
            older.online = False
            self._roster.keep(older)
            self._roster.begin_grace(older.id)

    def _expire(self, state: MachineState) -> None:
        task = asyncio.create_task(self._depart_surely(state), name=f"offline {state.id}")
        self._expiries.add(task)
        task.add_done_callback(self._expiries.discard)

    async def _depart_surely(self, state: MachineState) -> None:
        """Have a machine offline whose grace period is over, however long the database is away."""
        while self._roster.get(state.id) is state and not state.online:
            try:
                await self._depart(state, anywhere=False)
            except (SQLAlchemyError, OSError) as error:
                _log.warning("a machine's end waits for the database", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _stale_millis() -> int:
    """Return for how long a machine's figures need not be told: some chance spreads that."""
    return int(LONGEST_STALE * 1000 * (1 + random.random()) / 2)  # noqa: S311


def _is_newer(theirs: MachineState, mine: MachineState) -> bool:
    """Tell whether another node knows a machine better that has no socket here."""
    return theirs.connection > mine.connection or (
        theirs.connection == mine.connection and theirs.online
    )
