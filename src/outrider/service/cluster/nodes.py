"""Failure detection: which nodes are alive, and who takes over the machines of a dead node.

Every node increments its heartbeat counter in the database. A node whose counter has not changed
for `timeout` seconds is declared dead by the nodes that watch it. Each watches by its own
monotonic clock, so clocks need not agree, and only successful reads count, so losing the database
never marks a node as dead. A dead node is removed, and another node takes over its machines. If it
was only frozen, it finds itself removed when it continues, and releases the machines that others
have taken over.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from sqlalchemy import delete, insert, select, update

from outrider.service.database import tables
from outrider.service.database.clock import SharedClock
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.periodic import run_periodically

_HEARTBEATS_PER_TIMEOUT: Final = 5

_nodes = tables.nodes
_log = structlog.get_logger(__name__)


class Nodes:
    """Sends heartbeats and watches the other nodes.

    Args:
        node: this node's id.
        take_over: takes over the machines of removed nodes.
        revived: claims this node's machines again after it was declared dead, and releases those
            that others took over. If it fails, the next heartbeat calls it again.
        timeout: seconds without a heartbeat after which a node is dead.
        shared_clock: adjusted at each heartbeat.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        database: Database,
        node: str,
        take_over: Callable[[], Awaitable[None]],
        revived: Callable[[], Awaitable[None]],
        timeout: float,
        shared_clock: SharedClock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._node = node
        self._take_over = take_over
        self._revived = revived
        self._timeout = timeout
        self._shared_clock = shared_clock
        self._clock = clock
        # The heartbeat count of each node, and since when it has not changed.
        self._seen: dict[str, tuple[int, float]] = {}
        self._checked_at = 0.0
        self._was_declared_dead = False

    async def join(self, *, alone: bool) -> None:
        """Register this node, and take over machines without a node.

        Args:
            alone: there is no other; those in the database have ended.
        """
        await self._shared_clock.adjust()
        if alone:
            await remove_others(self._database, self._node)
        await beat(self._database, self._node)
        await self._take_over()

    async def leave(self) -> None:
        """Unregister this node; the others take over its machines at once."""
        await remove(self._database, self._node)

    async def has_others(self) -> bool:
        """Return whether there are other nodes, as far as is known."""
        try:
            return bool((await beats(self._database)).keys() - {self._node})
        except DATABASE_ERRORS:
            return False

    async def run(self) -> None:
        """Send heartbeats and watch the other nodes, until cancelled."""
        interval = self._timeout / _HEARTBEATS_PER_TIMEOUT
        await run_periodically(self._beat_in_time, interval, "send node heartbeat")

    async def beat(self) -> None:
        """Send one heartbeat and check the other nodes."""
        await self._shared_clock.adjust()
        if not await beat(self._database, self._node):
            _log.warning("this node was declared dead by its peers; releasing its machines")
            self._was_declared_dead = True
        if self._was_declared_dead:
            # The row is there again: machines that nobody has taken over yet stay this node's.
            await self._revived()
            self._was_declared_dead = False
        if await self._check_peers():
            await self._take_over()

    async def _beat_in_time(self) -> None:
        async with asyncio.timeout(self._timeout):  # a TimeoutError is an OSError
            await self.beat()

    async def _check_peers(self) -> bool:
        """Remove dead nodes; return whether machines may need a new node."""
        counts = await beats(self._database)
        now = self._clock()
        if now - self._checked_at > self._timeout / 2:
            self._seen.clear()  # this node was suspended: what it saw before says nothing
            someone_may_be_gone = True
        else:
            someone_may_be_gone = bool(self._seen.keys() - counts.keys())
        self._checked_at = now
        seen, self._seen = self._seen, {}
        for node, count in counts.items():
            before, since = seen.get(node, (None, now))
            self._seen[node] = count, (since if before == count else now)
            if before == count and now - since >= self._timeout and node != self._node:
                _log.warning("node declared dead", node=node, beats=count)
                # Unless its counter has changed since it was read: then it is alive.
                await remove(self._database, node, count)
                someone_may_be_gone = True
        return someone_may_be_gone


async def beat(database: Database, node: str) -> bool:
    """Increment this node's heartbeat; return False if the node had to be added (again)."""
    async with database.begin() as connection:
        updated = await connection.execute(
            update(_nodes).where(_nodes.c.id == node).values(beats=_nodes.c.beats + 1)
        )
        if updated.rowcount:
            return True
        await connection.execute(insert(_nodes).values(id=node, beats=1))
        return False


async def beats(database: Database) -> Mapping[str, int]:
    """Return the heartbeat count of every node, by id."""
    async with database.read() as connection:
        rows = await connection.execute(select(_nodes.c.id, _nodes.c.beats))
        return {row[0]: row[1] for row in rows}


async def remove(database: Database, node: str, beats: int | None = None) -> None:
    """Remove a node; with `beats`, only if its heartbeat count is still that."""
    statement = delete(_nodes).where(_nodes.c.id == node)
    if beats is not None:
        statement = statement.where(_nodes.c.beats == beats)
    async with database.begin() as connection:
        await connection.execute(statement)


async def remove_others(database: Database, node: str) -> None:
    """Remove every node but this one."""
    async with database.begin() as connection:
        await connection.execute(delete(_nodes).where(_nodes.c.id != node))
