"""Ends what a credential keeps open, once it is revoked, ended or expired.

A request is authenticated when it begins. Event streams and requests that wait last for longer, so
their credentials are checked again: all of a node with one query for each few hundred, because ten
thousand may be open. (WebSockets check their own: `api.sockets`.)
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from outrider.service.accounts.principal import Principal
from outrider.service.accounts.store import api_keys, dashboard_sessions
from outrider.service.batched import batched
from outrider.service.database.engine import Database
from outrider.service.periodic import run_periodically

CHECK_INTERVAL: Final = 2.0
"""Seconds between two checks. What a revoked credential keeps open ends within 5 s."""

_CHECKED_AT_ONCE: Final = 500


class Credential:
    """An API key or a dashboard session. Not the whole principal: ten thousand may be kept."""

    __slots__ = ("account_id", "id", "kind")

    def __init__(self, principal: Principal) -> None:
        self.account_id = principal.account_id
        self.kind = principal.kind
        self.id = principal.id if principal.session is None else principal.session.id


class Holder(Protocol):
    """What stays open only while its credential is valid."""

    @property
    def credential(self) -> Credential:
        """The credential that it was opened with."""

    def revoked(self) -> None:
        """End it: the credential is no longer valid. Must not block; may be called again."""


class RevocationWatch:
    """Checks the credentials of what is open on this node.

    Args:
        clock: seconds since the epoch.
        interval: seconds between two checks.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        interval: float = CHECK_INTERVAL,
    ) -> None:
        self._database = database
        self._clock = clock
        self._interval = interval
        self._holders: set[Holder] = set()

    def add(self, holder: Holder) -> None:
        """Check the credential of `holder` from now on, until it is removed."""
        self._holders.add(holder)

    def remove(self, holder: Holder) -> None:
        """Stop checking the credential of `holder`."""
        self._holders.discard(holder)

    async def run(self) -> None:
        """Check from time to time, until cancelled."""
        await run_periodically(self._check, self._interval, "check credentials")

    async def _check(self) -> None:
        """End everything whose credential is no longer valid."""
        checked = list(self._holders)
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for holder in checked:
            ids[holder.credential.kind].add(holder.credential.id)
        now = int(self._clock() * 1000)
        valid: set[str] = set()
        for batch in batched(ids["key"], _CHECKED_AT_ONCE):
            valid |= await api_keys.valid(self._database, batch, now)
        for batch in batched(ids["session"], _CHECKED_AT_ONCE):
            valid |= await dashboard_sessions.living(self._database, batch, now)
        for holder in checked:
            if holder.credential.id not in valid:
                holder.revoked()
