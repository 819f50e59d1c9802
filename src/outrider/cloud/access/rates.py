"""The rate limits: per key, per address, and on the routes that take credentials.

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
from outrider.cloud.access.windows import Window, WindowStorage
from outrider.cloud.store.redis import RedisAway
from outrider.contract.errors import ApiError, ErrorCode

LimitName = Literal["key", "ip", "auth"]

_SECONDS: Final[dict[LimitName, int]] = {"key": 60, "ip": 60, "auth": 300}
_WHOSE: Final[dict[LimitName, str]] = {
    "key": "this API key",
    "ip": "this address",
    "auth": "this address on routes that take credentials",
}

_WARN_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)

Header = tuple[bytes, bytes]


class Standing(msgspec.Struct, frozen=True, gc=False):
    """Where a caller stands: hits left, and seconds until there are more of them."""

    limit: LimitName
    remaining: int
    reset: int


class Rates:
    """Counts requests in sliding windows.

    Args:
        key, ip: requests per minute of one API key, of one address.
        auth: requests per 5 minutes of one address on the routes that take credentials.
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
        shared: SharedWindows | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._warned_at = 0.0
        self._amounts: dict[LimitName, int] = {"key": key, "ip": ip, "auth": auth}
        self._windows = {name: WindowStorage(clock=clock) for name in self._amounts}
        self._told: dict[tuple[LimitName, ...], tuple[Header, bytes]] = {}

    async def hit(self, name: LimitName, who: str) -> Standing:
        """Count a request.

        Raises:
            ApiError: 429 `RATE_LIMITED`, the window is full; `standings` has where they stand.
        """
        if self._shared is None:
            taken = self._windows[name].take(who, self._amounts[name], _SECONDS[name], 1)
            return self._standing(name, taken)
        return self._standing(name, await self._take_together(self._shared, name, who, 1))

    async def check(self, name: LimitName, who: str) -> Standing:
        """Raise as `hit` would, but count nothing."""
        taken = (
            self._take(name, who, 0)
            if self._shared is None
            else await self._take_together(self._shared, name, who, 0)
        )
        standing = self._standing(name, taken)
        if standing.remaining < 1:
            raise self._refusal(standing)
        return standing

    def headers(self, standings: list[Standing]) -> list[Header]:
        """Return the headers that tell where the caller stands with each limit."""
        names: list[LimitName] = []
        state: list[int] = []
        for standing in standings:
            names.append(standing.limit)
            state += (standing.remaining, standing.reset)
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
        policies = [f'"{name}";q={self._amounts[name]};w={_SECONDS[name]}' for name in names]
        form = ", ".join([f'"{name}";r=%d;t=%d' for name in names])
        return (b"ratelimit-policy", ", ".join(policies).encode()), form.encode()

    def _take(self, name: LimitName, who: str, count: int) -> tuple[bool, Window]:
        return self._windows[name].take(who, self._amounts[name], _SECONDS[name], count)

    def _standing(self, name: LimitName, taken: tuple[bool, Window]) -> Standing:
        amount, seconds = self._amounts[name], _SECONDS[name]
        allowed, (before, before_left, now, now_left) = taken
        # Until the older window loses a hit, or this one becomes the older.
        wait = (now_left % seconds or seconds) if now else float(seconds)
        if before:
            wait = min(wait, before_left % (seconds / before) or seconds / before)
            now += int(before * before_left / seconds)
        # Past the moment, not at it: only then is there room.
        reset = int(wait + 0.005) + 1 if now or before else 1
        remaining = amount - now if now < amount else 0
        standing = Standing(name, remaining, reset)
        if not allowed:
            raise self._refusal(standing)
        return standing

    async def _take_together(
        self, shared: SharedWindows, name: LimitName, who: str, count: int
    ) -> tuple[bool, Window]:
        try:
            return await shared.take(name, who, self._amounts[name], _SECONDS[name], count)
        except RedisAway as error:
            now = self._clock()
            if now - self._warned_at >= _WARN_SECONDS:
                self._warned_at = now
                _log.warning("rate limits are each node's own for now", error=str(error))
            return self._take(name, who, count)

    def _refusal(self, standing: Standing) -> ApiError:
        amount, seconds = self._amounts[standing.limit], _SECONDS[standing.limit]
        return RateLimited(
            f"Over {amount} requests in {seconds} seconds by {_WHOSE[standing.limit]}: "
            f"try again in {standing.reset} s",
            standing,
        )


class RateLimited(ApiError):
    """A window is full."""

    def __init__(self, message: str, standing: Standing) -> None:
        super().__init__(429, message, code=ErrorCode.RATE_LIMITED, retry_after=standing.reset)
        self.standing = standing
