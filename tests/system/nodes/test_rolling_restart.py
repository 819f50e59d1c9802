"""Three nodes are restarted one after the other under load, and no command fails.

Holds docs/deploy.md, "Rolling restart".
"""

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.rig.processes import Program, Serving, environment, outrider
from tests.rig.stores import PostgreSQL
from tests.rig.waiting import eventually
from tests.system.nodes.balancer import Balancer, balancing

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.faults,
    pytest.mark.timeout(300),
]

MACHINES = 3
LOOPS = 4


class Cluster:
    """Nodes behind a balancer, and machines with the real agent."""

    def __init__(self, tmp_path: Path, store: PostgreSQL, balancer: Balancer) -> None:
        self._path = tmp_path
        self._settings = {
            **store.migrated(tmp_path / "first"),
            "secret_key": "k" * 32,
            "grace_period": "10",
            "drain_delay": "5",  # the balancer has to notice, on a busy machine too
        }
        self._balancer = balancer
        self._held = AsyncExitStack()
        self.nodes: list[Serving] = []

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def start_node(self) -> Serving:
        """Start a node, and wait until the balancer has it."""
        directory = self._path / f"node{len(self.nodes)}"
        node = await self._held.enter_async_context(Serving(directory, **self._settings))
        self.nodes.append(node)
        self._balancer.add(node.url)
        await eventually(lambda: node.url in self._balancer.ready())
        return node

    async def stop_node(self, node: Serving) -> None:
        """Stop a node as its operator would."""
        node.signal(signal.SIGTERM)
        assert await node.ends(within=30) == 0
        self._balancer.remove(node.url)

    async def account(self) -> str:
        """Make an account; return a key."""
        options = ("--email", "a@example.org", "--plan", "enterprise")
        (await self.nodes[0].admin("account", "create", *options)).json()
        made = await self.nodes[0].admin(
            "key", "create", "--account", "a@example.org", "--name", "k"
        )
        key: str = made.json()["key"]
        return key

    async def start_machine(self, number: int) -> None:
        """Enroll a machine through the balancer, and start its agent."""
        made = await self.nodes[0].admin("enroll", "--account", "a@example.org")
        code = made.json()["code"]
        home = self._path / f"machine{number}"
        home.mkdir()
        env = environment(home / "data")
        setup = await outrider("setup", "--server", self._balancer.url, "--code", code, env=env)
        assert setup.code == 0, setup.err
        await self._held.enter_async_context(Program("-m", "outrider", "daemon", env=env))


async def test_no_command_fails(tmp_path: Path, postgresql: PostgreSQL) -> None:
    async with balancing() as balancer, Cluster(tmp_path, postgresql, balancer) as cluster:
        for _ in range(3):
            await cluster.start_node()
        key = await cluster.account()
        for number in range(MACHINES):
            await cluster.start_machine(number)
        async with httpx.AsyncClient(
            base_url=balancer.url,
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
            verify=False,
            timeout=60,
        ) as client:

            async def listed() -> list[str]:
                daemons = (await client.get("/api/v1/daemons")).json()["daemons"]
                return [daemon["id"] for daemon in daemons]

            async def all_listed() -> bool:
                return len(await listed()) == MACHINES

            await eventually(all_listed, within=30)
            machines = await listed()
            stop, outcomes = asyncio.Event(), Counter[str]()

            async def load(number: int) -> None:
                path = f"/api/v1/daemons/{machines[number % MACHINES]}/terminal"
                body = {"command": f"sleep 0.1; echo {number}"}
                while not stop.is_set():
                    try:
                        response = await client.post(path, json=body)
                    except httpx.TransportError as error:
                        outcomes[repr(error)] += 1
                        continue
                    is_done = response.is_success and response.json()["output"] == f"{number}\n"
                    outcomes["done" if is_done else response.text] += 1

            async with asyncio.TaskGroup() as loads:
                for number in range(LOOPS):
                    loads.create_task(load(number))
                for node in list(cluster.nodes):
                    before = outcomes["done"]
                    await cluster.stop_node(node)
                    await cluster.start_node()
                    assert outcomes["done"] > before
                stop.set()
        assert outcomes.keys() == {"done"}, outcomes
