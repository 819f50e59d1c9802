"""Two nodes behind a real HAProxy, with the configuration for a host and the one for Docker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from tests.conftest import settings
from tests.deploy.haproxy import HAProxy, name_server
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.patience import PATIENCE, eventually
from tests.rig.private import private
from tests.rig.site import GATEWAY, Owner, Site
from tests.rig.stores import PostgreSQL
from tests.servers.server import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

HOSTS = ("127.0.0.2", "127.0.0.3")
TRIES = 10
PUBLIC_NAME = "outrider.example.com"


@dataclass(frozen=True)
class Deployment:
    """Two nodes, the proxy before them, and an account whose client goes through the proxy."""

    nodes: list[Site]
    proxy: HAProxy
    owner: Owner
    client: httpx.AsyncClient

    async def machine(self) -> ScriptedMachine:
        """Connect a machine through the proxy; it answers every command."""
        enrolled = await self.owner.enrolls()
        url = self.proxy.url.replace("http", "ws") + GATEWAY
        machine = await self.owner.site.hold(ScriptedMachine(url, enrolled.token, hello()))
        return machine.obliges()


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["host", "docker"])
async def deployment(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgresql: PostgreSQL,
) -> AsyncIterator[Deployment]:
    directory = tmp_path_factory.mktemp("deployment")
    port = free_port()
    common = settings(
        directory / "node0",
        postgresql,
        port=port,
        secret_key="k" * 32,
        drain_delay=3,
        rate_limit_auth=TRIES,
        trusted_proxies="127.0.0.1",
        public_url=f"https://{PUBLIC_NAME}",
    )
    async with AsyncExitStack() as held:
        nodes = []
        for number, host in enumerate(HOSTS):
            changes = {"host": host, "data_dir": directory / f"node{number}"}
            node = Site(common.model_copy(update=changes))
            await node.start()
            held.push_async_callback(node.close)
            nodes.append(node)
        resolver = None
        if request.param == "docker":
            resolver = await held.enter_async_context(name_server(HOSTS))
        proxy = private(lambda: HAProxy([(host, port) for host in HOSTS], resolver))
        await asyncio.to_thread(proxy.__enter__)
        held.push_async_callback(asyncio.to_thread, proxy.__exit__)
        owner = await nodes[0].account()
        client = await held.enter_async_context(
            httpx.AsyncClient(
                base_url=proxy.url,
                headers={"Authorization": f"Bearer {owner.key}"},
                trust_env=False,
                timeout=2 * PATIENCE,
            )
        )

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
        yield Deployment(nodes, proxy, owner, client)


async def test_a_client_cannot_choose_the_address_that_it_counts_as(deployment: Deployment) -> None:
    statuses = Counter[int]()
    async with httpx.AsyncClient(
        base_url=deployment.proxy.url, trust_env=False, timeout=PATIENCE
    ) as stranger:
        for number in range(3 * TRIES):
            claims = {"X-Forwarded-For": f"198.51.100.{number}"}
            body = {"code": "wrong", "hostname": "h", "platform": "linux", "version": "1"}
            answer = await stranger.post("/api/v1/auth/enroll", json=body, headers=claims)
            statuses[answer.status_code] += 1
    assert statuses[429] > 0, statuses


async def test_the_public_name_is_served_and_no_other(deployment: Deployment) -> None:
    for name, status in ((PUBLIC_NAME, 200), ("elsewhere.example.com", 421)):
        answer = await deployment.client.get("/api/v1/daemons", headers={"Host": name})
        assert answer.status_code == status, name


async def test_a_node_that_stops_fails_no_request(deployment: Deployment) -> None:
    """The last test of each deployment: it leaves one node."""
    machine = await deployment.machine()
    path = f"/api/v1/daemons/{machine.id}/terminal"
    outcomes, stop = Counter[str](), asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            try:
                answer = await deployment.client.post(path, json={"command": "echo hi"})
            except httpx.TransportError as error:
                outcomes[repr(error)] += 1
            else:
                outcomes["done" if answer.is_success else answer.text] += 1
            await asyncio.sleep(0.01)

    # The machine is on one of the nodes; the other one stops.
    free = await _node_without_machines(deployment)
    async with asyncio.TaskGroup() as loads:
        loads.create_task(load())
        await eventually(lambda: outcomes["done"] > 10)
        await free.stop()
        before = outcomes["done"]
        await eventually(lambda: outcomes["done"] > before + 10)
        stop.set()
    assert outcomes.keys() == {"done"}, outcomes
    assert machine.is_open


async def _node_without_machines(deployment: Deployment) -> Site:
    for node in deployment.nodes:
        host, port = node.settings.host, node.settings.port
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            metrics = (await client.get(f"http://{host}:{port}/metrics")).text
        if "outrider_machines 0.0" in metrics:
            return node
    raise AssertionError("every node has a machine")
