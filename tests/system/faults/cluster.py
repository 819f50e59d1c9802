"""Several nodes as real processes, with machines and a receiver, for tests that break things."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import text
from websockets.exceptions import ConnectionClosed

from outrider.contract.enrollment import Enrolled
from outrider.contract.frames import encode
from outrider.service.settings import Settings
from tests.rig.machine import ScriptedMachine, closing, hello, socket
from tests.rig.people import dashboard, person
from tests.rig.processes import Serving
from tests.rig.samples import session
from tests.rig.site import GATEWAY, Owner, Site
from tests.rig.stores import Addresses, PostgreSQL
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.service.webhooks.receiver import Receiver, receiving

V1: Final = "/api/v1"
NODE_TIMEOUT: Final = 2.0
GRACE: Final = 2.0

_BEATS_PER_TIMEOUT: Final = 5


class Servers:
    """The PostgreSQL and the Redis of a test's nodes, to be broken."""

    def __init__(self, postgres: Postgres, redis: Redis) -> None:
        self.postgres = postgres
        self.redis = redis
        self._store = PostgreSQL(postgres, redis)

    def empty(self, directory: Path) -> Addresses:
        """Return the addresses of a database with the newest schema and nothing in it."""
        return self._store.migrated(directory)

    def mend(self) -> None:
        """Let them run again after whatever a test has done to them."""
        for server in (self.postgres, self.redis):
            server.thaw()
            if not server.is_ready():
                server.restart()


class Node(Serving):
    """One node, whose log can be read."""

    def __init__(self, directory: Path, **settings: str) -> None:
        directory.mkdir()
        self.log = directory / "log"
        super().__init__(directory / "data", 0, **settings)

    @property
    def gateway(self) -> str:
        """The address that machines connect to."""
        return self.url.replace("http://", "ws://") + GATEWAY

    def logged(self, event: str) -> int:
        """Return how often the node has logged an event."""
        return sum(line["event"] == event for line in self._lines())

    def errors(self) -> list[str]:
        """Return what the node has logged that must never be: tracebacks and worse."""
        return [str(line) for line in self._lines() if line["level"] in ("error", "critical")]

    def started_at(self) -> float:
        """Return when it started by its own clock, in seconds since the epoch."""
        return datetime.fromisoformat(self._lines()[0]["timestamp"]).timestamp()

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines of its log; what libraries say counts as an error."""
        lines = self.log.read_text().splitlines()
        return [
            json.loads(line) if line.startswith("{") else {"event": line, "level": "error"}
            for line in lines
        ]

    def freeze(self) -> None:
        """Let it stand still, its connections open."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after `freeze`."""
        self.signal(signal.SIGCONT)

    async def dies(self) -> None:
        """Kill it at once."""
        self.signal(signal.SIGKILL)
        await self.ends()


class Machine:
    """An enrolled machine, connected to one node at a time, or to two."""

    def __init__(self, enrolled: Enrolled, fleet: "Fleet") -> None:
        self._enrolled = enrolled
        self._fleet = fleet

    @property
    def id(self) -> str:
        """The machine's id."""
        return self._enrolled.daemon_id

    @property
    def status(self) -> str:
        """The path of a status that the machine is asked for."""
        return f"{V1}/shortcuts/{self.id}:cli:claude-code/status"

    @property
    def terminal(self) -> str:
        """The path of a command that changes something."""
        return f"{V1}/daemons/{self.id}/terminal"

    async def connects(self, node: Node) -> ScriptedMachine:
        """Connect it to a node; its socket is dropped at the end."""
        says = hello(session(id="s1"))
        machine = ScriptedMachine(node.gateway, self._enrolled.token, says)
        return await self._fleet.site.hold(machine)

    async def is_sent_away(self, node: Node) -> int:
        """Connect it to a node that closes the socket; return with which code."""
        async with socket(node.gateway, self._enrolled.token) as opened, asyncio.timeout(TIMEOUT):
            with pytest.raises(ConnectionClosed) as end:  # noqa: PT012  # before or after it
                await opened.send(encode(hello()).decode())
                await opened.recv()
            return closing(end.value)[0]


class Fleet:
    """The nodes, an account with a client at each of them, and a receiver of its webhooks."""

    def __init__(self, nodes: list[Node], owner: Owner, receiver: Receiver) -> None:
        self.nodes = nodes
        self.owner = owner
        self.site = owner.site
        self.receiver = receiver
        self.secret = ""

    def client(self, node: Node) -> httpx.AsyncClient:
        """Return a client of the account at a node."""
        self.site.url = node.url
        return self.site.client(self.owner.key)

    async def dashboard(self, node: Node) -> httpx.AsyncClient:
        """Return a client at a node with a session."""
        self.site.url = node.url
        return await dashboard(self.owner)

    async def machine(self) -> Machine:
        """Enroll a machine."""
        return Machine(await self.owner.enrolls(), self)

    async def subscribes(self, node: Node, *events: str) -> None:
        """Subscribe the receiver to these events."""
        body = {"url": self.receiver.url, "events": list(events)}
        made = await (await self.dashboard(node)).post(f"{V1}/webhooks", json=body)
        assert made.status_code == 201, made.text
        self.secret = made.json()["secret"]

    def events_received(self) -> Counter[tuple[str, str]]:
        """Return how often each event (its name, its machine) has come, counting repeats."""
        return Counter((sent.event, sent.json["daemonId"]) for sent in self.receiver.requests)

    async def every_node_looks(self, seconds: float, nodes: list[Node]) -> None:
        """Wait until these nodes have watched for so long, by their own beats.

        What a node does after a time-out or a grace period it has done by then.
        """
        before = await self._beats()
        assert len(before) == len(nodes), before
        enough = int(seconds / NODE_TIMEOUT * _BEATS_PER_TIMEOUT) + 2

        async def looked() -> bool:
            now = await self._beats()
            return all(now.get(node, 0) - beats >= enough for node, beats in before.items())

        await eventually(looked, within=seconds * 5 + 10)

    async def deliveries_are_over(self) -> None:
        """Wait until no delivery is pending."""

        async def over() -> bool:
            query = "SELECT count(*) FROM deliveries WHERE status = 'pending'"
            return bool(await self._ask(query) == [(0,)])

        await eventually(over)

    async def attempts(self) -> list[tuple[str, int]]:
        """Return the status of every delivery, and its number of attempts."""
        return await self._ask("SELECT status, attempt FROM deliveries")

    async def _beats(self) -> dict[str, int]:
        return dict(await self._ask("SELECT id, beats FROM nodes"))

    async def _ask(self, query: str) -> list[Any]:
        async with self.site.database.read() as transaction:
            return [tuple(row) for row in await transaction.execute(text(query))]


@asynccontextmanager
async def fleet(
    directory: Path,
    addresses: Addresses,
    count: int,
    more: list[dict[str, str]] | None = None,
    **settings: str,
) -> AsyncIterator[Fleet]:
    """Run so many nodes of one service for a block.

    Args:
        more: the environment of each node, beside its settings.
    """
    shared: dict[str, str] = {
        **addresses,
        "secret_key": "k" * 32,
        "node_timeout": str(NODE_TIMEOUT),
        "grace_period": str(GRACE),
        "webhook_retry_delays": "0.3,0.6,1",
        **settings,
    }
    nodes = [Node(directory / f"node{number}", **shared) for number in range(count)]
    for node, environment in zip(nodes, more or [], strict=False):
        node.env.update(environment)
    site = Site(Settings(data_dir=directory / "own", secret_key="k" * 32, **addresses))
    async with receiving() as receiver, AsyncExitStack() as running:
        running.push_async_callback(site.database.close)
        async with asyncio.TaskGroup() as starting:
            for node in nodes:
                starting.create_task(running.enter_async_context(node))
        running.push_async_callback(site.close)
        yield Fleet(nodes, await person(site), receiver)
