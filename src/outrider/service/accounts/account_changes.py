"""Polls for accounts that `outrider admin` has changed or deleted.

Operator commands write to the database and do not contact any node. Without this poll, a node's
caches and the connections of an account's machines would outlive the account.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from outrider.service.accounts.store import account_changes
from outrider.service.database.engine import Database
from outrider.service.periodic import run_periodically

POLL_SECONDS: Final = 0.5

_log = structlog.get_logger(__name__)


class AccountChanges:
    """Polls the database for changed accounts every `POLL_SECONDS` seconds.

    Args:
        changed: called with the id of each changed account; may be called again for the same
            change if it raises.
    """

    def __init__(self, database: Database, changed: Callable[[str], Awaitable[None]]) -> None:
        self._database = database
        self._changed = changed
        self._seen: dict[str, int] = {}

    async def start(self) -> None:
        """Skip the changes made so far: this node has not cached anything of them yet."""
        self._seen = await account_changes.recent(self._database)

    async def run(self) -> None:
        """Poll until cancelled."""
        await run_periodically(self.poll, POLL_SECONDS, "poll account changes")

    async def poll(self) -> None:
        """Call `changed` for each account that has changed since the last call.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; the next call finds the rest.
        """
        recent = await account_changes.recent(self._database)
        for account_id, changed_at in recent.items():
            if self._seen.get(account_id) != changed_at:
                # Recorded only after the callback succeeded: a failed one is repeated.
                await self._changed(account_id)
                self._seen[account_id] = changed_at
        self._seen = recent
