"""The connection to Redis, which the nodes of one service share.

What is asked in one turn of the event loop goes there together: a round trip costs much more
than a command. While Redis is unavailable everything asked of it fails at once, so that no request
waits for it, not even one in a while: it is tried again beside them, twice a second.
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

from outrider.cloud.store.redis_subscription import Subscription
from outrider.contract.errors import OutriderError

_CLUSTER: Final = "redis+cluster://"
FAILURES: Final = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What the library raises where Redis cannot be reached, or does not answer."""

_PATIENCE: Final = 2.0
"""Seconds that Redis has for an answer: what the first requests wait that find it frozen."""

_TRY_SECONDS: Final = 0.5
_MAX_WAITING: Final = 20_000
_AT_ONCE: Final = 500

_log = structlog.get_logger(__name__)

Argument = str | bytes | int


class RedisUnavailable(OutriderError):
    """Redis cannot be reached, or does not answer."""


class Redis:
    """Asks Redis.

    Args:
        url: `redis://`, `rediss://` (TLS), or `redis+cluster://` for a node of a Redis Cluster.
        prefix: what every key and channel begins with; the same for all nodes of one service.

    Raises:
        RedisUnavailable: the URL is not one.
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
        self._flushing: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None

    def key(self, kind: str, name: str) -> str:
        """Return the name of a key or channel. On a cluster each kind and name has its slot."""
        return f"{self._prefix}:{kind}:{name}"

    async def ask(self, *command: Argument) -> Any:  # as Redis answers it
        """Return the answer to a command.

        Raises:
            RedisUnavailable: Redis is unavailable, or refused the command.
        """
        if self._trying is not None:
            raise RedisUnavailable("Redis was away a moment ago")
        if len(self._waiting) >= _MAX_WAITING:
            raise RedisUnavailable(f"{_MAX_WAITING} commands wait for Redis already")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush(), name="ask Redis")
        answer = await future
        if isinstance(answer, Exception):
            raise RedisUnavailable(f"Redis refused {command[0]!r}: {answer}") from answer
        return answer

    async def ping(self) -> None:
        """Ask for an answer.

        Raises:
            RedisUnavailable: there is none, or was none half a second ago.
        """
        await self.ask(*self._ping)

    def try_again(self) -> None:
        """Hold Redis to be away no more: it has answered on another connection."""
        if self._trying is not None:
            self._trying.cancel()
            self._trying = None

    async def subscription(self) -> Subscription:
        """Return a new subscription, to be closed.

        Raises:
            FAILURES: the servers of a cluster cannot be told.
        """
        if not self._is_cluster:
            return Subscription(lambda _: "", lambda _: self._client.pubsub(), at_once=1000)
        await self._client.initialize()
        await self._client.nodes_manager.initialize()  # what it knew may be old by now

        def server_of(channel: str) -> str:
            return str(self._client.get_node_from_key(channel).name)

        def connect(server: str) -> PubSub:
            node = self._client.get_node(node_name=server)
            return PubSub(ConnectionPool(node.connection_class, **node.connection_kwargs))

        return Subscription(server_of, connect, at_once=1)

    async def close(self) -> None:
        """Close every connection; what waits for an answer fails."""
        tasks = {task for task in (self._flushing, self._trying) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
        self._fail(RedisUnavailable("The service is stopping"))
        await self._client.aclose()

    def _connect(self, url: str) -> Any:  # two classes without a common base
        # One more try: after a restart of Redis the old connection is only then found dead.
        again = Retry(NoBackoff(), 1)
        options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": _PATIENCE}
        if self._is_cluster:
            address = "redis://" + url.removeprefix(_CLUSTER)
            return RedisCluster.from_url(address, retry=again, **options)
        return Client.from_url(url, retry=again, **options)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                answers = await self._ask_all([command for command, _ in batch])
            except FAILURES as error:
                self._trying = asyncio.create_task(self._try_again(), name="try Redis again")
                self._waiting[:0] = batch
                self._fail(
                    RedisUnavailable(f"Redis cannot be reached: {error or 'no answer in time'}")
                )
                return
            except BaseException:
                self._waiting[:0] = batch
                self._fail(RedisUnavailable("Asking Redis was cut short"))
                raise
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _try_again(self) -> None:
        """Return once Redis answers again."""
        while True:
            await asyncio.sleep(_TRY_SECONDS)
            try:
                await self._ask_all([self._ping])
            except FAILURES:
                continue
            self._trying = None
            return

    async def _ask_all(self, commands: list[tuple[Argument, ...]]) -> list[Any]:
        async with asyncio.timeout(_PATIENCE):
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
