"""The connection to Redis, which the nodes of one service share.

While Redis is unavailable every command fails at once, so that no request waits for a timeout; a
background task probes Redis twice a second.
"""

import asyncio
from typing import Any, Final

import structlog
from redis.asyncio import ConnectionPool
from redis.asyncio import Redis as Client
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from outrider.contract.errors import OutriderError
from outrider.service.cluster.redis_subscription import Subscription

_CLUSTER: Final = "redis+cluster://"
FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What the library raises when Redis cannot be reached or does not answer."""

# The timeout of a command in seconds: how long the first requests wait on a frozen Redis.
_TIMEOUT: Final = 2.0

_PROBE_SECONDS: Final = 0.5
# Commands at a time; further ones wait.
_CONNECTIONS: Final = 50


_log = structlog.get_logger(__name__)

Argument = str | bytes | int


class RedisUnavailable(OutriderError):
    """Redis cannot be reached, or does not answer."""


class Redis:
    """Executes commands on Redis.

    Args:
        url: `redis://`, `rediss://` (TLS), or `redis+cluster://` for a node of a Redis Cluster.
        prefix: the prefix of every key and channel, equal on all nodes of one service.

    Raises:
        RedisUnavailable: the URL is not valid.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._prefix = prefix
        self._ping = ("EXISTS", self.key("ping", ""))
        self._is_cluster = url.startswith(_CLUSTER)
        try:
            self._client = self._connect(url)
        except (ValueError, RedisError, RedisClusterException) as error:
            raise RedisUnavailable(
                f"OUTRIDER_REDIS_URL is not an address of Redis: {error}"
            ) from error
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._probe_task: asyncio.Task[None] | None = None

    def key(self, kind: str, name: str) -> str:
        """Return the full name of a key or channel, which also decides its slot on a cluster."""
        return f"{self._prefix}:{kind}:{name}"

    async def execute(self, *command: Argument) -> Any:  # the type depends on the command
        """Execute a command and return its reply.

        A cancelled caller's command may still be executed.

        Raises:
            RedisUnavailable: Redis is unavailable (the command may have been executed), or refused
                the command.
        """
        async with self._slots:
            # Checked with the slot: those that waited for it while Redis froze fail at once.
            if self._probe_task is not None:
                raise RedisUnavailable("Redis was unavailable a moment ago")
            try:
                return await self._execute(*command)
            except ResponseError as error:
                raise RedisUnavailable(f"Redis refused {command[0]!r}: {error}") from error
            except FAILURES as error:
                if self._probe_task is None:
                    self._probe_task = asyncio.create_task(self._probe(), name="probe Redis")
                raise RedisUnavailable(
                    f"Redis cannot be reached: {error or 'no answer in time'}"
                ) from error

    async def ping(self) -> None:
        """Check that Redis replies.

        Raises:
            RedisUnavailable: it does not, or did not at the last probe.
        """
        await self.execute(*self._ping)

    def try_again(self) -> None:
        """Stop failing commands at once: Redis has answered on another connection."""
        if self._probe_task is not None:
            self._probe_task.cancel()
            self._probe_task = None

    async def subscription(self) -> Subscription:
        """Return a new subscription; the caller must close it.

        Raises:
            FAILURES: the servers of a cluster cannot be determined.
        """
        if not self._is_cluster:
            return Subscription(lambda _: "", lambda _: self._client.pubsub(), at_once=1000)
        await self._client.initialize()
        await self._client.nodes_manager.initialize()  # the cached topology may be out of date

        def server_of(channel: str) -> str:
            return str(self._client.get_node_from_key(channel).name)

        def connect(server: str) -> PubSub:
            node = self._client.get_node(node_name=server)
            return PubSub(ConnectionPool(node.connection_class, **node.connection_kwargs))

        return Subscription(server_of, connect, at_once=1)

    async def close(self) -> None:
        """Close every connection."""
        self.try_again()
        await self._client.aclose()

    def _connect(self, url: str) -> Any:  # two classes without a common base
        # One retry: after a restart of Redis, the first use of an old connection fails.
        retry = Retry(NoBackoff(), 1)
        options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": _TIMEOUT}
        if self._is_cluster:
            address = "redis://" + url.removeprefix(_CLUSTER)
            return RedisCluster.from_url(address, retry=retry, **options)
        return Client.from_url(url, retry=retry, **options)

    async def _probe(self) -> None:
        """Probe Redis until it replies; commands fail at once until then."""
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            try:
                await self._execute(*self._ping)
            except FAILURES:
                continue
            self._probe_task = None
            return

    async def _execute(self, *command: Argument) -> Any:
        async with asyncio.timeout(_TIMEOUT):
            return await self._client.execute_command(*command)
