"""Deletes the history of deliveries after 30 days, in small batches."""

import asyncio
from typing import Final

from outrider.cloud.store import deliveries
from outrider.cloud.store.database import Database

RETENTION_SECONDS: Final = 30 * 86400.0

PRUNE_INTERVAL: Final = 600.0

_PAUSE_SECONDS: Final = 0.1


async def prune(database: Database, now: float) -> None:
    """Delete rows older than the retention at `now` (seconds since the epoch).

    Raises:
        SQLAlchemyError, OSError: the database is unavailable.
    """
    before = int((now - RETENTION_SECONDS) * 1000)
    while await deliveries.prune(database, before) == deliveries.PRUNE_BATCH:  # noqa: ASYNC110
        await asyncio.sleep(_PAUSE_SECONDS)  # other writers get their turn
