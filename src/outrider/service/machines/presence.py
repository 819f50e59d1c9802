"""Presence: which machines are connected, on this node or on any other.

    registered ──▶ online ── connection_lost ──▶ grace period ── expired ──▶ offline
                     ▲                               │
                     └──────────── registered ◀──────┘

A machine whose socket is lost counts as connected for the grace period; after that it is offline,
and only the database has its last state.

Invariants. The database records which machines are connected and which node is responsible for
each. Whether a machine came online or went offline is decided in the transaction that stores its
event, so each change is announced once, even if nodes die. When a node dies, another
one starts a grace period for each of its machines (`take_over`). A machine is in `_local` before
its registration is stored: from then on this node is responsible for it, even if the
transaction fails.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from weakref import WeakValueDictionary

import structlog

from outrider.contract.events import EventName
from outrider.contract.frames import Change, Hello, Snapshot
from outrider.contract.resources import Session
from outrider.service.cluster.directory import FleetDirectory
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.events.log import Event
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.store import machines
from outrider.service.periodic import WriteBehind, run_periodically
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.store.deliveries import Delivery

LONGEST_STALE: Final = 300.0
"""Seconds for which only its own node may know a machine's newest figures (memory, load)."""

_SAVE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0

UNKNOWN: Final = 0
"""The number of a connection that may not be stored yet; every stored number is higher."""

_log = structlog.get_logger(__name__)


class Announcement(Protocol):
    """The event of a change of presence, to be stored in the transaction of the change.

    Attributes:
        event: the event.
        deliveries: its deliveries.
    """

    event: Event
    deliveries: Sequence[Delivery]

    def stored(self) -> None:
        """Deliver it; called after the commit."""


Announce = Callable[[EventName, MachineState], Awaitable[Announcement]]
"""Creates the event of a machine that came online or went offline."""


class Presence:
    """The machines that are connected or in their grace period.

    Args:
        grace_period: seconds for which a dropped machine still counts as connected.
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
        self._local = _LocalMachines(grace_period, self.withdraw)
        self._unsaved: WriteBehind[None] = WriteBehind(self._save_snapshots, "machines")
        self._sessions_changed: Callable[[MachineState], None] = lambda _: None
        # Registrations of one machine are stored in the order of their hellos: the last stored has
        # the highest number, and only that connection may set the machine offline.
        self._registering: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(self, account_id: str, machine_id: str) -> MachineState | None:
        """Return the account's machine, offline ones in their last state; None if there is none."""
        mine = self._local.get(machine_id)
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

    def observe_sessions(self, observer: Callable[[MachineState], None]) -> None:
        """Call `observer` when sessions of a machine have come, gone, or changed their title."""
        self._sessions_changed = observer

    def local(self, machine_id: str) -> MachineState | None:
        """Return a machine that this node is responsible for, None if it is not."""
        return self._local.get(machine_id)

    def local_ids(self, account_id: str) -> list[str]:
        """Return the ids of the account's machines that this node is responsible for."""
        return list(self._local.of_account(account_id))

    def connections_here(self, account_id: str) -> dict[str, int]:
        """Return the numbers of the account's connections on this node, by machine id."""
        return {
            machine_id: state.connection
            for machine_id, state in self._local.of_account(account_id).items()
            if state.online and state.connection != UNKNOWN
        }

    async def of_account(self, account_id: str) -> list[MachineState]:
        """Return the account's connected machines, including those in their grace period."""
        states = self._local.of_account(account_id)
        for theirs in await self._directory.of_account(account_id):
            mine = states.get(theirs.id)
            if mine is None or (not mine.online and _is_newer(theirs, mine)):
                states[theirs.id] = theirs
        return sorted(states.values(), key=lambda state: state.id)

    async def all_of_account(self, account_id: str) -> list[MachineState]:
        """Return every machine of the account, offline ones in their last state."""
        states = {state.id: state for state in await self.of_account(account_id)}
        for row in await machines.of_account(self._database, account_id):
            if row.id not in states:
                states[row.id] = MachineState(row)
        return sorted(states.values(), key=lambda state: state.id)

    async def register(
        self, row: machines.Machine, token_hash: bytes, hello: Hello
    ) -> MachineState | machines.AttachFailure:
        """Register a machine whose hello has arrived on this node.

        Args:
            row: the machine at the time of the handshake.
            token_hash: of the connection token that authenticated it.

        Returns:
            The machine, or why it is not registered.

        Raises:
            TooMuchState: it is more than may be kept.
            SQLAlchemyError, OSError: the database is unavailable.
        """
        now = self._now()
        state = MachineState(row._replace(snapshot=None))
        state.version = hello.version
        state.connected_at = state.last_seen_at = now
        state.replace(hello.machine, hello.providers, hello.sessions)
        state.stale_at = now + _stale_millis()
        state.connected = state.online = True
        older = self._local.get(row.id)
        if older is not None:
            state.events = older.events
        # Before anything is awaited: the end of the grace period must not set it offline meanwhile.
        self._local.end_grace(row.id)
        self._local.add(state)  # before it is stored: see the module's invariants
        values = {
            "connected_at": now,
            "last_seen_at": now,
            "hostname": state.hostname,
            "platform": state.platform,
            "version": state.version,
            "snapshot": state.snapshot(),
        }
        state.connection = UNKNOWN  # until the transaction is known to be committed
        arrival = machines.Arrival(row.id, token_hash, row.connection, values)
        async with self._registering.setdefault(row.id, asyncio.Lock()):
            attached = await _attach(
                self._database,
                self._node,
                arrival,
                partial(self._announce, EventName.MACHINE_CONNECTED, state),
                was_connected=row.connected,
            )
        if isinstance(attached, machines.AttachFailure):
            self._roll_back(state, older)
            return attached
        state.connection = attached.connection
        state.nickname, state.event_seq = attached.nickname, attached.event_seq
        self._directory.publish(state)
        self._sessions_changed(state)
        return state

    def update(self, state: MachineState, report: Snapshot | Change) -> None:
        """Apply a machine's report.

        A report with nothing but fresh figures stays on this node; the database and the other
        nodes get them within `LONGEST_STALE` seconds, or when the machine disconnects.

        Raises:
            TooMuchState: it is more than may be kept.
        """
        now = state.last_seen_at = self._now()
        before = state.sessions
        if isinstance(report, Snapshot):
            state.replace(report.machine, report.providers, report.sessions)
        else:
            state.change(report)
            if not report.sessions and not report.removed and now < state.stale_at:
                return
        state.stale_at = now + _stale_millis()
        self._unsaved.put(state.id, None)
        self._directory.publish(state)
        if _have_changed(before, state.sessions):
            self._sessions_changed(state)

    def connection_lost(self, machine_id: str) -> None:
        """Start the grace period of a machine whose socket is lost."""
        # Idempotent: a socket may be lost, and closed by another node, at the same time.
        state = self._local.get(machine_id)
        if state is not None and state.online:
            state.online = False
            self._local.begin_grace(machine_id)
            self._unsaved.put(machine_id, None)
            self._directory.publish(state)

    def release(self, machine_id: str) -> None:
        """Release a machine that another node has taken over, or declared offline."""
        state = self._local.get(machine_id)
        if state is not None:
            self._local.end_grace(machine_id)
            self._local.remove(machine_id)
            state.connected = False
            self._directory.publish(state)  # does not replace what a newer connection published

    async def disconnect(self, account_id: str, machine_id: str) -> None:
        """Set a machine offline on every node, without a grace period."""
        state = await self.find(account_id, machine_id)
        if state is not None:
            await self._set_offline(state, anywhere=True)

    async def withdraw(self, state: MachineState) -> None:
        """Set a machine offline, unless it has registered again, here or on another node."""
        await self._set_offline(state, anywhere=False)

    async def take_over(self) -> None:
        """Start a grace period for each machine whose node was removed."""
        for row in await machines.take_over(self._database, self._node):
            if self._local.get(row.id) is None:
                state = MachineState(row)
                self._local.add(state)
                self._local.begin_grace(row.id)
                self._directory.publish(state)
                _log.info("machine taken over", machine=row.id)

    async def reclaim(self) -> list[MachineState]:
        """Claim this node's machines again after other nodes may have declared it dead.

        Returns:
            The machines that other nodes have taken over or declared offline; their sockets here
            must be closed.
        """
        mine = {state.id: state.connection for state in self._local if state.online}
        reclaimed = await machines.reclaim(self._database, self._node, mine)
        return [
            state
            for machine_id, connection in mine.items()
            if machine_id not in reclaimed
            and (state := self._local.get(machine_id)) is not None
            # Not one that has registered again while the database was awaited.
            and state.connection == connection
        ]

    def republish(self) -> None:
        """Publish every machine of this node again."""
        self._directory.republish(list(self._local))

    async def run(self) -> None:
        """Save reports every few seconds, until cancelled."""
        await run_periodically(self.save, _SAVE_SECONDS, "save machines")

    async def save(self) -> None:
        """Save the machines that have changed since the last call.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; the next call saves them.
        """
        await self._unsaved.flush()

    async def close(self) -> None:
        """Stop all timers. Machines stay `connected` in the database for the next start."""
        # First what could still change a machine, then the save, which has the final states.
        await self._local.close()
        for state in self._local:
            self._unsaved.put(state.id, None)
        try:
            await self.save()
        except DATABASE_ERRORS as error:
            _log.warning("saving machines failed", error=str(error))

    async def _save_snapshots(self, machine_ids: dict[str, None]) -> None:
        rows = {}
        for machine_id in machine_ids:
            state = self._local.get(machine_id)
            data = None if state is None else state.snapshot()
            if state is not None and data is not None:
                rows[machine_id] = (data, state.last_seen_at)
        if rows:
            await machines.save_snapshots(self._database, self._node, rows)

    async def _set_offline(self, state: MachineState, *, anywhere: bool) -> None:
        """Set a machine offline; the node whose transaction changed it announces the event.

        Args:
            anywhere: even if another node is responsible for it, or it has connected again.
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
                # A newer registration, here or on another node, has changed one of these: then
                # the machine stays connected, and nothing is announced.
                node=None if anywhere else self._node,
                connection=None if anywhere or state.connection == UNKNOWN else state.connection,
            )
            if was_connected:
                await deliveries.add(transaction, [announcement.event], announcement.deliveries)
        # It may have registered again while the database was awaited: that state stays.
        if anywhere or self._local.get(state.id) is state:
            self._local.end_grace(state.id)
            self._local.remove(state.id)
        if was_connected:
            _log.info("machine offline", machine=state.id)
            state.connected = state.online = False
            self._directory.publish(state)
            announcement.stored()

    def _roll_back(self, state: MachineState, older: MachineState | None) -> None:
        """Roll back a machine's registration and restore its previous state."""
        if self._local.get(state.id) is not state:
            return
        self._local.remove(state.id)
        if older is not None:
            older.online = False
            self._local.add(older)
            self._local.begin_grace(older.id)

    def _now(self) -> int:
        return int(self._clock() * 1000)


async def _attach(
    database: Database,
    node: str,
    arrival: machines.Arrival,
    announce: Callable[[], Awaitable[Announcement]],
    *,
    was_connected: bool,
) -> machines.AttachedMachine | machines.AttachFailure:
    """Store that a machine is connected to a node, with its event if it was offline.

    Args:
        announce: creates that event.
        was_connected: whether its row said so a moment ago; the transaction decides.
    """
    # Not in the transaction: it may need a second connection of the database's pool.
    announcement = None if was_connected else await announce()
    async with database.begin() as transaction:
        attached = await machines.attach(transaction, node, arrival)
        if isinstance(attached, machines.AttachFailure) or attached.was_connected:
            return attached
        announcement = announcement or await announce()
        await deliveries.add(transaction, [announcement.event], announcement.deliveries)
    announcement.stored()
    return attached


def _stale_millis() -> int:
    """Return for how long figures stay local: random, so that machines do not save in step."""
    return int(LONGEST_STALE * 1000 * (1 + random.random()) / 2)  # noqa: S311


def _is_newer(theirs: MachineState, mine: MachineState) -> bool:
    """Return whether another node has a newer state of a machine that has no socket here."""
    return theirs.connection > mine.connection or (
        theirs.connection == mine.connection and theirs.online
    )


class _LocalMachines:
    """The machines of this node, with a timer for each that is in its grace period.

    Args:
        grace_period: seconds that a machine has to reconnect.
        set_offline: sets a machine offline that has not.
    """

    def __init__(
        self, grace_period: float, set_offline: Callable[[MachineState], Awaitable[None]]
    ) -> None:
        self._grace_period = grace_period
        self._set_offline = set_offline
        self._machines: dict[str, MachineState] = {}
        self._accounts: defaultdict[str, dict[str, MachineState]] = defaultdict(dict)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._expiries: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[MachineState]:
        return iter(self._machines.values())

    def get(self, machine_id: str) -> MachineState | None:
        """Return a machine, None if it is not on this node."""
        return self._machines.get(machine_id)

    def of_account(self, account_id: str) -> dict[str, MachineState]:
        """Return an account's machines, by their ids."""
        return dict(self._accounts.get(account_id, {}))

    def add(self, state: MachineState) -> None:
        """Add a machine, replacing its previous state."""
        self._machines[state.id] = state
        self._accounts[state.account_id][state.id] = state

    def remove(self, machine_id: str) -> None:
        """Remove a machine; its state is offline from now on."""
        state = self._machines.pop(machine_id, None)
        if state is None:
            return
        state.online = False
        owned = self._accounts[state.account_id]
        del owned[machine_id]
        if not owned:
            del self._accounts[state.account_id]

    def begin_grace(self, machine_id: str) -> None:
        """Start the grace period of a machine of this node."""
        self.end_grace(machine_id)
        loop = asyncio.get_running_loop()
        self._timers[machine_id] = loop.call_later(
            self._grace_period, self._timer_expired, machine_id
        )

    def end_grace(self, machine_id: str) -> None:
        """Cancel the grace period of a machine."""
        timer = self._timers.pop(machine_id, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        """Cancel all timers, and what expired ones have begun."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._expiries:
            task.cancel()
        if self._expiries:
            await asyncio.wait(self._expiries, timeout=5)

    def _timer_expired(self, machine_id: str) -> None:
        state = self._machines.get(machine_id)
        if state is not None:
            task = asyncio.create_task(self._expire(state), name=f"offline {machine_id}")
            self._expiries.add(task)
            task.add_done_callback(self._expiries.discard)

    async def _expire(self, state: MachineState) -> None:
        """Set a machine offline after its grace period; retry until the database is available."""
        while self._machines.get(state.id) is state and not state.online:
            try:
                await self._set_offline(state)
            except DATABASE_ERRORS as error:
                _log.warning("setting machine offline failed, retrying", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)


def _have_changed(before: Mapping[str, Session], now: Mapping[str, Session]) -> bool:
    """Return whether sessions have come or gone, or changed what the history has of them."""
    return before.keys() != now.keys() or any(
        (session.title, session.model) != (before[key].title, before[key].model)
        for key, session in now.items()
    )
