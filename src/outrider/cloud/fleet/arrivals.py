"""Saves that machines have come, with the events that tell of it.

Those of one moment are saved in one transaction, so that a crowd that comes back after a restart
costs little more than a few. Which of them were away is decided in it.
"""

import asyncio
from typing import NamedTuple, Protocol

from outrider.cloud.fleet.machine_state import MachineState
from outrider.cloud.store import machines
from outrider.cloud.store.batches import Batches
from outrider.cloud.store.database import Database
from outrider.cloud.store.transaction import Transaction
from outrider.contract.events import EventName


class Announcement(Protocol):
    """The event of a machine that comes or goes."""

    async def store(self, transaction: Transaction) -> None:
        """Store it with what it tells of."""

    def stored(self) -> None:
        """Take it that it was stored: deliver it."""


class Announce(Protocol):
    """Makes the event of a machine that came online, or went offline for good."""

    async def __call__(self, name: EventName, state: MachineState) -> Announcement:
        """Return the event."""


class _Arriving(NamedTuple):
    """A machine that has said hello, and whether it was connected a moment ago."""

    state: MachineState
    was_connected: bool
    arrival: machines.Arrival


class Arrivals:
    """The machines that have said hello to this node and are about to be saved.

    Args:
        node: this node's id.
        announce: makes the events of those that were away.
    """

    def __init__(self, database: Database, node: str, announce: Announce) -> None:
        self._database = database
        self._node = node
        self._announce = announce
        self._batches = Batches(self._save)

    async def save(
        self, state: MachineState, arrival: machines.Arrival, *, was_connected: bool
    ) -> machines.Attached | None:
        """Save that a machine has come.

        Args:
            was_connected: whether it was, a moment ago: one of which that is known needs no event.

        Returns:
            What the database knows of it; None where its token has become worthless.

        Raises:
            SQLAlchemyError, OSError: the database is away.
        """
        return await self._batches.ask(_Arriving(state, was_connected, arrival))

    async def close(self) -> None:
        """Save no more; who still waits is cancelled."""
        await self._batches.close()

    async def _save(self, arriving: list[_Arriving]) -> list[machines.Attached | None]:
        """Save them, with the events that tell of those which were away."""
        expected = [one.state for one in arriving if not one.was_connected]
        made = await asyncio.gather(
            *(self._announce(EventName.MACHINE_CONNECTED, state) for state in expected)
        )
        announcements = dict(zip(expected, made, strict=True))
        came: list[Announcement] = []
        async with self._database.begin() as transaction:
            attached = await machines.attach(
                transaction, self._node, [one.arrival for one in arriving]
            )
            for one, outcome in zip(arriving, attached, strict=True):
                if outcome is None or outcome.was_connected:
                    continue
                announcement = announcements.get(one.state) or await self._announce(
                    EventName.MACHINE_CONNECTED, one.state
                )
                await announcement.store(transaction)
                came.append(announcement)
        for announcement in came:
            announcement.stored()
        return attached
