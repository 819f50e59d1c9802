"""Limits the event streams of a credential, over all nodes that share a Redis.

    hash `streams` of a credential:  {node: its streams}
    key `streams-node` of a node:    its lease

Each node writes its own numbers, so one script decides in one round trip whether another stream
fits. A node that was killed does not take its numbers back. They count until its lease has expired:
before a stream is refused, the leases of the nodes that have the others are looked up. The lease is
short because the clients of a killed node connect again at once, and an EventSource that is refused
never tries again.

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
from outrider.service.batched import batched

if TYPE_CHECKING:
    from outrider.service.cluster.redis import Redis

MAX_STREAMS: Final = 10
"""Streams of an account and credential."""

LEASE_SECONDS: Final = 2.0
"""Seconds for which the streams of a node that was killed still count."""

_RENEWALS: Final = 4
"""How often a lease is renewed while it lasts."""

_EXPIRY_SECONDS: Final = 7200
"""Expiry of a credential's numbers, each time they are written; streams end after an hour."""

_RETRY_SECONDS: Final = 5.0
_AT_ONCE: Final = 200
_NO_LIMIT: Final = 1_000_000_000

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


class _SharedCounts:
    """The numbers of all nodes in Redis. Its methods raise `RedisUnavailable`."""

    def __init__(self, redis: "Redis", lease_seconds: float) -> None:
        self._redis = redis
        self._lease_millis = int(lease_seconds * 1000)
        self._lease_id = secrets.token_hex(6)  # not the node's id

    async def renew(self) -> bool:
        """Renew this node's lease; return whether it had one."""
        lease = self._lease(self._lease_id)
        before = await self._redis.execute("SET", lease, 1, "PX", self._lease_millis, "GET")
        return before is not None

    async def end_lease(self) -> None:
        """End the lease: the numbers of this node no longer count."""
        await self._redis.execute("DEL", self._lease(self._lease_id))

    async def write(self, key: str, count: int) -> None:
        """Write this node's streams of a credential."""
        if count:
            await self._write(key, count, _NO_LIMIT)
        else:
            await self._redis.execute("HDEL", self._redis.key("streams", key), self._lease_id)

    async def write_if_fits(self, key: str, count: int, limit: int) -> bool:
        """Write this node's streams of a credential, if they fit beside those of the others."""
        others = await self._write(key, count, limit)
        if not others:
            return True
        dead = [
            node for node in others if not await self._redis.execute("EXISTS", self._lease(node))
        ]
        return bool(dead) and not await self._write(key, count, limit, *dead)

    async def _write(self, key: str, count: int, limit: int, *dead: bytes) -> list[bytes]:
        """Run the script."""
        name = self._redis.key("streams", key)
        others: list[bytes] = await self._redis.execute(
            "EVAL", _COUNT_SCRIPT, 1, name, self._lease_id, count, limit, _EXPIRY_SECONDS, *dead
        )
        return others

    def _lease(self, node: str | bytes) -> str:
        name = node if isinstance(node, str) else node.decode()
        return self._redis.key("streams-node", name)


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
        self._renewal_interval = lease_seconds / _RENEWALS
        self._shared = None if redis is None else _SharedCounts(redis, lease_seconds)
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
        if self._shared is not None:
            self._unwritten.add(key)
            self._wake.set()

    def leave(self) -> None:
        """Withdraw the numbers of this node, which drains: its clients connect to the others."""
        self._has_left = True
        self._wake.set()

    async def run(self) -> None:
        """Keep the lease of this node and write what has changed, until cancelled."""
        shared = self._shared
        while shared is not None:
            try:
                if self._has_left:
                    await shared.end_lease()
                    return
                await self._renew(shared)
                for keys in batched(list(self._unwritten), _AT_ONCE):
                    await asyncio.gather(*(self._write(shared, key) for key in keys))
            except OutriderError as error:  # RedisUnavailable; importing it loads the library
                _log.debug("numbers of streams not written", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._renewal_interval):
                    await self._wake.wait()
            self._wake.clear()

    async def _renew(self, shared: _SharedCounts) -> None:
        """Renew the lease; if there was none, others may have removed this node's numbers."""
        if not await shared.renew():
            self._unwritten |= self._counts.keys()
            self._wake.set()

    async def _write(self, shared: _SharedCounts, key: str) -> None:
        self._unwritten.discard(key)
        try:
            await shared.write(key, self._counts[key])
        except OutriderError:
            self._unwritten.add(key)
            raise

    async def _fits(self, key: str) -> bool:
        """Return whether the streams of this node fit beside those of the others."""
        if self._shared is None or self._has_left:
            return True
        try:
            await self._renew(self._shared)  # it may be the first stream of a new node
            return await self._shared.write_if_fits(key, self._counts[key], self._maximum)
        except OutriderError as error:
            _log.debug("streams of other nodes not counted", error=str(error))
            return True


def _key(credential: Credential) -> str:
    return f"{credential.account_id}:{credential.id}"
