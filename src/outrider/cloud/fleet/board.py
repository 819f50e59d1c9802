"""What the nodes tell each other of their machines, so that any of them can show any machine."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from outrider.cloud.fleet.bus import Bus, BusDown
from outrider.cloud.fleet.state import MachineState
from outrider.cloud.store import machines
from outrider.cloud.store.database import Database

_BREATH_SECONDS: Final = 0.005
"""Between two rounds of telling: a machine that changes often is told of once a round."""

_AT_ONCE: Final = 100
_RETRY_SECONDS: Final = 1.0
_UNSURE_SECONDS: Final = 5.0
"""How long after a break of the bus some nodes may not have told of theirs again."""

_log = structlog.get_logger(__name__)


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    """A machine on the board. `row` has the fields of `store.machines.Machine`."""

    online: bool
    row: tuple[str, str, str, str, str, str, bool, int | None, int | None, bytes | None, int, int]


_decoder = msgspec.msgpack.Decoder(_Entry)
_encode = msgspec.msgpack.Encoder().encode


class Board:
    """The machines of the other nodes. A single node has no use for it, and pays nothing."""

    def __init__(self, bus: Bus, database: Database) -> None:
        self._bus = bus
        self._database = database
        self._untold: dict[str, MachineState] = {}
        self._wake = asyncio.Event()
        self._unsure_until = 0.0

    @property
    def is_shared(self) -> bool:
        """Whether there may be other nodes."""
        return self._bus.is_shared

    def tell(self, state: MachineState) -> None:
        """Tell the other nodes of a machine, within a few milliseconds.

        One that is not connected any more is taken off.
        """
        if self._bus.is_shared:
            self._untold[state.id] = state
            self._wake.set()

    def tell_all(self, states: Iterable[MachineState]) -> None:
        """Tell of these machines; the others may have lost what they were told before."""
        self.unsure()
        for state in states:
            self.tell(state)

    def unsure(self) -> None:
        """Take it that the board lacks machines for the next few seconds."""
        self._unsure_until = asyncio.get_running_loop().time() + _UNSURE_SECONDS

    async def read(self, account_id: str, machine_id: str) -> MachineState | None:
        """Return the account's machine if another node tells of it."""
        if not self._bus.is_shared:
            return None
        try:
            data = await self._bus.entry(account_id, machine_id)
        except BusDown:
            return None
        return None if data is None else _state(data)

    async def of_account(self, account_id: str) -> list[MachineState]:
        """Return the account's connected machines that nodes tell of.

        While the board may lack some, they are as the database has them, some seconds old.
        """
        if not self._bus.is_shared:
            return []
        found: dict[str, MachineState] = {}
        is_unsure = asyncio.get_running_loop().time() < self._unsure_until
        try:
            entries = await self._bus.entries(account_id)
            found = {machine: _state(data) for machine, data in entries.items()}
        except BusDown:
            is_unsure = True
        if is_unsure:
            rows = await machines.connected(self._database, account_id)
            found = {row.id: MachineState(row) for row in rows} | found
        return list(found.values())

    async def run(self) -> None:
        """Tell of what changes, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.tell_now()
            except BusDown:
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
            await asyncio.sleep(_BREATH_SECONDS)

    async def tell_now(self) -> None:
        """Tell of what has changed since the last call.

        Raises:
            BusDown: it is kept for the next call.
        """
        while self._untold:
            some = [self._untold.pop(key) for key in list(self._untold)[:_AT_ONCE]]
            told = await asyncio.gather(*map(self._tell, some), return_exceptions=True)
            for state, outcome in zip(some, told, strict=True):
                if isinstance(outcome, BaseException):
                    self._untold.setdefault(state.id, state)
            for outcome in told:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _tell(self, state: MachineState) -> None:
        if state.connected:
            entry = _encode(_Entry(state.online, tuple(state.row())))  # type: ignore[arg-type]
            await self._bus.post(state.account_id, state.id, state.connection, entry)
        else:
            await self._bus.withdraw(state.account_id, state.id, state.connection)


def _state(data: bytes) -> MachineState:
    entry = _decoder.decode(data)
    state = MachineState(machines.Machine(*entry.row))
    state.online = entry.online
    return state
