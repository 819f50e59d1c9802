"""Limits the event streams of a credential, over all nodes that share a Redis.

    hash `streams` of a credential:  {node: its streams}
    key `streams-node` of a node:    its lease

Each node writes its own numbers, so that one script decides whether another stream fits. A node
that was killed does not take its numbers back: they count until its lease has expired. Before a
stream is refused, the leases of the nodes that have the others are looked up. The lease is short
because the clients of a killed node connect again at once, and an EventSource that is refused never
tries again.

Redis may lose everything: a node that finds its lease missing writes its numbers again. While Redis
is unavailable each node counts its own streams only.
"""

import asyncio
import secrets
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from outrider.contract.errors import ApiError, ErrorCode, OutriderError
from outrider.service.accounts.revocation import Credential

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis

MAX_STREAMS: Final = 10
"""Streams of an account and credential."""

LEASE_SECONDS: Final = 2.0
"""Seconds for which the streams of a node that was killed still count."""

_EXPIRY_SECONDS: Final = 7200
"""Expiry of a credential's numbers, each time they are written; streams end after an hour."""

_RETRY_SECONDS: Final = 5.0

_COUNT_SCRIPT: Final = """
local node, count, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for i = 5, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
local total, others = count, {}
local counts = redis.call('HGETALL', KEYS[1])
for i = 1, #counts, 2 do
  if counts[i] ~= node then
    total = total + tonumber(counts[i + 1])
    others[#others + 1] = counts[i]
  end
end
if total > limit then return others end
redis.call('HSET', KEYS[1], node, count)
redis.call('EXPIRE', KEYS[1], ARGV[4])
return {}
"""
"""Write the number of a node (ARGV: node, number, limit, expiry, dead nodes) if it fits; return
nothing then, and the other nodes that have streams if it does not."""

_log = structlog.get_logger(__name__)


class StreamLimit:
    """Counts the open streams of each credential.

    Args:
        maximum: streams of an account and credential.
        redis: shared with the other nodes; None: there are none.
        lease_seconds: see `LEASE_SECONDS`.
    """

    def __init__(
        self,
        maximum: int = MAX_STREAMS,
        redis: "Redis | None" = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._maximum = maximum
        self._redis = redis
        self._lease_seconds = lease_seconds
        self._lease_id = secrets.token_hex(6)  # not the node's id
        self._counts: Counter[str] = Counter()
        self._unwritten: set[str] = set()
        self._wake = asyncio.Event()
        self._has_left = False

    async def acquire(self, credential: Credential) -> None:
        """Count one more stream; `release` must follow.

        Raises:
            ApiError: 429 `STREAM_LIMIT`, the credential has too many; nothing was counted.
        """
        key = _key(credential)
        is_admitted = False
        self._counts[key] += 1  # at once, so that others that begin now count it
        try:
            is_admitted = self._counts[key] <= self._maximum and await self._fits(key)
        finally:
            if not is_admitted:
                self.release(credential)
        if not is_admitted:
            raise ApiError(
                429,
                f"{self._maximum} event streams of this credential are open already: "
                "close one, or share one",
                code=ErrorCode.STREAM_LIMIT,
                retry_after=_RETRY_SECONDS,
            )

    def release(self, credential: Credential) -> None:
        """Uncount a stream. The other nodes get the new number within milliseconds."""
        key = _key(credential)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
        if self._redis is not None:
            self._unwritten.add(key)
            self._wake.set()

    def leave(self) -> None:
        """Withdraw the numbers of this node, which drains: its clients connect to the others."""
        self._has_left = True
        self._wake.set()

    async def run(self) -> None:
        """Keep the lease of this node and write what has changed, until cancelled."""
        redis = self._redis
        while redis is not None:
            try:
                if self._has_left:
                    await redis.execute("DEL", redis.key("streams-node", self._lease_id))
                    return
                await self._renew(redis)
                while self._unwritten:
                    await self._write(redis, self._unwritten.pop())
            except OutriderError as error:  # RedisUnavailable; importing it loads the library
                _log.debug("numbers of streams not written", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_seconds / 4):
                    await self._wake.wait()
            self._wake.clear()

    async def _renew(self, redis: "Redis") -> None:
        """Renew the lease; if there was none, others may have removed this node's numbers."""
        lease, millis = redis.key("streams-node", self._lease_id), int(self._lease_seconds * 1000)
        if await redis.execute("SET", lease, 1, "PX", millis, "GET") is None:
            self._unwritten |= self._counts.keys()
            self._wake.set()

    async def _write(self, redis: "Redis", key: str) -> None:
        """Write this node's streams of a credential, whether they fit or not."""
        name, count = redis.key("streams", key), self._counts[key]
        try:
            if count:
                await redis.execute("HSET", name, self._lease_id, count)
                await redis.execute("EXPIRE", name, _EXPIRY_SECONDS)
            else:
                await redis.execute("HDEL", name, self._lease_id)
        except OutriderError:
            self._unwritten.add(key)
            raise

    async def _fits(self, key: str) -> bool:
        """Write this node's streams if they fit beside those of the others; return whether so."""
        redis = self._redis
        if redis is None or self._has_left:
            return True
        try:
            await self._renew(redis)  # it may be the first stream of a new node
            others = await self._write_if_fits(redis, key)
            leases = {node: redis.key("streams-node", node.decode()) for node in others}
            dead = [node for node in others if not await redis.execute("EXISTS", leases[node])]
            return not others or (bool(dead) and not await self._write_if_fits(redis, key, *dead))
        except OutriderError as error:
            _log.debug("streams of other nodes not counted", error=str(error))
            return True

    async def _write_if_fits(self, redis: "Redis", key: str, *dead: bytes) -> list[bytes]:
        """Run the script."""
        name, count = redis.key("streams", key), self._counts[key]
        arguments = (name, self._lease_id, count, self._maximum, _EXPIRY_SECONDS)
        others: list[bytes] = await redis.execute("EVAL", _COUNT_SCRIPT, 1, *arguments, *dead)
        return others


def _key(credential: Credential) -> str:
    return f"{credential.account_id}:{credential.id}"
