"""Authentication: from a request's credential to its principal, with scopes."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.access import credentials
from outrider.cloud.access.principal import Principal
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.store import api_keys, sessions
from outrider.cloud.store.database import Database
from outrider.contract.errors import ApiError, ErrorCode

_REMEMBERED_SECONDS: Final = 0.5
_REMEMBERED_KEYS: Final = 10_000
_SAVE_SECONDS: Final = 5.0
_JWT_START: Final = "eyJ"  # base64 of `{"`
_MAX_TOKEN: Final = 4096

_log = structlog.get_logger(__name__)


class _Remembered(NamedTuple):
    """A key that worked; `until` and `expires_at` are seconds since the epoch."""

    until: float
    principal: Principal
    expires_at: float


class Authenticator:
    """Checks credentials.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self, database: Database, sessions: Sessions, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._clock = clock
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._looking: dict[bytes, asyncio.Task[_Remembered | None]] = {}
        self._used: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    def remembered(self, token: str) -> Principal | None:
        """Return who has this API key, where that is still known from the last request with it."""
        digest, now = credentials.digest(token), self._clock()
        known = self._remembered.get(digest)
        return None if known is None or known.until <= now else self._using(known, now)

    def session_of(self, token: str) -> str | None:
        """Return the session that a token was made for, alive or not; None for anything else."""
        if not token.startswith(_JWT_START) or len(token) > _MAX_TOKEN:
            return None
        claimed = self._sessions.claimed(token)
        return None if claimed is None or claimed.session is None else claimed.session.id

    async def principal(self, token: str) -> Principal:
        """Return who has this credential: an API key, or a session's token.

        Raises:
            ApiError: 401 `AUTH_INVALID`, it is not one that works.
        """
        if token.startswith(_JWT_START) and len(token) <= _MAX_TOKEN:
            principal = await self._sessions.principal(token)
            if principal is not None and principal.session is not None:
                self._seen[principal.session.id] = self._clock()
        else:
            principal = await self._key(token)
        if principal is None:
            raise ApiError(
                401,
                "This credential is not valid: it is mistyped, unknown, expired or revoked",
                code=ErrorCode.AUTH_INVALID,
            )
        return principal

    def forget(self, key_id: str) -> None:
        """Look a key up again: it was revoked."""
        for digest, known in list(self._remembered.items()):
            if known.principal.id == key_id:
                del self._remembered[digest]

    def forget_account(self, account_id: str) -> None:
        """Look an account's keys up again: it was changed or deleted."""
        for digest, known in list(self._remembered.items()):
            if known.principal.account_id == account_id:
                del self._remembered[digest]

    def last_seen(self, session_id: str) -> int:
        """Return when this node saw a session last, where that is not written down; else 0."""
        return int(self._seen.get(session_id, 0) * 1000)

    async def keep_saving(self) -> None:
        """Write down every few seconds which keys and sessions were used, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            try:
                await self.save_last_used()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("when keys were used waits for the database", error=str(error))

    async def save_last_used(self) -> None:
        """Write down which keys and sessions were used since the last call."""
        used, self._used = self._used, {}
        seen, self._seen = self._seen, {}
        try:
            if used:
                await api_keys.touch(self._database, _millis(used))
                used = {}
            if seen:
                await sessions.touch(self._database, _millis(seen))
        except BaseException:
            self._used, self._seen = used | self._used, seen | self._seen
            raise

    async def _key(self, token: str) -> Principal | None:
        digest, now = credentials.digest(token), self._clock()
        known = self._remembered.get(digest)
        if known is None or known.until <= now:
            if not credentials.is_key(token):
                return None
            known = await self._looked_up(digest, now)
        return None if known is None else self._using(known, now)

    def _using(self, known: _Remembered, now: float) -> Principal | None:
        _, principal, expires_at = known
        if expires_at <= now:
            return None
        self._used[principal.id] = now
        return principal

    async def _looked_up(self, digest: bytes, now: float) -> _Remembered | None:
        """Look a key up, once for all the requests that wait for it."""
        task = self._looking.get(digest)
        if task is None:
            task = self._looking[digest] = asyncio.create_task(self._look_up(digest, now))
            task.add_done_callback(lambda _: self._looking.pop(digest, None))
        return await asyncio.shield(task)  # one of those that wait may be cancelled

    async def _look_up(self, digest: bytes, now: float) -> _Remembered | None:
        known = await self._read(digest, now)
        self._remember(digest, known)
        return known

    async def _read(self, digest: bytes, now: float) -> _Remembered | None:
        key = await api_keys.by_hash(self._database, digest)
        if key is None or key.revoked_at is not None:
            return None
        expires_at = float("inf") if key.expires_at is None else key.expires_at / 1000
        principal = Principal("key", key.id, key.account_id, key.scopes)
        return _Remembered(now + _REMEMBERED_SECONDS, principal, expires_at)

    def _remember(self, digest: bytes, known: _Remembered | None) -> None:
        if known is None:
            self._remembered.pop(digest, None)
            return
        self._remembered[digest] = known
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _REMEMBERED_KEYS:
            self._remembered.popitem(last=False)


def _millis(times: dict[str, float]) -> dict[str, int]:
    return {name: int(at * 1000) for name, at in times.items()}
