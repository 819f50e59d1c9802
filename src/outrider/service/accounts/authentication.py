"""Authentication: resolves a request's credential to its principal, with scopes.

API keys are cached for half a second, for which a revoked key may still work on other nodes.
Concurrent requests with the same uncached key share one database query.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

import structlog
from cachetools import FIFOCache

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts import credentials
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.store import api_keys, dashboard_sessions
from outrider.service.database.engine import Database
from outrider.service.periodic import WriteBehind, run_periodically

_CACHE_SECONDS: Final = 0.5
_SAVE_SECONDS: Final = 5.0
_JWT_START: Final = "eyJ"  # base64 of `{"`
_MAX_TOKEN: Final = 4096
_MAX_COOKIES: Final = 50
"""Cookies of one name that are tried; a browser keeps 180 for a host."""

_log = structlog.get_logger(__name__)


class _CachedKey(NamedTuple):
    """A valid key. `until` is the end of the cache entry; both times are epoch seconds."""

    until: float
    principal: Principal
    expires_at: float


class Authenticator:
    """Checks credentials and records when they were last used.

    Args:
        clock: seconds since the epoch.
        max_cached_keys: API keys in the cache; the oldest entry is evicted.
    """

    def __init__(
        self,
        database: Database,
        sessions: DashboardSessions,
        clock: Callable[[], float] = time.time,
        max_cached_keys: int = 10_000,
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._clock = clock
        self._cache: FIFOCache[bytes, _CachedKey] = FIFOCache(max_cached_keys)
        self._lookups: dict[bytes, asyncio.Task[_CachedKey | None]] = {}
        self._key_uses: WriteBehind[float] = WriteBehind(self._save_keys, "last use of keys")
        self._session_uses: WriteBehind[float] = WriteBehind(
            self._save_sessions, "last use of sessions"
        )

    @property
    def cached_keys(self) -> int:
        """The number of API keys in the cache."""
        return len(self._cache)

    def claimed(self, token: str) -> Principal | None:
        """Return the session that a program's token is of, even if it has ended; None if none."""
        return self._sessions.claimed(token) if _may_be_session(token) else None

    def claimed_by_page(self, cookies: Iterable[str], page_secret: str) -> Principal | None:
        """Return the session that cookies and the page secret are of, even if it has ended.

        Servers at other ports of this host may set cookies of the same name, and earlier ones of
        this session too: the latest login counts.
        """
        tokens = islice(filter(_may_be_session, cookies), _MAX_COOKIES)
        claimed = [self._sessions.claimed(token, page_secret) for token in tokens]
        principals = [principal for principal in claimed if principal is not None]
        return max(principals, key=lambda principal: principal.auth_time or 0, default=None)

    async def active(self, claimed: Principal) -> Principal:
        """Return the principal of a session that has not ended.

        Raises:
            ApiError: 401 `AUTH_INVALID`, it has.
        """
        assert claimed.session is not None, "only of sessions"
        if not await self._sessions.is_active(claimed.session.id):
            raise _not_valid()
        self._session_uses.put(claimed.session.id, self._clock())
        return claimed

    async def principal(self, token: str) -> Principal:
        """Return the principal of a credential: an API key or a program's session token.

        Raises:
            ApiError: 401 `AUTH_INVALID`, the credential is not valid.
        """
        claimed = self.claimed(token)
        if claimed is not None:
            return await self.active(claimed)
        principal = await self._key(token)
        if principal is None:
            raise _not_valid()
        return principal

    def forget(self, key_id: str) -> None:
        """Remove a key from the cache, after it was revoked."""
        for digest, cached in list(self._cache.items()):
            if cached.principal.id == key_id:
                del self._cache[digest]

    def forget_account(self, account_id: str) -> None:
        """Remove an account's keys from the cache, after the account was changed or deleted."""
        for digest, cached in list(self._cache.items()):
            if cached.principal.account_id == account_id:
                del self._cache[digest]

    def last_seen(self, session_id: str) -> int:
        """Return when this node last saw a session, in epoch milliseconds; 0 if that is saved."""
        return int((self._session_uses.get(session_id) or 0) * 1000)

    async def keep_saving(self) -> None:
        """Save every few seconds when keys and sessions were last used, until cancelled."""
        await run_periodically(self.save_last_used, _SAVE_SECONDS, "save last use")

    async def save_last_used(self) -> None:
        """Save when keys and sessions were last used, since the last call."""
        await self._key_uses.flush()
        await self._session_uses.flush()

    async def _save_keys(self, uses: dict[str, float]) -> None:
        await api_keys.touch(self._database, _millis(uses))

    async def _save_sessions(self, uses: dict[str, float]) -> None:
        await dashboard_sessions.touch(self._database, _millis(uses))

    async def _key(self, token: str) -> Principal | None:
        digest, now = credentials.digest(token), self._clock()
        cached = self._cache.get(digest)
        if cached is None or cached.until <= now:
            if not credentials.is_key(token):
                return None
            # One query for all concurrent requests with a key.
            lookup = self._lookups.get(digest)
            if lookup is None:
                lookup = self._lookups[digest] = asyncio.create_task(self._look_up(digest, now))
                lookup.add_done_callback(lambda _: self._lookups.pop(digest, None))
            cached = await asyncio.shield(lookup)  # one of those that wait may be cancelled
        if cached is None or cached.expires_at <= now:
            return None
        self._key_uses.put(cached.principal.id, now)
        return cached.principal

    async def _look_up(self, digest: bytes, now: float) -> _CachedKey | None:
        key = await api_keys.by_hash(self._database, digest)
        if key is None or key.revoked_at is not None:
            self._cache.pop(digest, None)
            return None
        expires_at = float("inf") if key.expires_at is None else key.expires_at / 1000
        principal = Principal("key", key.id, key.account_id, key.scopes, name=key.name)
        cached = self._cache[digest] = _CachedKey(now + _CACHE_SECONDS, principal, expires_at)
        return cached


def _may_be_session(token: str) -> bool:
    return token.startswith(_JWT_START) and len(token) <= _MAX_TOKEN


def _not_valid() -> ApiError:
    return ApiError(
        401,
        "This credential is not valid: it is mistyped, unknown, expired or revoked",
        code=ErrorCode.AUTH_INVALID,
    )


def _millis(times: dict[str, float]) -> dict[str, int]:
    return {name: int(at * 1000) for name, at in times.items()}
