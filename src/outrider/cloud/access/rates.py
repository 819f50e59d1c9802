"""The rate limits: per key, per address, and on the routes that take credentials.

The headers are those of the IETF draft `RateLimit header fields for HTTP`
(draft-ietf-httpapi-ratelimit-headers).
"""

import time
from collections.abc import Callable
from math import floor
from typing import Final, Literal, NamedTuple

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from outrider.cloud.access.windows import WindowStorage
from outrider.contract.errors import ApiError, ErrorCode

LimitName = Literal["key", "ip", "auth"]

_SECONDS: Final[dict[LimitName, int]] = {"key": 60, "ip": 60, "auth": 300}
_WHOSE: Final[dict[LimitName, str]] = {
    "key": "this API key",
    "ip": "this address",
    "auth": "this address on routes that take credentials",
}


class Standing(NamedTuple):
    """Where a caller stands: hits left, and seconds until there are more of them."""

    limit: LimitName
    remaining: int
    reset: int


class Rates:
    """Counts requests in sliding windows.

    Args:
        key, ip: requests per minute of one API key, of one address.
        auth: requests per 5 minutes of one address on the routes that take credentials.
        clock: seconds since the epoch.
    """

    def __init__(
        self, *, key: int, ip: int, auth: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._items: dict[LimitName, RateLimitItem] = {
            "key": RateLimitItemPerMinute(key, namespace="key"),
            "ip": RateLimitItemPerMinute(ip, namespace="ip"),
            "auth": RateLimitItemPerMinute(auth, 5, namespace="auth"),
        }
        self._windows = {name: WindowStorage(clock=clock) for name in self._items}
        self._limiters = {
            name: SlidingWindowCounterRateLimiter(windows)
            for name, windows in self._windows.items()
        }
        self._policies = {
            name: f'"{name}";q={item.amount};w={_SECONDS[name]}'
            for name, item in self._items.items()
        }

    async def hit(self, name: LimitName, who: str) -> Standing:
        """Count a request.

        Raises:
            ApiError: 429 `RATE_LIMITED`, the window is full; `standings` has where they stand.
        """
        allowed = await self._limiters[name].hit(self._items[name], who)
        standing = await self._standing(name, who)
        if not allowed:
            raise self._refusal(standing)
        return standing

    async def check(self, name: LimitName, who: str) -> Standing:
        """Raise as `hit` would, but count nothing."""
        allowed = await self._limiters[name].test(self._items[name], who)
        standing = await self._standing(name, who)
        if not allowed:
            raise self._refusal(standing)
        return standing

    def headers(self, standings: list[Standing]) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell where the caller stands with each limit."""
        if not standings:
            return []
        policy = ", ".join(self._policies[standing.limit] for standing in standings)
        state = ", ".join(f'"{s.limit}";r={s.remaining};t={s.reset}' for s in standings)
        return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]

    async def _standing(self, name: LimitName, who: str) -> Standing:
        item, length = self._items[name], _SECONDS[name]
        before, before_left, now, now_left = await self._windows[name].get_sliding_window(
            item.key_for(who), length
        )
        old = floor(before * before_left / length)
        # When the window before loses its next hit; or, where it has none, when this one ends
        # and begins to lose its own. Past the moment, not at it, hence the second more.
        until = before_left % (length / before) if old else now_left - length
        return Standing(name, max(0, item.amount - old - now), floor(until) + 1)

    def _refusal(self, standing: Standing) -> ApiError:
        amount, seconds = self._items[standing.limit].amount, _SECONDS[standing.limit]
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
