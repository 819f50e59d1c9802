"""The audit trail: who requested what, and its outcome. It contains no bodies and no secrets.

One task writes the records in batches; a record waits in memory for at most half a second. Beyond
`MAX_WAITING` records, further ones are dropped and their count is logged.

Repeated identical refusals of an unauthenticated client are recorded once a minute, so that a
flood of refusals cannot fill the database. Such clients are identified as by the rate limits: an
IPv6 address counts as its /64, because one client usually controls all of it.

Records also wait while the database cannot store them, for example on a full disk. `failure` then
returns the reason, and the service rejects requests that it could not record (see
`OUTRIDER_AUDIT_REQUIRED`).
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import structlog
from cachetools import TTLCache

from outrider.contract.events import Refused
from outrider.contract.ids import new_id
from outrider.contract.text import printable
from outrider.service.accounts.rate_limits import MemoryWindows
from outrider.service.accounts.store import audit
from outrider.service.accounts.store.audit import Record
from outrider.service.database.engine import DATABASE_ERRORS, Database, cannot_store, is_unavailable
from outrider.service.http.client_address import network_of
from outrider.service.periodic import WriteBehind, run_periodically

KEPT_SECONDS: Final = 90 * 86400.0
MAX_WAITING: Final = 10_000

_MAX_STRANGERS: Final = 10_000
_STRANGER_SECONDS: Final = 60.0
_WRITE_SECONDS: Final = 0.5
_PRUNE_SECONDS: Final = 3600.0

_SECRET: Final = re.compile(r"(?:ork_|omt_|whsec_|eyJ)[\w.-]+")
"""Matches secrets that a client sent in place of an id; they are replaced before storing."""

_log = structlog.get_logger(__name__)


class Audit:
    """Collects audit records and writes them in batches.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._buffer: WriteBehind[Record] = WriteBehind(self._store, "audit", MAX_WAITING)
        self._pruned_at = 0.0
        self._strangers: TTLCache[tuple[str, str, int], None] = TTLCache(
            _MAX_STRANGERS, _STRANGER_SECONDS, clock
        )
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the database could not store the last records; None if it stored them.

        An unreachable database does not count: requests fail without it anyway.
        """
        return self._failure

    @property
    def waiting(self) -> int:
        """The number of records that are not written yet."""
        return len(self._buffer)

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
        """Record a request and its outcome, an HTTP status.

        Args:
            at: the time in seconds since the epoch; None for now.
        """
        if account_id is None:
            address = network_of(address)
            if self._is_repeated((address, action, outcome)):
                return
        record = Record(
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
        self._buffer.put(record.id, record)

    async def keep_writing(self) -> None:
        """Write waiting records and delete expired ones, until cancelled."""
        await run_periodically(self._write_and_prune, _WRITE_SECONDS, "write audit")

    async def write(self) -> None:
        """Write the waiting records; they keep waiting if that fails.

        If the commit succeeded but its confirmation was lost, the next call inserts the same ids
        again, and the database ignores them.
        """
        await self._buffer.flush()

    async def of_account(self, account_id: str, *, limit: int, before: str | None) -> list[Record]:
        """Return the account's records, newest first; only those older than the id `before`."""
        with suppress(*DATABASE_ERRORS):  # records that still wait are missing from this page
            await self.write()
        return await audit.of_account(self._database, account_id, limit=limit, before=before)

    async def prune(self) -> None:
        """Delete expired records, at most once an hour."""
        now = self._clock()
        if now - self._pruned_at >= _PRUNE_SECONDS:
            self._pruned_at = now
            await audit.prune(self._database, int((now - KEPT_SECONDS) * 1000))

    def _is_repeated(self, refusal: tuple[str, str, int]) -> bool:
        if refusal in self._strangers:
            return True
        self._strangers[refusal] = None
        return False

    async def _store(self, records: dict[str, Record]) -> None:
        try:
            await audit.add(self._database, list(records.values()))
        except DATABASE_ERRORS as error:
            if cannot_store(error) or not is_unavailable(error):
                self._failure = str(getattr(error, "orig", None) or error)
            raise
        self._failure = None

    async def _write_and_prune(self) -> None:
        await self.write()
        await self.prune()


A_MINUTE: Final = 120
"""Refusals of one machine in a minute that are recorded; further ones are dropped."""

_MACHINES: Final = 10_000
_SHOWN_OF_TARGET: Final = 200


class RefusalSink:
    """Records what machines refused their agents; limited to `A_MINUTE` for each machine.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._windows = MemoryWindows(_MACHINES, clock)

    def note(self, account_id: str, machine_id: str, refused: Refused) -> None:
        """Record a refusal with the machine as its principal; drop it over the limit.

        The time that the machine reports is trusted only between the start of retention and now.
        """
        if not self._windows.hit(machine_id, A_MINUTE, 60, 1)[0]:
            _log.info("refusal dropped: too many of one machine", machine=machine_id)
            return
        subject = f"{refused.session_id} {refused.target[:_SHOWN_OF_TARGET]}"
        earlier = f" (and {refused.suppressed} before it)" if refused.suppressed else ""
        now = self._clock()
        self._audit.note(
            principal=machine_id,
            account_id=account_id,
            action=printable(refused.action),
            target=printable(subject + earlier),
            outcome=HTTPStatus.FORBIDDEN,
            address="",
            request_id="",
            at=min(max(refused.timestamp / 1000, now - KEPT_SECONDS), now),
        )
