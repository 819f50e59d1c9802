"""The audit trail: who asked for what, and its outcome. No bodies, no secrets.

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
from http import HTTPStatus
from typing import Final

import structlog

from outrider.cloud.access.client_address import bucket
from outrider.cloud.access.rate_limits import MemoryWindows
from outrider.cloud.periodic import UNAVAILABLE
from outrider.cloud.store import audit
from outrider.cloud.store.audit import Record
from outrider.cloud.store.database import Database, cannot_store, is_unavailable
from outrider.contract.events import Refused
from outrider.contract.ids import new_id
from outrider.contract.text import printable

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
        """Why the database refused the last records; None if it stored them.

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
            if isinstance(error, UNAVAILABLE) and (
                cannot_store(error) or not is_unavailable(error)
            ):
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


A_MINUTE: Final = 120
"""RefusalSink of one machine in a minute that get into the audit."""

_MACHINES: Final = 10_000
_SHOWN_OF_TARGET: Final = 200


class RefusalSink:
    """Records in the audit what machines refused their agents; bounded for each machine.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._lately = MemoryWindows(_MACHINES, clock)

    def note(self, account_id: str, machine_id: str, refused: Refused) -> None:
        """Note a refusal, as of the machine itself; one too many is dropped."""
        if not self._lately.hit(machine_id, A_MINUTE, 60, 1)[0]:
            _log.info("refusal not noted: too many of one machine", machine=machine_id)
            return
        what = f"{refused.session_id} {refused.target[:_SHOWN_OF_TARGET]}"
        more = f" (and {refused.untold} before it)" if refused.untold else ""
        now = self._clock()
        self._audit.note(
            principal=machine_id,
            account_id=account_id,
            action=printable(refused.action),
            target=printable(what + more),
            outcome=HTTPStatus.FORBIDDEN,
            address="",
            request_id="",
            at=min(max(refused.timestamp / 1000, now - KEPT_SECONDS), now),
        )
