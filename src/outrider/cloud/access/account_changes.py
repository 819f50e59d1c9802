"""Finds the accounts that `outrider admin` has changed or deleted.

Commands of the operator work on the database alone, without any node. What the nodes remember of
an account, and the sockets of its machines, would outlive its deletion.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.store import account_changes
from outrider.cloud.store.database import Database

LOOK_SECONDS: Final = 0.5

_log = structlog.get_logger(__name__)


class AccountChanges:
    """Looks for changed accounts, twice a second.

    Args:
        changed: called with the id of each account that was changed.
    """

    def __init__(self, database: Database, changed: Callable[[str], Awaitable[None]]) -> None:
        self._database = database
        self._changed = changed
        self._seen: dict[str, int] = {}

    async def start(self) -> None:
        """Take what has been changed so far as known; nothing is remembered of it yet."""
        self._seen = await account_changes.recent(self._database)

    async def run(self) -> None:
        """Look for changes, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("looking for changed accounts failed", error=str(error))

    async def look(self) -> None:
        """Call `changed` for each account that was changed since the last look.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; the next look finds the rest.
        """
        recent = await account_changes.recent(self._database)
        for account_id, changed_at in recent.items():
            if self._seen.get(account_id) != changed_at:
                await self._changed(account_id)
                self._seen[account_id] = changed_at
        self._seen = recent
