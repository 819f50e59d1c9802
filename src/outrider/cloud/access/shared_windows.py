"""The counters behind the rate limits of many nodes: in Redis, by its clock.

One script counts and tells where the caller stands in one round trip; the `limits` library's
own Redis storage takes two, and its windows begin with a caller's first request instead of
with the clock, so that the two nodes' headers would not agree with one node's in memory.
"""

from typing import Final

from outrider.cloud.access.windows import Taken
from outrider.cloud.store.redis import Redis

_TAKE: Final = """
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


class SharedWindows:
    """Sliding windows that all nodes count in; a counter expires with its windows."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def take(self, kind: str, who: str, limit: int, expiry: int, amount: int) -> Taken:
        """Count `amount` hits if the window has room for them; tell where it stands now.

        Raises:
            RedisAway: nothing could be counted.
        """
        key = self._redis.key(f"rate:{kind}", who)
        fits, before, millis, hits = await self._redis.ask(
            "EVAL", _TAKE, 1, key, limit, expiry, amount
        )
        left = millis / 1000
        return bool(fits), hits + int(before * left / expiry), before, left
