"""Buses of nodes on a Redis of the tests."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.redis import Redis
from outrider.service.cluster.redis_bus import RedisBus
from tests.rig.waiting import eventually
from tests.servers.redis import Redis as RedisServer
from tests.servers.redis import RedisCluster


@asynccontextmanager
async def on_redis(
    server: RedisServer | RedisCluster, prefix: str = "test", changes: list[str] | None = None
) -> AsyncIterator[RedisBus]:
    """Run a bus until the end; `changes` gets "down" and "up"."""
    changes = [] if changes is None else changes

    async def up() -> None:
        changes.append("up")

    bus = RedisBus(Redis(server.url(), prefix), lambda: changes.append("down"), up)
    running = asyncio.create_task(bus.run())
    try:
        own = secrets.token_hex(4)
        await bus.subscribe(own, lambda _: None)
        await eventually(lambda: has_subscriber(bus, own))
        await eventually(lambda: bus.is_up)  # Redis knows of it earlier
        yield bus
    finally:
        running.cancel()
        await asyncio.wait({running})
        await bus.close()


async def has_subscriber(bus: Bus, channel: str) -> bool:
    """Return whether a channel has a subscriber."""
    try:
        return await bus.publish(channel, b"") > 0
    except BusDown:
        return False
