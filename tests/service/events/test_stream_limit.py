"""The limit of streams of a credential: on one node, and over the nodes that share a Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from outrider.contract.errors import ApiError
from outrider.service.accounts.principal import ALL_SCOPES, Principal
from outrider.service.accounts.revocation import Credential
from outrider.service.cluster.redis import Redis
from outrider.service.events.stream_limit import StreamLimit
from tests.rig.private import private
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.redis import Redis as RedisServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINE = Credential(Principal("key", "key_1", "acct_1", ALL_SCOPES))
OTHER = Credential(Principal("key", "key_2", "acct_1", ALL_SCOPES))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with private(RedisServer) as redis:
        yield redis


class Node(StreamLimit):
    """The limit on a node; `dies` as a process that is killed."""

    task: asyncio.Task[None]

    async def opens(self, credential: Credential = MINE) -> bool:
        """Open a stream; return whether it was admitted."""
        try:
            await self.acquire(credential)
        except ApiError as error:
            if error.code != "STREAM_LIMIT":
                raise
            return False
        return True

    async def dies(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=TIMEOUT)


@asynccontextmanager
async def node(
    server: RedisServer, prefix: str, lease_seconds: float = 60.0
) -> AsyncIterator[Node]:
    redis = Redis(server.url(), prefix)
    limit = Node(3, redis, lease_seconds)
    limit.task = asyncio.create_task(limit.run())
    try:
        yield limit
    finally:
        await limit.dies()
        await redis.close()


async def test_streams_of_all_nodes_count(server: RedisServer) -> None:
    async with node(server, "count") as one, node(server, "count") as two:
        assert await one.opens()
        assert await two.opens()
        assert await one.opens()
        assert [await one.opens(), await two.opens()] == [False, False]
        assert await two.opens(OTHER)
        one.release(MINE)
        await eventually(two.opens)
        assert not await one.opens()


async def test_a_node_that_leaves_has_no_streams(server: RedisServer) -> None:
    async with node(server, "leave") as one, node(server, "leave") as two:
        assert [await one.opens() for _ in range(3)] == [True] * 3
        assert not await two.opens()
        one.leave()
        await eventually(two.opens)


async def test_a_node_that_was_killed_has_none_after_its_lease(server: RedisServer) -> None:
    async with node(server, "kill", lease_seconds=1) as one, node(server, "kill") as two:
        assert [await one.opens() for _ in range(3)] == [True] * 3
        await one.dies()
        await eventually(two.opens)
        assert await two.opens()


async def test_a_node_writes_its_numbers_again_after_a_loss() -> None:
    """Whether others took it for dead, or Redis has lost everything."""
    with private(RedisServer) as server:
        async with node(server, "loss", lease_seconds=1) as one, node(server, "loss") as two:
            assert [await one.opens() for _ in range(3)] == [True] * 3
            redis = Redis(server.url(), "other")
            await redis.execute("FLUSHALL")
            await redis.close()

            async def is_refused() -> bool:
                admitted = await two.opens()
                if admitted:
                    two.release(MINE)
                return not admitted

            await eventually(is_refused)


async def test_without_redis_each_node_counts_its_own() -> None:
    redis = Redis("redis://127.0.0.1:1", "down")
    limit = Node(2, redis)
    assert [await limit.opens() for _ in range(3)] == [True, True, False]
    limit.release(MINE)
    assert await limit.opens()
    await redis.close()


async def test_one_node() -> None:
    limit = Node(2)
    assert [await limit.opens() for _ in range(3)] == [True, True, False]
    assert await limit.opens(OTHER)
    limit.release(MINE)
    assert [await limit.opens() for _ in range(2)] == [True, False]
