"""A node that is told to stop, on real processes with a real PostgreSQL and Redis."""

import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from outrider.service.settings import Settings
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.private import private
from tests.rig.processes import Serving
from tests.rig.site import GATEWAY, Owner, Site
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

DELAY = 10
"""Seconds of `drain_delay`: the test's requests to a node that stops must be faster."""


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[Postgres, Redis]]:
    """Servers that the tests of this module share."""
    with private(Postgres) as postgres, private(Redis) as redis:
        yield postgres, redis


class Nodes:
    """Nodes of one service, and an account."""

    def __init__(self, data_dir: Path, addresses: dict[str, str]) -> None:
        self._data_dir = data_dir
        self._addresses = addresses
        self.held = AsyncExitStack()
        self.owner: Owner
        self.all: list[Serving] = []

    async def start(self, port: int = 0) -> Serving:
        serving = Serving(self._data_dir, port, **self._addresses, drain_delay=str(DELAY))
        return await self.held.enter_async_context(serving)

    async def populate(self) -> None:
        site = Site(Settings.model_validate({"data_dir": self._data_dir, **self._addresses}))
        self.owner = await site.account()
        self.held.push_async_callback(site.close)


@pytest_asyncio.fixture(loop_scope="session")
async def nodes(stores: tuple[Postgres, Redis], tmp_path: Path) -> AsyncIterator[Nodes]:
    postgres, redis = stores
    addresses = {
        "database_url": postgres.create(f"draining_{secrets.token_hex(8)}"),
        "redis_url": redis.url(),
    }
    nodes = Nodes(tmp_path / "data", addresses)
    async with nodes.held:
        yield nodes


async def test_a_node_that_stops_sends_its_clients_to_the_others(nodes: Nodes) -> None:
    one, other = await nodes.start(), await nodes.start()
    await nodes.populate()
    headers = {"Authorization": f"Bearer {nodes.owner.key}"}
    async with httpx.AsyncClient(
        headers=headers, trust_env=False, verify=False, timeout=TIMEOUT
    ) as client:
        assert "connection" not in (await client.get(f"{one.url}/api/v1/daemons")).headers
        one.signal(signal.SIGTERM)

        async def not_ready() -> bool:
            answer = await client.get(f"{one.url}/readyz")
            return answer.status_code == 503 and answer.json()["node"] == "stopping"

        await eventually(not_ready, within=DELAY / 2)
        answer = await client.get(f"{one.url}/api/v1/daemons")
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        assert await one.ends() == 0
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{one.url}/readyz")
        assert (await client.get(f"{other.url}/readyz")).status_code == 200


async def test_a_node_stops_in_time_though_redis_is_frozen(
    nodes: Nodes, stores: tuple[Postgres, Redis]
) -> None:
    one, _ = await nodes.start(), await nodes.start()
    await nodes.populate()
    enrolled = await nodes.owner.enrolls()
    gateway = one.url.replace("http", "ws") + GATEWAY
    async with ScriptedMachine(gateway, enrolled.token, hello()):
        stores[1].freeze()
        try:
            one.signal(signal.SIGTERM)
            assert await one.ends(DELAY + 20 + TIMEOUT) == 0
        finally:
            stores[1].thaw()
