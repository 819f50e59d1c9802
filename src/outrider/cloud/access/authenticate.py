"""From a request's credential to a principal.

The credentials in use are remembered for half a second each, so that a busy one costs the
database two look-ups a second and a revocation, by whatever process, acts within one.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from outrider.cloud.access import secrets
from outrider.cloud.access.principal import Principal
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.store import api_keys
from outrider.cloud.store.database import Database
from outrider.contract.errors import ApiError, ErrorCode

_REMEMBERED_SECONDS: Final = 0.5
_REMEMBERED_CREDENTIALS: Final = 10_000
_SAVE_SECONDS: Final = 5.0
_JWT_START: Final = "eyJ"  # base64 of `{"`
_MAX_TOKEN: Final = 4096


class _Remembered(NamedTuple):
    """A credential that worked; `until` and `expires_at` are seconds since the epoch."""

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
        self._used: dict[str, int] = {}

    async def principal(self, token: str) -> Principal:
        """Return who has this credential: an API key, or a session's token.

        Raises:
            ApiError: 401 `AUTH_INVALID`, it is not one that works.
        """
        is_session = token.startswith(_JWT_START) and len(token) <= _MAX_TOKEN
        if not is_session and not secrets.is_key(token):
            raise _invalid()
        digest, now = secrets.digest(token), self._clock()
        known = self._remembered.get(digest)
        if known is None or known.until <= now:
            known = await (self._session(token, now) if is_session else self._key(digest, now))
            self._remember(digest, known)
        if known is None or known.expires_at <= now:
            raise _invalid()
        if not is_session:
            self._used[known.principal.id] = int(now * 1000)
        return known.principal

    def forget(self, principal_id: str) -> None:
        """Look the principal's credentials up again: one of them was ended or revoked."""
        for digest, known in list(self._remembered.items()):
            if known.principal.id == principal_id:
                del self._remembered[digest]

    async def keep_saving(self) -> None:
        """Write down every few seconds which keys were used, until cancelled."""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await self.save_last_used()

    async def save_last_used(self) -> None:
        """Write down which keys were used since the last call."""
        used, self._used = self._used, {}
        if used:
            await api_keys.touch(self._database, used)

    async def _key(self, digest: bytes, now: float) -> _Remembered | None:
        key = await api_keys.by_hash(self._database, digest)
        if key is None or key.revoked_at is not None:
            return None
        expires_at = float("inf") if key.expires_at is None else key.expires_at / 1000
        principal = Principal("key", key.id, key.account_id, key.scopes)
        return _Remembered(now + _REMEMBERED_SECONDS, principal, expires_at)

    async def _session(self, token: str, now: float) -> _Remembered | None:
        principal = await self._sessions.principal(token)
        if principal is None or principal.session is None:
            return None
        return _Remembered(
            now + _REMEMBERED_SECONDS, principal, principal.session.expires_at / 1000
        )

    def _remember(self, digest: bytes, known: _Remembered | None) -> None:
        if known is None:
            self._remembered.pop(digest, None)
            return
        self._remembered[digest] = known
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _REMEMBERED_CREDENTIALS:
            self._remembered.popitem(last=False)


def _invalid() -> ApiError:
    return ApiError(
        401,
        "This credential is not valid: it is mistyped, unknown, expired or revoked",
        code=ErrorCode.AUTH_INVALID,
    )
