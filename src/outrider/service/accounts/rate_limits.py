"""Rate limits: sliding windows per API key, session and address, in memory or shared in Redis.

`RateLimits.hit` counts a request and raises `RateLimited` once a window is full. A single node
counts in memory (`MemoryWindows`). Several nodes share windows in Redis (`RedisWindows`); while
Redis is unavailable each node counts in memory.

The headers follow the IETF draft `RateLimit header fields for HTTP`
(draft-ietf-httpapi-ratelimit-headers). A hit in memory takes 1.1 us, against 4.2 us with
the `limits` library.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from outrider.contract.errors import ApiError, ErrorCode, OutriderError

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis

_WARN_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)

Header = tuple[bytes, bytes]


MAX_COUNTERS: Final = 100_000
"""Callers counted at a time for each limit, about 25 MB; the least recently used is evicted. A
caller is the id of an API key, session or account, or an address."""


Hit = tuple[bool, int, int, float]
"""Whether the hit was admitted; the hits that count now; the hits of the previous window, whose
weight decreases; and the seconds until this window ends. A plain tuple: two are made for each
request.
"""


class _Counter:
    """The hits of one caller in the window that ends at `end`, and in the previous one."""

    __slots__ = ("before", "end", "hits")

    def __init__(self) -> None:
        self.end = 0.0
        self.before = 0
        self.hits = 0

    def advance(self, now: float, expiry: int) -> float:
        """Start the current window; return the seconds that are left of it."""
        end = (now // expiry + 1) * expiry
        self.before = self.hits if self.end == end - expiry else 0
        self.end, self.hits = end, 0
        return end - now


class MemoryWindows:
    """Sliding windows in memory: for each caller, the counts of this window and the one before.

    The least recently used counter is evicted. That is done here and not by `cachetools.LRUCache`,
    whose lookup takes 1.2 us, longer than a whole hit.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, maximum: int = MAX_COUNTERS, clock: Callable[[], float] = time.time) -> None:
        self._maximum = maximum
        self._clock = clock
        self._counters: OrderedDict[str, _Counter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def hit(self, caller: str, limit: int, expiry: int, amount: int) -> Hit:
        """Count `amount` hits if the window has room for them; return its state."""
        now = self._clock()
        counter = self._counters.get(caller) or self._new(caller)
        left = counter.end - now
        if left <= 0.0 or left > expiry:  # the window has ended, or the clock was set back
            left = counter.advance(now, expiry)
        self._counters.move_to_end(caller)
        used = counter.hits
        if counter.before:
            used += int(counter.before * left / expiry)
        if used + amount > limit:
            return False, used, counter.before, left
        counter.hits += amount
        return True, used + amount, counter.before, left

    def _new(self, caller: str) -> _Counter:
        counter = self._counters[caller] = _Counter()
        if len(self._counters) > self._maximum:
            self._counters.popitem(last=False)
        return counter


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


class RedisWindows:
    """Sliding windows in Redis, shared by all nodes, by the clock of Redis.

    One script counts and returns the state in one round trip; the `limits` library's own Redis
    storage takes two, and its windows start with a caller's first request instead of with the
    clock, so its headers would differ from those of a single node.
    """

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis

    async def hit(self, name: str, caller: str, limit: int, expiry: int, amount: int) -> Hit:
        """Count `amount` hits if the window has room for them; return its state.

        Raises:
            RedisUnavailable: nothing was counted.
        """
        key = self._redis.key(f"rate:{name}", caller)
        fits, before, millis, hits = await self._redis.execute(
            "EVAL", _HIT_SCRIPT, 1, key, limit, expiry, amount
        )
        left = millis / 1000
        return bool(fits), hits + int(before * left / expiry), before, left


class RateLimitStatus(msgspec.Struct, frozen=True, gc=False):
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


class _Limit(msgspec.Struct, frozen=True):
    """One of the limits, with the counters of this node."""

    name: str
    amount: int
    seconds: int
    subject: str
    setting: str | None
    windows: MemoryWindows

    def status(self, hit: Hit) -> RateLimitStatus:
        """Return the caller's status.

        Raises:
            RateLimited: the window is full.
        """
        fits, used, before, wait = hit
        if before:  # until a hit expires, at the latest until this window ends
            gap = self.seconds / before
            wait = wait % gap or gap
        # Round up: a retry at that exact moment would still be refused.
        reset = int(wait + 0.005) + 1 if used or before else 1
        remaining = self.amount - used if used < self.amount else 0
        status = RateLimitStatus(self.name, remaining, reset)
        if not fits:
            raise self.exceeded(status)
        return status

    def exceeded(self, status: RateLimitStatus) -> "RateLimited":
        """Return the error, with the time at which to try again and what raises the limit."""
        text = (
            f"Over {self.amount} requests in {self.seconds} seconds by {self.subject}: "
            f"try again in {status.reset} s"
        )
        if self.setting is not None:
            text += f". The operator raises this limit with {self.setting}"
        return RateLimited(text, status)


class RateLimits:
    """Counts requests in sliding windows.

    Args:
        key, session, ip: requests per minute of one API key, session, address.
        auth: requests per 5 minutes of one address on the routes that take credentials.
        login: logins per hour to one account from all addresses that it does not know.
        others: limits of single endpoints; one may be given several times.
        shared: the windows of all nodes. While Redis is unavailable each node counts by itself, so
            that a limit holds for each node and no request fails for the outage.
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
        shared: RedisWindows | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._warned_at = 0.0
        self._limits: dict[str, _Limit] = {}
        for limit in (
            RateLimit("key", key, 60, "this API key", "OUTRIDER_RATE_LIMIT_KEY"),
            RateLimit("session", session, 60, "this session", "OUTRIDER_RATE_LIMIT_SESSION"),
            RateLimit(
                "ip", ip, 60, "this address, with all keys together", "OUTRIDER_RATE_LIMIT_IP"
            ),
            RateLimit(
                "auth",
                auth,
                300,
                "this address on routes that take credentials",
                "OUTRIDER_RATE_LIMIT_AUTH",
            ),
            RateLimit(
                "login",
                login,
                3600,
                "addresses that have never logged in to this account",
                "OUTRIDER_RATE_LIMIT_LOGIN",
            ),
            *dict.fromkeys(others),
        ):
            if limit.name in self._limits:
                raise ValueError(f"two rate limits have the name {limit.name}")
            self._limits[limit.name] = _Limit(*limit, MemoryWindows(clock=clock))
        self._header_cache: dict[tuple[str, ...], tuple[Header, bytes]] = {}

    def hit_local(self, name: str, caller: str) -> RateLimitStatus | None:
        """Count a request without waiting; None, and nothing counted, where nodes share windows.

        Raises:
            ApiError: as `hit` does.
        """
        if self._shared is not None:
            return None
        limit = self._limits[name]
        return limit.status(limit.windows.hit(caller, limit.amount, limit.seconds, 1))

    async def hit(self, name: str, caller: str) -> RateLimitStatus:
        """Count a request.

        Raises:
            ApiError: 429 `RATE_LIMITED`, the window is full; `limit_status` says when to try again.
        """
        limit = self._limits[name]
        return limit.status(await self._hit(limit, caller, 1))

    async def check(self, name: str, caller: str) -> RateLimitStatus:
        """Raise as `hit` would, without counting."""
        limit = self._limits[name]
        status = limit.status(await self._hit(limit, caller, 0))
        if status.remaining < 1:
            raise limit.exceeded(status)
        return status

    def headers(self, statuses: list[RateLimitStatus]) -> list[Header]:
        """Return the `RateLimit-Policy` and `RateLimit` headers of these statuses."""
        names: list[str] = []
        state: list[int] = []
        for status in statuses:
            names.append(status.limit)
            state.append(status.remaining)
            state.append(status.reset)
        limits = tuple(names)
        cached = self._header_cache.get(limits)
        if cached is None:
            if not limits:
                return []
            cached = self._header_cache[limits] = self._make_headers(limits)
        policy, form = cached
        return [policy, (b"ratelimit", form % tuple(state))]

    def _make_headers(self, names: tuple[str, ...]) -> tuple[Header, bytes]:
        """Return the policy header of these limits, and the format of the status header."""
        limits = [self._limits[name] for name in names]
        policies = [f'"{limit.name}";q={limit.amount};w={limit.seconds}' for limit in limits]
        form = ", ".join([f'"{name}";r=%d;t=%d' for name in names])
        return (b"ratelimit-policy", ", ".join(policies).encode()), form.encode()

    async def _hit(self, limit: _Limit, caller: str, count: int) -> Hit:
        """Count in the shared windows, or in this node's own while Redis is unavailable."""
        if self._shared is not None:
            try:
                return await self._shared.hit(
                    limit.name, caller, limit.amount, limit.seconds, count
                )
            except OutriderError as error:  # RedisUnavailable; importing it loads the library
                now = self._clock()
                if now - self._warned_at >= _WARN_SECONDS:
                    self._warned_at = now
                    _log.warning("rate limits not shared, Redis unavailable", error=str(error))
        return limit.windows.hit(caller, limit.amount, limit.seconds, count)


class RateLimited(ApiError):
    """A window is full."""

    def __init__(self, message: str, status: RateLimitStatus) -> None:
        super().__init__(429, message, code=ErrorCode.RATE_LIMITED, retry_after=status.reset)
        self.limit_status = status
