"""Rate limits: sliding windows per API key, session and address, in memory or shared in Redis.

A single node counts in memory. Several share their windows in Redis, so that a limit holds for all
of them together; while Redis is unavailable each counts by itself, and no request fails for it.

This is not the library `limits`, because SECURITY.md promises that floods take bounded memory: its
`MemoryStorage` keeps every caller of a window, and walks through all of them after each request, so
that many addresses slow every request down. Its windows in Redis begin with a caller's first hit
and those in memory with the clock, so the headers of one node and of several would differ.

The headers follow the IETF draft draft-ietf-httpapi-ratelimit-headers.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from outrider.contract.errors import ApiError, ErrorCode, OutriderError

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis

MAX_CALLERS: Final = 100_000
"""Callers counted at a time for each limit; the least recently used is evicted. A caller is the id
of an API key, session or account, or an address."""

_WARN_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)

Header = tuple[bytes, bytes]


class Window(NamedTuple):
    """The state of a caller's window after a hit.

    Attributes:
        admitted: whether the hit was counted; false if the window is full.
        used: the hits that count now: those of this window, and a share of the previous one's.
        previous: the hits of the previous window. Their share decreases while this window passes.
        seconds: until this window ends.
    """

    admitted: bool
    used: int
    previous: int
    seconds: float


class MemoryWindows:
    """Sliding windows in memory: for each caller, the counts of this window and the one before.

    Args:
        maximum: callers; the least recently used is evicted.
        clock: seconds since the epoch.
    """

    def __init__(self, maximum: int = MAX_CALLERS, clock: Callable[[], float] = time.time) -> None:
        self._maximum = maximum
        self._clock = clock
        # Of each caller: the number of its window, the hits in it, and those of the previous one.
        self._counts: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def hit(self, caller: str, limit: int, seconds: int, amount: int = 1) -> Window:
        """Count `amount` hits (0: none) if the window has room for them; return its state."""
        now = self._clock()
        number = int(now // seconds)
        window, hits, previous = self._counts.pop(caller, (number, 0, 0))
        if window != number:  # it has ended, or the clock was set back
            hits, previous = 0, hits if window == number - 1 else 0
        left = (number + 1) * seconds - now
        used = hits + int(previous * left / seconds)
        admitted = used + amount <= limit
        if admitted:
            hits, used = hits + amount, used + amount
        self._counts[caller] = number, hits, previous  # now the most recently used
        if len(self._counts) > self._maximum:
            self._counts.popitem(last=False)
        return Window(admitted, used, previous, left)


_HIT_SCRIPT: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local limit, expiry, amount = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local window = math.floor(now / expiry)
local counter = redis.call('HMGET', KEYS[1], 'window', 'before', 'hits')
local before, hits = 0, 0
if counter[1] then
    local last = tonumber(counter[1])
    if last == window then
        before, hits = tonumber(counter[2]), tonumber(counter[3])
    elseif last == window - 1 then
        before = tonumber(counter[3])
    end
end
local left = (window + 1) * expiry - now
local fits = math.floor(before * left / expiry) + hits + amount <= limit
if fits and amount > 0 then
    hits = hits + amount
    redis.call('HSET', KEYS[1], 'window', window, 'before', before, 'hits', hits)
    redis.call('EXPIRE', KEYS[1], expiry * 2)
end
return {fits and 1 or 0, before, math.floor(left * 1000), hits}
"""
"""What `MemoryWindows.hit` does, by the clock of Redis. Nodes of the previous release run it too,
on the same keys."""


class RateLimitStatus(NamedTuple):
    """The state of a caller's limit: hits left, and seconds until there are more."""

    limit: str
    remaining: int
    reset: int


class RateLimit(NamedTuple):
    """A limit: so many requests in each window of so many seconds.

    Args:
        name: names the limit in the `RateLimit` headers.
        subject: who is limited, as the error says it.
        setting: the operator's setting of it, if there is one.
    """

    name: str
    requests: int
    seconds: int
    subject: str
    setting: str | None = None


class RateLimits:
    """Counts requests in sliding windows.

    Args:
        key, session, ip: requests per minute of one API key, session, address.
        auth: requests per 5 minutes of one address on the routes that take credentials.
        login: logins per hour to one account from all addresses that it does not know.
        others: limits of single endpoints; one may be given several times.
        redis: has the windows of all nodes; None: this node is alone.
        clock: seconds since the epoch.

    Raises:
        ValueError: two different limits have the same name.
    """

    def __init__(
        self,
        *,
        key: int,
        ip: int,
        auth: int,
        session: int = 600,
        login: int = 30,
        others: Iterable[RateLimit] = (),
        redis: "Redis | None" = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._warned_at = 0.0
        self._limits: dict[str, RateLimit] = {}
        address, setting = "this address", "OUTRIDER_RATE_LIMIT"
        strangers = "addresses that have never logged in to this account"
        for limit in (
            RateLimit("key", key, 60, "this API key", f"{setting}_KEY"),
            RateLimit("session", session, 60, "this session", f"{setting}_SESSION"),
            RateLimit("ip", ip, 60, f"{address}, with all keys together", f"{setting}_IP"),
            RateLimit(
                "auth", auth, 300, f"{address} on routes that take credentials", f"{setting}_AUTH"
            ),
            RateLimit("login", login, 3600, strangers, f"{setting}_LOGIN"),
            *dict.fromkeys(others),
        ):
            if limit.name in self._limits:
                raise ValueError(f"two rate limits have the name {limit.name}")
            self._limits[limit.name] = limit
        self._windows = {name: MemoryWindows(clock=clock) for name in self._limits}

    async def hit(self, name: str, caller: str) -> RateLimitStatus:
        """Count a request.

        Raises:
            RateLimited: the window is full; `limit_status` says when to try again.
        """
        limit = self._limits[name]
        window = await self._count(limit, caller, 1)
        status = _status(limit, window)
        if not window.admitted:
            raise RateLimited(limit, status)
        return status

    async def check(self, name: str, caller: str) -> RateLimitStatus:
        """Raise as `hit` would, without counting."""
        limit = self._limits[name]
        status = _status(limit, await self._count(limit, caller, 0))
        if status.remaining < 1:
            raise RateLimited(limit, status)
        return status

    def headers(self, statuses: list[RateLimitStatus]) -> list[Header]:
        """Return the `RateLimit-Policy` and `RateLimit` headers of these statuses."""
        if not statuses:
            return []
        limits = [self._limits[status.limit] for status in statuses]
        policy = ", ".join(
            f'"{limit.name}";q={limit.requests};w={limit.seconds}' for limit in limits
        )
        state = ", ".join(
            f'"{name}";r={remaining};t={reset}' for name, remaining, reset in statuses
        )
        return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]

    async def _count(self, limit: RateLimit, caller: str, amount: int) -> Window:
        """Count in the shared windows, or in this node's own while Redis is unavailable."""
        name, requests, seconds, *_ = limit
        if self._redis is not None:
            key = self._redis.key(f"rate:{name}", caller)
            arguments = (key, requests, seconds, amount)
            try:
                reply = await self._redis.execute("EVAL", _HIT_SCRIPT, 1, *arguments)
            except OutriderError as error:  # RedisUnavailable; importing it loads the library
                now = self._clock()
                if now - self._warned_at >= _WARN_SECONDS:
                    self._warned_at = now
                    _log.warning("rate limits not shared, Redis unavailable", error=str(error))
            else:
                fits, previous, millis, hits = reply
                left = millis / 1000
                return Window(bool(fits), hits + int(previous * left / seconds), previous, left)
        return self._windows[name].hit(caller, requests, seconds, amount)


class RateLimited(ApiError):
    """A window is full; the text says when to try again, and what raises the limit."""

    def __init__(self, limit: RateLimit, status: RateLimitStatus) -> None:
        text = (
            f"Over {limit.requests} requests in {limit.seconds} seconds by {limit.subject}: "
            f"try again in {status.reset} s"
        )
        if limit.setting is not None:
            text += f". The operator raises this limit with {limit.setting}"
        super().__init__(429, text, code=ErrorCode.RATE_LIMITED, retry_after=status.reset)
        self.limit_status = status


def _status(limit: RateLimit, window: Window) -> RateLimitStatus:
    wait = window.seconds
    if window.previous:  # until one of its hits expires, at the latest until this window ends
        gap = limit.seconds / window.previous
        wait = wait % gap or gap
    # Rounded up: a retry at that exact moment would still be refused.
    reset = int(wait + 0.005) + 1 if window.used or window.previous else 1
    return RateLimitStatus(limit.name, max(0, limit.requests - window.used), reset)
