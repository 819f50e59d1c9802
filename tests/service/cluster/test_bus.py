"""What every bus promises, in memory and on Redis; and what only Redis can show."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.redis import Redis
from outrider.service.cluster.redis_bus import RedisBus
from outrider.service.cluster.redis_subscription import Message, Subscription
from tests.rig.buses import on_redis
from tests.rig.private import private
from tests.rig.waiting import eventually
from tests.servers.redis import Redis as RedisServer
from tests.servers.redis import RedisCluster

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with private(RedisServer) as redis:
        yield redis


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with private(RedisCluster) as redis:
        yield redis


@pytest_asyncio.fixture(loop_scope="session", params=["memory", "server", "cluster"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Bus, Bus]]:
    """The buses of two nodes."""
    if request.param == "memory":
        both = Bus(is_shared=True)
        yield both, both
        return
    redis = request.getfixturevalue(request.param)
    async with on_redis(redis) as first, on_redis(redis) as other:
        yield first, other


async def test_all_who_listen_hear_in_order(pair: tuple[Bus, Bus]) -> None:
    first, other = pair
    received: list[tuple[str, bytes]] = []
    await first.subscribe("c", lambda message: received.append(("one", message)))
    await other.subscribe("c", lambda message: received.append(("other", message)))
    for number in range(100):
        assert await first.publish("c", str(number).encode()) == 2
    await eventually(lambda: len(received) == 200)
    for node in ("one", "other"):
        assert [int(message) for who, message in received if who == node] == list(range(100))


async def test_nobody_hears_what_nobody_listens_to(pair: tuple[Bus, Bus]) -> None:
    first, other = pair
    assert await first.publish("nobody", b"x") == 0
    received: list[bytes] = []
    handler = received.append
    await other.subscribe("c2", handler)
    assert await first.publish("c2", b"first") == 1
    await eventually(lambda: received == [b"first"])
    await other.unsubscribe("c2", handler)

    async def nobody() -> bool:
        return await first.publish("c2", b"second") == 0

    await eventually(nobody)
    assert received[0] == b"first"


async def test_a_message_of_megabytes_is_heard_whole(pair: tuple[Bus, Bus]) -> None:
    first, other = pair
    received: list[bytes] = []
    await other.subscribe("large", received.append)
    large = bytes(range(256)) * 60_000
    assert await first.publish("large", large) == 1
    await eventually(lambda: received == [large])


async def test_a_board_keeps_the_latest_version(pair: tuple[Bus, Bus]) -> None:
    first, other = pair
    await first.put("b", "name", 2, b"two:\x00")
    await other.put("b", "name", 1, b"one")
    assert await other.get("b", "name") == b"two:\x00"
    await other.put("b", "name", 2, b"two again")
    await other.put("b", "second", 1, b"")
    assert await first.items("b") == {"name": b"two again", "second": b""}
    await other.remove("b", "name", 1)
    assert await first.get("b", "name") == b"two again"
    await other.remove("b", "name", 3)
    await other.remove("b", "second", 1)
    assert await first.get("b", "name") is None
    assert await first.items("b") == {}


async def test_a_large_message_that_nobody_hears_is_not_kept(server: RedisServer) -> None:
    async with on_redis(server, "unheard") as bus:
        assert await bus.publish("nobody", b"x" * 1_000_000) == 0
        redis = Redis(server.url(), "unheard")
        assert await redis.execute("KEYS", redis.key("large", "*")) == []
        await redis.close()


async def test_installations_on_one_redis_do_not_hear_each_other(server: RedisServer) -> None:
    async with on_redis(server, "mine") as mine, on_redis(server, "theirs") as theirs:
        received: list[bytes] = []
        await theirs.subscribe("c", received.append)
        assert await mine.publish("c", b"x") == 0
        await mine.put("b", "name", 1, b"x")
        assert await theirs.items("b") == {}


async def test_it_tells_of_a_break_and_heals() -> None:
    """What was listened to before, and meanwhile, is heard again once Redis is back."""
    with private(RedisServer) as server:
        changes: list[str] = []
        async with on_redis(server, changes=changes) as bus:
            received: list[bytes] = []
            await bus.subscribe("before", received.append)
            await asyncio.to_thread(server.kill)
            await eventually(lambda: changes == ["up", "down"])
            with pytest.raises(BusDown):
                await bus.publish("before", b"lost")
            await bus.subscribe("meanwhile", received.append)
            await asyncio.to_thread(server.start)
            await eventually(lambda: changes == ["up", "down", "up"])

            async def both() -> bool:
                counts = [await bus.publish(name, b"x") for name in ("before", "meanwhile")]
                return counts == [1, 1]

            await eventually(both)
            await eventually(lambda: len(received) >= 2)


class PausesReconnecting(Redis):
    """Has a bus that reconnects wait once its channels are subscribed, until `go_on`."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server.url(), "test")
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.is_waiting = False

    async def subscription(self) -> Subscription:
        """Return a subscription that confirms channels only after `go_on`."""
        made = await super().subscription()
        receive = made.next

        async def paused(within: float) -> Message | None:
            message = await receive(within)
            self.is_waiting = not self.go_on.is_set()
            await self.go_on.wait()
            return message

        made.next = paused  # type: ignore[method-assign]
        return made


async def test_what_is_unsubscribed_during_a_reconnect_has_no_subscriber() -> None:
    """Otherwise a command to a machine that has left would be taken for sent."""
    with private(RedisServer) as server:
        redis = PausesReconnecting(server)
        bus = RedisBus(redis, lambda: None, nothing)
        running = asyncio.create_task(bus.run())
        received: list[bytes] = []
        handler = received.append
        try:
            await eventually(lambda: bus.is_up)
            await bus.subscribe("leaves", handler)
            await bus.subscribe("stays", handler)
            redis.go_on.clear()
            await asyncio.to_thread(server.kill)
            await eventually(lambda: not bus.is_up)
            await asyncio.to_thread(server.start)
            await eventually(lambda: redis.is_waiting)
            await bus.unsubscribe("leaves", handler)
            redis.go_on.set()
            await eventually(lambda: bus.is_up)

            async def counts() -> bool:
                found = [await bus.publish(name, b"x") for name in ("leaves", "stays")]
                return found == [0, 1]

            await eventually(counts)
            await bus.subscribe("leaves", handler)
            assert await bus.publish("leaves", b"again") == 1
            await eventually(lambda: b"again" in received)
        finally:
            running.cancel()
            await asyncio.wait({running})
            await bus.close()


@pytest.mark.faults
async def test_it_notices_a_redis_that_is_frozen() -> None:
    """No connection ends then: only its silence tells."""
    with private(RedisServer) as server:
        changes: list[str] = []
        async with on_redis(server, changes=changes) as bus:
            await asyncio.to_thread(server.freeze)
            with pytest.raises(BusDown):
                await bus.publish("c", b"x")
            await eventually(lambda: changes == ["up", "down"])
            await asyncio.to_thread(server.thaw)
            await eventually(lambda: changes == ["up", "down", "up"])


@pytest.mark.faults
async def test_once_it_has_stopped_unsubscribing_asks_nothing_of_redis() -> None:
    """Otherwise each task that unsubscribes at its end would wait for a Redis that hangs."""
    with private(RedisServer) as server:
        bus = RedisBus(Redis(server.url(), "test"), lambda: None, nothing)
        running = asyncio.create_task(bus.run())
        received: list[bytes] = []
        await bus.subscribe("c", received.append)
        await eventually(lambda: bus.is_up)
        await asyncio.to_thread(server.freeze)
        running.cancel()
        await asyncio.wait({running})
        unsubscribing = asyncio.create_task(bus.unsubscribe("c", received.append))
        try:
            await eventually(unsubscribing.done)
        finally:
            unsubscribing.cancel()
            await asyncio.to_thread(server.thaw)
            await bus.close()


async def nothing() -> None:
    """Do nothing."""
