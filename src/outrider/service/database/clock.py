"""A clock that all nodes share: this machine's clock, corrected by the database's.

Nodes compare times that other nodes have written, such as the end of a delivery's claim or of a
session. The clocks of their machines may differ by minutes.
"""

import time
from collections.abc import Callable

from sqlalchemy import text

from outrider.service.database.engine import Database


class SharedClock:
    """Returns seconds since the epoch, by the database's clock.

    Args:
        clock: this machine's clock.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._offset = 0.0

    def __call__(self) -> float:
        """Return the seconds since the epoch; does no I/O."""
        return self._clock() + self._offset

    async def adjust(self) -> None:
        """Measure the offset from the database's clock; does nothing on SQLite (a single node).

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        if self._database.is_embedded:
            return
        async with self._database.read() as transaction:
            before = self._clock()
            database_time = await transaction.scalar(
                text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)")
            )
            after = self._clock()
        # The database read its clock somewhere between `before` and `after`: a time in that range
        # means no measurable offset, otherwise the distance to the range is the offset.
        self._offset = database_time - min(max(database_time, before), after)
