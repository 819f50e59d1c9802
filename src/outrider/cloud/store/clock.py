"""The time that all nodes agree on: the database's.

What one node writes another compares with its own time: until when a delivery is claimed, when
a session ends. The clocks of machines may be minutes apart.
"""

import time
from collections.abc import Callable

from sqlalchemy import text

from outrider.cloud.store.database import Database


class SharedClock:
    """Tells seconds since the epoch, by this machine's clock set by the database's.

    Args:
        clock: this machine's clock.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._ahead = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self._clock() + self._ahead

    async def adjust(self) -> None:
        """Set it by the database's clock. A single node on SQLite needs no other than its own.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        if self._database.is_embedded:
            return
        async with self._database.read() as transaction:
            before = self._clock()
            theirs = await transaction.scalar(
                text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)")
            )
            after = self._clock()
        # It was asked at some moment between these two: only what lies beside them is a difference.
        self._ahead = theirs - min(max(theirs, before), after)
