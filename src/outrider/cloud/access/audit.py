"""The audit trail: who asked for what, and what came of it. No bodies, no secrets.

Records are written in batches by one task. They wait in memory for half a second at the
most; beyond `MAX_WAITING` of them further ones are dropped, and the log says how many. A
stranger who is refused again and again in the same way is noted once a minute, so that a
flood of refusals cannot fill the database. Strangers are told apart as by the rate limits, an IPv6
address by its /64: whoever has one address has them all.

While the database refuses to store records, as on a full disk, they wait too. `failure` tells
why, and the service then refuses what it could not record (see `OUTRIDER_AUDIT_REQUIRED`).
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from outrider.cloud.access.addresses import bucket
from outrider.cloud.periodic import UNAVAILABLE
from outrider.cloud.store import audit
from outrider.cloud.store.audit import Record
from outrider.cloud.store.database import Database, cannot_store, is_away
from outrider.contract.ids import new_id

KEPT_SECONDS: Final = 90 * 86400.0
MAX_WAITING: Final = 10_000

_STRANGERS: Final = 10_000
_STRANGER_SECONDS: Final = 60.0
_WRITE_SECONDS: Final = 0.5
_PRUNE_SECONDS: Final = 3600.0

_SECRET: Final = re.compile(r"(?:ork_|omt_|whsec_|eyJ)[\w.-]+")
"""What stands in the place of an id when somebody sends the secret instead."""

_log = structlog.get_logger(__name__)


class Audit:
    """Keeps the trail.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._waiting: list[Record] = []
        self._dropped = 0
        self._pruned = 0.0
        self._strangers: OrderedDict[tuple[str, str, int], float] = OrderedDict()
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the database refused the last records; None where it stored them.

        A database that cannot be reached is no such reason: nothing is done without it anyway.
        """
        return self._failure

    def note(
        self,
        *,
        principal: str | None,
        account_id: str | None,
        action: str,
        target: str | None,
        outcome: int,
        address: str,
        request_id: str,
        at: float | None = None,
    ) -> None:
        """Note a request and its outcome, an HTTP status; `at` is when, now where it is None."""
        if account_id is None:
            address = bucket(address)
            if self._noted_lately((address, action, outcome)):
                return
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(
            Record(
                id=new_id("aud"),
                at=int((self._clock() if at is None else at) * 1000),
                account_id=account_id,
                principal=principal,
                action=action,
                target=None if target is None else _SECRET.sub("…", target)[:300],
                outcome=outcome,
                address=address[:64],
                request_id=request_id,
            )
        )

    async def keep_writing(self) -> None:
        """Write records down and forget the old ones, until cancelled."""
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            try:
                await self.write()
                await self._prune()
            except UNAVAILABLE as error:
                _log.warning("audit records wait for the database", error=str(error))

    async def write(self) -> None:
        """Write down what has been noted since the last call."""
        if self._dropped:
            _log.error("audit records dropped: too many at once", count=self._dropped)
            self._dropped = 0
        records, self._waiting = self._waiting, []
        if not records:
            return
        try:
            await audit.add(self._database, records)
        except BaseException as error:
            self._waiting = records + self._waiting
            if isinstance(error, UNAVAILABLE) and (cannot_store(error) or not is_away(error)):
                self._failure = str(getattr(error, "orig", None) or error)
            raise
        self._failure = None

    async def of_account(self, account_id: str, *, limit: int, before: str | None) -> list[Record]:
        """Return the account's records, newest first, those older than the one `before`."""
        with suppress(*UNAVAILABLE):  # those that wait can be read once they are written
            await self.write()
        return await audit.of_account(self._database, account_id, limit=limit, before=before)

    def _noted_lately(self, refusal: tuple[str, str, int]) -> bool:
        now = self._clock()
        if now - self._strangers.get(refusal, 0.0) < _STRANGER_SECONDS:
            return True
        self._strangers[refusal] = now
        self._strangers.move_to_end(refusal)
        if len(self._strangers) > _STRANGERS:
            self._strangers.popitem(last=False)
        return False

    async def _prune(self) -> None:
        now = self._clock()
        if now - self._pruned >= _PRUNE_SECONDS:
            self._pruned = now
            await audit.prune(self._database, int((now - KEPT_SECONDS) * 1000))
