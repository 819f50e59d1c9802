"""Nodes behind each real proxy are restarted and suspended; both are real processes.

Holds docs/deploy.md, "Rolling restart" and the table of the proxies.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.deploy.proxies import Caddy, HAProxy, Nginx, Proxy
from tests.rig.certificates import Authority
from tests.rig.private import private
from tests.rig.processes import Program, environment, outrider
from tests.rig.stores import PostgreSQL
from tests.rig.waiting import TIMEOUT, eventually
from tests.system.faults.cluster import Node

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.faults,
    pytest.mark.timeout(300),
]

LOOPS = 4
LIST = "/api/v1/daemons"


class Cluster:
    """Two nodes behind a proxy, an account, and a machine with the real agent.

    Attributes:
        client: goes through the proxy, with a key of the account.
        machine: the machine's id.
    """

    def __init__(self, nodes: list[Node], client: httpx.AsyncClient, machine: str) -> None:
        self.nodes = nodes
        self.client = client
        self.machine = machine

    async def restart(self, node: Node) -> None:
        """Stop a node as its operator would, and start it again."""
        node.signal(signal.SIGTERM)
        assert await node.ends() == 0
        await node.__aenter__()

    async def answers_at_once(self) -> bool:
        """Return whether a number of requests in a row are answered without a wait."""
        for _ in range(20):
            try:
                answer = await self.client.get(LIST, timeout=2)
            except httpx.TimeoutException:
                return False
            assert answer.status_code == 200, answer.text
        return True


@pytest_asyncio.fixture(loop_scope="session", params=[HAProxy, Nginx, Caddy])
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql: PostgreSQL
) -> AsyncIterator[Cluster]:
    settings = {
        **postgresql.migrated(tmp_path / "first"),
        "secret_key": "k" * 32,
        "drain_delay": "5",
        "trusted_proxies": "127.0.0.1",
    }
    authority = Authority(tmp_path)
    async with AsyncExitStack() as held:
        nodes = [Node(tmp_path / f"node{number}", **settings) for number in range(2)]
        for node in nodes:
            await held.enter_async_context(node)
        addresses = [("127.0.0.1", node.port) for node in nodes]
        proxy: Proxy = private(lambda: request.param(addresses, authority.issue()[:2]))
        await asyncio.to_thread(proxy.__enter__)
        held.push_async_callback(asyncio.to_thread, proxy.__exit__)
        machine_env = environment(tmp_path / "machine") | {"SSL_CERT_FILE": str(authority.file)}
        key = await new_key(nodes[0])
        await held.enter_async_context(await machine(nodes[0], proxy, machine_env))
        client = await held.enter_async_context(
            httpx.AsyncClient(
                base_url=proxy.url,
                headers={"Authorization": f"Bearer {key}"},
                verify=authority.context,
                trust_env=False,
                timeout=2 * TIMEOUT,
            )
        )
        listed: list[str] = []

        async def is_connected() -> bool:
            listed[:] = [row["id"] for row in (await client.get(LIST)).json()["daemons"]]
            return bool(listed)

        await eventually(is_connected)
        yield Cluster(nodes, client, listed[0])


async def new_key(node: Node) -> str:
    email = ("--email", "a@example.org")
    (await node.admin("account", "create", *email, "--plan", "enterprise")).json()
    made = await node.admin("key", "create", "--account", email[1], "--name", "k")
    return str(made.json()["key"])


async def machine(node: Node, proxy: Proxy, env: dict[str, str]) -> Program:
    """Enroll a machine through the proxy; return its agent, not started yet."""
    code = (await node.admin("enroll", "--account", "a@example.org")).json()["code"]
    setup = await outrider("setup", "--server", proxy.url, "--code", code, env=env)
    assert setup.code == 0, setup.err
    return Program("-m", "outrider", "daemon", env=env)


@asynccontextmanager
async def load(cluster: Cluster) -> AsyncIterator[Counter[str]]:
    """Send requests and commands all the time; give how often each outcome was."""
    stop, outcomes = asyncio.Event(), Counter[str]()
    client, path = cluster.client, f"{LIST}/{cluster.machine}/terminal"

    async def send(number: int) -> None:
        while not stop.is_set():
            requested = (
                client.post(path, json={"command": "echo hi"}) if number % 2 else client.get(LIST)
            )
            try:
                answer = await requested
            except httpx.TransportError as error:
                outcomes[repr(error)] += 1
            else:
                outcomes["done" if answer.is_success else f"{number} {answer.text}"] += 1
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as loads:
        for number in range(LOOPS):
            loads.create_task(send(number))
        await eventually(lambda: outcomes["done"] > LOOPS)
        yield outcomes
        before = outcomes["done"]
        await eventually(lambda: outcomes["done"] > before + LOOPS)
        stop.set()


async def test_nodes_that_are_restarted_in_turn_fail_no_request(cluster: Cluster) -> None:
    async with load(cluster) as outcomes:
        for node in cluster.nodes:
            await cluster.restart(node)
    assert outcomes.keys() == {"done"}, outcomes
    for node in cluster.nodes:
        assert node.logged("machines not moved in time") == 0


async def test_a_suspended_node_is_left_out(cluster: Cluster) -> None:
    suspended = cluster.nodes[0]
    suspended.freeze()
    # nginx notices that a request is not answered: its client has to wait for longer than others.
    waiting = [asyncio.create_task(cluster.client.get(LIST)) for _ in range(LOOPS)]
    try:
        await eventually(cluster.answers_at_once, within=2 * TIMEOUT)
    finally:
        suspended.go_on()
        answers = await asyncio.gather(*waiting)
    assert all(answer.is_success for answer in answers), answers
