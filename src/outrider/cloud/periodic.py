"""Periodic work of the service."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from outrider.cloud.store.database import DATABASE_ERRORS

_log = structlog.get_logger(__name__)


async def run_periodically(
    work: Callable[[], Awaitable[object]], seconds: float, name: str
) -> None:
    """Call `work` after every `seconds` seconds, until cancelled.

    A run that fails because the database is unavailable is logged as `periodic work failed` with
    this `name`; the next run tries again. Any other error is a defect and ends the task.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except DATABASE_ERRORS as error:
            _log.warning("periodic work failed", work=name, error=str(error))
