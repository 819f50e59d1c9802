"""The connection to Redis, which the nodes of one service share.

Commands issued in one turn of the event loop are sent as one pipeline, since a round trip costs
much more than a command. While Redis is unavailable every command fails at once, so that no request
waits for a timeout; a background task probes Redis twice a second.
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
from redis.exceptions import RedisClusterException, RedisError

from outrider.contract.errors import OutriderError
from outrider.service.cluster.redis_subscription import Subscription

_CLUSTER: Final = "redis+cluster://"
FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What the library raises when Redis cannot be reached or does not answer."""

_TIMEOUT: Final = 2.0
"""The timeout of a pipeline in seconds: how long the first requests wait on a frozen Redis."""

_PROBE_SECONDS: Final = 0.5
_MAX_WAITING: Final = 20_000
_MAX_PIPELINE: Final = 500

_log = structlog.get_logger(__name__)

Argument = str | bytes | int


class RedisUnavailable(OutriderError):
    """Redis cannot be reached, or does not answer."""


class Redis:
    """Executes commands on Redis, in pipelines.

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
        self._waiting: list[tuple[tuple[Argument, ...], asyncio.Future[Any]]] = []
        self._flush_task: asyncio.Task[None] | None = None
        self._probe_task: asyncio.Task[None] | None = None

    def key(self, kind: str, name: str) -> str:
        """Return the full name of a key or channel, which also decides its slot on a cluster."""
        return f"{self._prefix}:{kind}:{name}"

    async def execute(self, *command: Argument) -> Any:  # the type depends on the command
        """Execute a command and return its reply.

        A cancelled caller's command may still be executed.

        Raises:
            RedisUnavailable: Redis is unavailable (the command may have been executed), too many
                commands wait, or Redis refused the command.
        """
        if self._probe_task is not None:
            raise RedisUnavailable("Redis was unavailable a moment ago")
        if len(self._waiting) >= _MAX_WAITING:
            raise RedisUnavailable(f"{_MAX_WAITING} commands wait for Redis already")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.create_task(self._flush(), name="flush Redis commands")
        answer = await future
        if isinstance(answer, Exception):
            raise RedisUnavailable(f"Redis refused {command[0]!r}: {answer}") from answer
        return answer

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
        """Close every connection; waiting commands fail."""
        tasks = {task for task in (self._flush_task, self._probe_task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TIMEOUT)
        self._fail(RedisUnavailable("The service is stopping"))
        await self._client.aclose()

    def _connect(self, url: str) -> Any:  # two classes without a common base
        # One retry: after a restart of Redis, the first use of an old connection fails.
        retry = Retry(NoBackoff(), 1)
        options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": _TIMEOUT}
        if self._is_cluster:
            address = "redis://" + url.removeprefix(_CLUSTER)
            return RedisCluster.from_url(address, retry=retry, **options)
        return Client.from_url(url, retry=retry, **options)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_PIPELINE], self._waiting[_MAX_PIPELINE:]
            try:
                replies = await self._execute([command for command, _ in batch])
            except FAILURES as error:
                self._probe_task = asyncio.create_task(self._probe(), name="probe Redis")
                self._waiting[:0] = batch
                self._fail(
                    RedisUnavailable(f"Redis cannot be reached: {error or 'no answer in time'}")
                )
                return
            except BaseException:  # cancelled by `close`: no caller may be left waiting
                self._waiting[:0] = batch
                self._fail(RedisUnavailable("Asking Redis was cut short"))
                raise
            for (_, future), answer in zip(batch, replies, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _probe(self) -> None:
        """Probe Redis until it replies; commands fail at once until then."""
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            try:
                await self._execute([self._ping])
            except FAILURES:
                continue
            self._probe_task = None
            return

    async def _execute(self, commands: list[tuple[Argument, ...]]) -> list[Any]:
        async with asyncio.timeout(_TIMEOUT):
            async with self._pipeline() as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)  # type: ignore[no-any-return]

    def _pipeline(self) -> Any:  # as `_connect`
        return self._client.pipeline(transaction=False)

    def _fail(self, error: RedisUnavailable) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
