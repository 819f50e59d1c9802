"""Deletes old rows in small batches: deliveries after 30 days, events of the log after a day.

The last 10,000 events of an account stay in its log, however old they are.
"""

import asyncio
from typing import Final

from outrider.service.database.engine import Database
from outrider.service.events import log as event_log
from outrider.service.webhooks.store import deliveries

RETENTION_SECONDS: Final = 30 * 86400.0

LOG_SECONDS: Final = 86400.0
"""Age up to which events stay in the log."""

LOG_EVENTS: Final = 10_000
"""Events of an account that stay in its log at any age."""

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


async def prune_log(database: Database, now: float, keep: int = LOG_EVENTS) -> None:
    """Remove from the logs what is older than `LOG_SECONDS` and not among the last `keep` events.

    Raises:
        SQLAlchemyError, OSError: the database is unavailable.
    """
    before = int((now - LOG_SECONDS) * 1000)
    for account_id in await event_log.outgrown(database, keep):
        await event_log.raise_floor(database, account_id, before=before, keep=keep)
        while await event_log.prune(database, account_id) == event_log.PRUNE_BATCH:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)  # as above
