"""Redis is restarted, gone, or stands still: what needs one node alone goes on (docs/nodes.md)."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from tests.rig.errors import assert_error
from tests.rig.waiting import eventually
from tests.servers.redis import Redis
from tests.system.faults.cluster import V1, Servers
from tests.system.faults.conftest import StartFleet
from tests.system.faults.steps import listed, works

pytestmark = pytest.mark.faults

FAULTS: dict[str, Callable[[Redis], None]] = {"stopped": Redis.stop, "frozen": Redis.freeze}

BUS_DOWN = "bus down, Redis unavailable"


async def healed(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_node_serves_its_own_machines_without_redis(
    fault: str, start_fleet: StartFleet, servers: Servers
) -> None:
    async with start_fleet(2) as two:
        here, there = (two.client(node) for node in two.nodes)
        await two.subscribes(two.nodes[0], "machine:disconnected")
        mine, theirs = await two.machine(), await two.machine()
        near = (await mine.connects(two.nodes[0])).obliges()
        far = (await theirs.connects(two.nodes[1])).obliges()
        both = {mine.id, theirs.id}
        assert await works(here, theirs)

        await asyncio.to_thread(FAULTS[fault], servers.redis)
        for _ in range(10):
            local = await here.get(mine.status)
            assert local.status_code == 200, local.text
            assert_error(await here.get(theirs.status), 503)
            assert await listed(here) == await listed(there) == both
            await asyncio.sleep(0.2)  # several of the moments at which Redis is tried again
        ready = await here.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "ok")
        assert ready.json()["redis"] != "ok"
        for node in two.nodes:
            await eventually(lambda n=node: n.logged(BUS_DOWN) == 1)  # type: ignore[misc]
        assert two.nodes[0].logged("rate limits not shared, Redis unavailable") >= 1

        body, once = {"command": "true"}, {"Idempotency-Key": "one"}
        assert_error(await here.post(theirs.terminal, json=body, headers=once), 503)

        third = await two.machine()  # connects while the nodes cannot speak to each other
        late = (await third.connects(two.nodes[1])).obliges()
        await asyncio.to_thread(_mend, servers.redis)
        for client in (here, there):
            for machine in (mine, theirs, third):
                await eventually(lambda c=client, m=machine: works(c, m))  # type: ignore[misc]
            await eventually(lambda c=client: healed(c))  # type: ignore[misc]
            assert await listed(client) == both | {third.id}
        answer = await here.post(theirs.terminal, json=body, headers=once)
        assert answer.status_code == 200, "nothing was sent, so the key is free"
        assert all(socket.is_open for socket in (near, far, late))
        assert two.events_received() == {}, "nobody was away"
        assert [node.errors() for node in two.nodes] == [[], []]


async def test_nodes_agree_again_after_redis_lost_its_data(
    start_fleet: StartFleet, servers: Servers
) -> None:
    async with start_fleet(2) as two:
        here = two.client(two.nodes[0])
        machine = await two.machine()
        socket = (await machine.connects(two.nodes[1])).obliges()
        assert await works(here, machine)
        for _ in range(3):
            await asyncio.to_thread(servers.redis.restart)
            assert await listed(here) == {machine.id}
            await eventually(lambda: works(here, machine))
            assert await listed(here) == {machine.id}
        assert socket.is_open
        assert [node.errors() for node in two.nodes] == [[], []]


async def test_limits_are_shared_again_once_redis_is_back(
    start_fleet: StartFleet, servers: Servers
) -> None:
    async with start_fleet(2, rate_limit_key="20") as two:
        here, there = (two.client(node) for node in two.nodes)

        async def spent(client: httpx.AsyncClient) -> int:
            """Return how many requests pass before one is refused."""
            for passed in range(100):
                response = await client.get(f"{V1}/daemons")
                if response.status_code == 429:
                    return passed
                assert response.status_code == 200, response.text
            raise AssertionError("no limit")

        assert await spent(here) + await spent(there) <= 21  # a window may end meanwhile
        await asyncio.to_thread(servers.redis.stop)
        assert 0 < await spent(here) <= 21
        assert 0 < await spent(there) <= 21
        await asyncio.to_thread(servers.redis.start)
        await eventually(lambda: healed(here))
        await eventually(lambda: healed(there))
        assert await spent(here) + await spent(there) <= 21


def _mend(redis: Redis) -> None:
    redis.thaw()
    if not redis.is_ready():
        redis.start()
