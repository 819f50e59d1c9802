"""The machines of all nodes, published by each node, so that any node can show any machine."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.database.engine import Database
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.store import machines
from outrider.service.periodic import WriteBehind

# Pause between two batches: a machine that changes often is published once in each.
_BATCH_INTERVAL: Final = 0.005

_RETRY_SECONDS: Final = 1.0
# For how long after an outage of the bus some nodes may not have republished their machines.
_INCOMPLETE_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    """A machine in the directory. `row` has the fields of `store.machines.Machine`."""

    online: bool
    row: tuple[str, str, str, str, str, str, bool, int | None, int | None, bytes | None, int, int]


_decoder = msgspec.msgpack.Decoder(_Entry)
_encode = msgspec.msgpack.Encoder().encode


class FleetDirectory:
    """The machines of the other nodes. On a single node it does nothing."""

    def __init__(self, bus: Bus, database: Database) -> None:
        self._bus = bus
        self._database = database
        self._unpublished: WriteBehind[MachineState] = WriteBehind(
            self._publish_all, "machines of the directory"
        )
        self._wake = asyncio.Event()
        self._incomplete_until = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may exist."""
        return self._bus.is_shared

    def publish(self, state: MachineState) -> None:
        """Publish a machine to the other nodes within a few milliseconds.

        A machine that is no longer connected is removed from the directory.
        """
        if self._bus.is_shared:
            self._unpublished.put(state.id, state)
            self._wake.set()

    def republish(self, states: Iterable[MachineState]) -> None:
        """Publish these machines again: the directory may have been lost."""
        self.mark_incomplete()
        for state in states:
            self.publish(state)

    def mark_incomplete(self) -> None:
        """Assume for the next few seconds that machines are missing from the directory."""
        self._incomplete_until = asyncio.get_running_loop().time() + _INCOMPLETE_SECONDS

    async def read(self, account_id: str, machine_id: str) -> MachineState | None:
        """Return the account's machine if a node has published it."""
        if not self._bus.is_shared:
            return None
        try:
            data = await self._bus.get(account_id, machine_id)
        except BusDown:
            return None
        return None if data is None else _state(data)

    async def of_account(self, account_id: str) -> list[MachineState]:
        """Return the account's connected machines on all nodes.

        While the directory may be incomplete, the rest comes from the database, some seconds old.
        """
        if not self._bus.is_shared:
            return []
        states: dict[str, MachineState] = {}
        is_incomplete = asyncio.get_running_loop().time() < self._incomplete_until
        try:
            entries = await self._bus.items(account_id)
            states = {machine: _state(data) for machine, data in entries.items()}
        except BusDown:
            is_incomplete = True
        if is_incomplete:
            rows = await machines.connected(self._database, account_id)
            states = {row.id: MachineState(row) for row in rows} | states
        return list(states.values())

    async def run(self) -> None:
        """Publish changes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except BusDown:
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
            await asyncio.sleep(_BATCH_INTERVAL)

    async def flush(self) -> None:
        """Publish what has changed since the last call.

        Raises:
            BusDown: the changes are kept for the next call.
        """
        await self._unpublished.flush()

    async def _publish_all(self, states: dict[str, MachineState]) -> None:
        await asyncio.gather(*map(self._publish, states.values()))

    async def _publish(self, state: MachineState) -> None:
        if state.connected:
            entry = _encode(_Entry(state.online, tuple(state.row())))  # type: ignore[arg-type]
            await self._bus.put(state.account_id, state.id, state.connection, entry)
        else:
            await self._bus.remove(state.account_id, state.id, state.connection)


def _state(data: bytes) -> MachineState:
    entry = _decoder.decode(data)
    state = MachineState(machines.Machine(*entry.row))
    state.online = entry.online
    return state
