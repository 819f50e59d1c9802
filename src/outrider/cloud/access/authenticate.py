"""From an `Authorization` header to a principal.

The keys in use are remembered for half a second each, so that a busy key costs the database
two look-ups a second and a revocation, by whatever process, acts within one.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from outrider.cloud.access import secrets
from outrider.cloud.access.principal import Principal
from outrider.cloud.store import api_keys
from outrider.cloud.store.database import Database
from outrider.contract.errors import ApiError, ErrorCode

_REMEMBERED_SECONDS: Final = 0.5
_REMEMBERED_KEYS: Final = 10_000
_SAVE_SECONDS: Final = 5.0


class Authenticator:
    """Checks credentials.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._remembered: OrderedDict[bytes, tuple[float, Principal, int | None]] = OrderedDict()
        self._used: dict[str, int] = {}

    async def principal(self, header: str | None) -> Principal:
        """Return who sent this `Authorization` header.

        Raises:
            ApiError: 401, `AUTH_REQUIRED` without a header, `AUTH_INVALID` where it is not a
                credential that works.
        """
        if header is None:
            raise ApiError(
                401,
                "Send your API key in the header `Authorization: Bearer <API_KEY>`",
                code=ErrorCode.AUTH_REQUIRED,
            )
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not secrets.is_key(token):
            raise _invalid()
        digest, now = secrets.digest(token), self._clock()
        known = self._remembered.get(digest)
        if known is None or known[0] <= now:
            known = await self._look_up(digest, now)
        _, principal, expires_at = known
        if expires_at is not None and expires_at <= now * 1000:
            raise _invalid()
        self._used[principal.id] = int(now * 1000)
        return principal

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

    async def _look_up(self, digest: bytes, now: float) -> tuple[float, Principal, int | None]:
        key = await api_keys.by_hash(self._database, digest)
        if key is None or key.revoked_at is not None:
            self._remembered.pop(digest, None)
            raise _invalid()
        principal = Principal("key", key.id, key.account_id, key.scopes)
        known = (now + _REMEMBERED_SECONDS, principal, key.expires_at)
        self._remembered[digest] = known
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _REMEMBERED_KEYS:
            self._remembered.popitem(last=False)
        return known


def _invalid() -> ApiError:
    return ApiError(
        401,
        "This credential is not valid: it is mistyped, unknown, expired or revoked",
        code=ErrorCode.AUTH_INVALID,
    )
