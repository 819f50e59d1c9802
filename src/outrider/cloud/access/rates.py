"""The rate limits: per key, session and address, and on the routes that take credentials.

The headers are those of the IETF draft `RateLimit header fields for HTTP`
(draft-ietf-httpapi-ratelimit-headers). The counting is a storage for the `limits` library, asked
in one step: by way of the library's strategy a hit costs 4.2 us, so 1.1.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec
import structlog

from outrider.cloud.access.shared_windows import SharedWindows
from outrider.cloud.access.windows import Taken, WindowStorage
from outrider.cloud.store.redis import RedisAway
from outrider.contract.errors import ApiError, ErrorCode

LimitName = Literal["key", "session", "ip", "auth", "login"]

_SECONDS: Final[dict[LimitName, int]] = {
    "key": 60,
    "session": 60,
    "ip": 60,
    "auth": 300,
    "login": 3600,
}
_WHOSE: Final[dict[LimitName, str]] = {
    "key": "this API key",
    "session": "this session",
    "ip": "this address",
    "auth": "this address on routes that take credentials",
    "login": "addresses that have never logged in to this account",
}

_WARN_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)

Header = tuple[bytes, bytes]


class Standing(msgspec.Struct, frozen=True, gc=False):
    """Where a caller stands: hits left, and seconds until there are more of them."""

    limit: LimitName
    remaining: int
    reset: int


class _Limit(msgspec.Struct, frozen=True):
    """One of the limits, with the counters of this node."""

    name: LimitName
    amount: int
    seconds: int
    windows: WindowStorage

    def standing(self, taken: Taken) -> Standing:
        """Return where the caller stands.

        Raises:
            RateLimited: the window is full.
        """
        fits, used, before, wait = taken
        if before:  # until it loses a hit, or at the latest until this window becomes the older
            gap = self.seconds / before
            wait = wait % gap or gap
        # Past the moment, not at it: only then is there room.
        reset = int(wait + 0.005) + 1 if used or before else 1
        remaining = self.amount - used if used < self.amount else 0
        standing = Standing(self.name, remaining, reset)
        if not fits:
            raise self.refusal(standing)
        return standing

    def refusal(self, standing: Standing) -> "RateLimited":
        """Return the error that tells a caller to come back later."""
        return RateLimited(
            f"Over {self.amount} requests in {self.seconds} seconds by {_WHOSE[self.name]}: "
            f"try again in {standing.reset} s",
            standing,
        )


class Rates:
    """Counts requests in sliding windows.

    Args:
        key, session, ip: requests per minute of one API key, session, address.
        auth: requests per 5 minutes of one address on the routes that take credentials.
        login: logins per hour to one account from all addresses that it does not know.
        shared: what all nodes count in. While it is away, each counts by itself: a limit is
            then one of each node, and nobody is refused for the absence.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        key: int,
        ip: int,
        auth: int,
        session: int = 600,
        login: int = 30,
        shared: SharedWindows | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._warned_at = 0.0
        amounts: dict[LimitName, int] = {
            "key": key,
            "session": session,
            "ip": ip,
            "auth": auth,
            "login": login,
        }
        self._limits = {
            name: _Limit(name, amount, _SECONDS[name], WindowStorage(clock=clock))
            for name, amount in amounts.items()
        }
        self._told: dict[tuple[LimitName, ...], tuple[Header, bytes]] = {}

    def hit_here(self, name: LimitName, who: str) -> Standing | None:
        """Count a request, where nobody but this node counts; else do nothing and return None.

        Raises:
            ApiError: as `hit` does.
        """
        if self._shared is not None:
            return None
        limit = self._limits[name]
        return limit.standing(limit.windows.take(who, limit.amount, limit.seconds, 1))

    async def hit(self, name: LimitName, who: str) -> Standing:
        """Count a request.

        Raises:
            ApiError: 429 `RATE_LIMITED`, the window is full; `standing` has where they stand.
        """
        limit = self._limits[name]
        return limit.standing(await self._take(limit, who, 1))

    async def check(self, name: LimitName, who: str) -> Standing:
        """Raise as `hit` would, but count nothing."""
        limit = self._limits[name]
        standing = limit.standing(await self._take(limit, who, 0))
        if standing.remaining < 1:
            raise limit.refusal(standing)
        return standing

    def headers(self, standings: list[Standing]) -> list[Header]:
        """Return the headers that tell where the caller stands with each limit."""
        names: list[LimitName] = []
        state: list[int] = []
        for standing in standings:
            names.append(standing.limit)
            state.append(standing.remaining)
            state.append(standing.reset)
        key = tuple(names)
        told = self._told.get(key)
        if told is None:
            if not key:
                return []
            told = self._told[key] = self._telling(key)
        policy, form = told
        return [policy, (b"ratelimit", form % tuple(state))]

    def _telling(self, names: tuple[LimitName, ...]) -> tuple[Header, bytes]:
        """Return the header that tells of limits, and the form of the one that tells standings."""
        limits = [self._limits[name] for name in names]
        policies = [f'"{limit.name}";q={limit.amount};w={limit.seconds}' for limit in limits]
        form = ", ".join([f'"{name}";r=%d;t=%d' for name in names])
        return (b"ratelimit-policy", ", ".join(policies).encode()), form.encode()

    async def _take(self, limit: _Limit, who: str, count: int) -> Taken:
        """Count in the windows that all nodes share, or while there are none in this node's own."""
        if self._shared is not None:
            try:
                return await self._shared.take(limit.name, who, limit.amount, limit.seconds, count)
            except RedisAway as error:
                now = self._clock()
                if now - self._warned_at >= _WARN_SECONDS:
                    self._warned_at = now
                    _log.warning("rate limits are each node's own for now", error=str(error))
        return limit.windows.take(who, limit.amount, limit.seconds, count)


class RateLimited(ApiError):
    """A window is full."""

    def __init__(self, message: str, standing: Standing) -> None:
        super().__init__(429, message, code=ErrorCode.RATE_LIMITED, retry_after=standing.reset)
        self.standing = standing
