"""Which nodes are alive, and what becomes of the machines of one that is not.

Every node counts up its beats in the database. One whose count stands still for long is dead to
those who watch: they go by their own clocks, which need not agree, and only by looks that
worked, so that an absence of the database kills nobody. The dead node is removed, and its
machines are taken over. If it was only frozen, it finds itself removed once it goes on, and
lets go of what is no longer its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.store import nodes
from outrider.cloud.store.clock import SharedClock
from outrider.cloud.store.database import Database

_BEATS_PER_TIMEOUT: Final = 5

_log = structlog.get_logger(__name__)


class _Seen:
    """A node's beats, and since when this node has seen them stand still."""

    __slots__ = ("beats", "since")

    def __init__(self, beats: int, since: float) -> None:
        self.beats = beats
        self.since = since


class Nodes:
    """Beats, and watches the other nodes.

    Args:
        node: this node's id.
        take_over: sees to the machines of nodes that are gone.
        revived: lets go of what others have taken over while this node was held for dead.
        timeout: seconds after which a node that does not beat is dead.
        shared_clock: set at each beat.
        clock: seconds that only grow.
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
        self._seen: dict[str, _Seen] = {}
        self._looked_at = 0.0

    async def join(self, *, alone: bool) -> None:
        """Become one of the nodes, and see to the machines that none sees to.

        Args:
            alone: there is no other; those in the database have ended.
        """
        await self._shared_clock.adjust()
        if alone:
            await nodes.remove_others(self._database, self._node)
        await nodes.beat(self._database, self._node)
        await self._take_over()

    async def leave(self) -> None:
        """Be one of the nodes no more: the others see to the machines at once."""
        await nodes.remove(self._database, self._node)

    async def has_others(self) -> bool:
        """Tell whether there are other nodes, as far as is known."""
        try:
            return bool((await nodes.beats(self._database)).keys() - {self._node})
        except (SQLAlchemyError, OSError):
            return False

    async def run(self) -> None:
        """Beat and watch, until cancelled."""
        while True:
            await asyncio.sleep(self._timeout / _BEATS_PER_TIMEOUT)
            try:
                async with asyncio.timeout(self._timeout):
                    await self.beat()
            except (SQLAlchemyError, OSError) as error:  # a time-out is an OSError too
                _log.warning("nodes are not watched: the database is away", error=str(error))

    async def beat(self) -> None:
        """Beat once, and look at the others."""
        await self._shared_clock.adjust()
        if not await nodes.beat(self._database, self._node):
            _log.warning("this node was held for dead")
            await self._revived()
        if await self._look():
            await self._take_over()

    async def _look(self) -> bool:
        """Remove nodes that are dead; tell whether any is gone."""
        found = await nodes.beats(self._database)
        now = self._clock()
        if now - self._looked_at > self._timeout / 2:
            self._seen.clear()  # it did not watch: nobody has stood still that it knows of
            someone_may_be_gone = True
        else:
            someone_may_be_gone = bool(self._seen.keys() - found.keys())
        self._looked_at = now
        for node, beats in found.items():
            seen = self._seen.get(node)
            if seen is None or seen.beats != beats:
                self._seen[node] = _Seen(beats, now)
            elif now - seen.since >= self._timeout and node != self._node:
                _log.warning("a node is dead", node=node, beats=beats)
                await nodes.remove(self._database, node, beats)
                someone_may_be_gone = True
        for node in self._seen.keys() - found.keys():
            del self._seen[node]
        return someone_may_be_gone
