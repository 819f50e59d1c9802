"""Forgets the history of deliveries after 30 days, a few rows at a time."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.store import deliveries
from outrider.cloud.store.database import Database

KEPT_SECONDS: Final = 30 * 86400.0

_EVERY_SECONDS: Final = 600.0
_BREATH_SECONDS: Final = 0.1

_log = structlog.get_logger(__name__)


async def keep_pruning(database: Database, clock: Callable[[], float] = time.time) -> None:
    """Forget what is old, again and again, until cancelled."""
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        try:
            await prune(database, clock())
        except SQLAlchemyError as error:
            _log.warning("history is pruned later", error=str(error))


async def prune(database: Database, now: float) -> None:
    """Forget what is old at `now` (seconds since the epoch), in batches with breaths between."""
    before = int((now - KEPT_SECONDS) * 1000)
    while await deliveries.prune(database, before) == deliveries.PRUNED_AT_ONCE:  # noqa: ASYNC110
        await asyncio.sleep(_BREATH_SECONDS)
