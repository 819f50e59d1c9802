"""Nodes, Redis and the machine agent are killed while a client follows the events.

Holds docs/events.md, "Resume". A client that resumes gets every event once, in order, and misses
none.
"""

import asyncio
import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest

from outrider.service.settings import Settings
from tests.rig.event_follower import Follower
from tests.rig.processes import Program, Serving, environment
from tests.rig.site import Site
from tests.rig.stores import Addresses
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.redis import Redis
from tests.service.webhooks.events import event_id
from tests.system.faults.cluster import NODE_TIMEOUT, Servers

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

EVENTS = int(os.environ.get("CRASH_EVENTS", "5000"))
MAX_SECONDS = 180.0
"""Seconds within which all events must arrive; a machine agent sends 80 a second at the least."""

MAX_KILLS = 60
LAST_KILL = 0.95
"""Nothing is killed once this share of the events has come, so that the rest can."""


async def test_one_node_on_sqlite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await _follow(tmp_path, {}, 1, None, capsys)


async def test_two_nodes_on_postgresql(
    tmp_path: Path, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    await _follow(tmp_path, servers.empty(tmp_path), 2, servers.redis, capsys)


async def _follow(
    directory: Path,
    addresses: Addresses,
    count: int,
    redis: Redis | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "14"))
    async with AsyncExitStack() as running, asyncio.timeout(MAX_SECONDS + 2 * TIMEOUT):
        crash = _Crash(directory, addresses, count, chance, running)
        await crash.begin()
        client = Follower(crash.any_node, crash.key, "events=agent:*")
        following = asyncio.create_task(client.run())
        running.callback(following.cancel)
        await eventually(lambda: bool(client.resumes))
        start = client.position
        await crash.start_machine()
        kills = Counter[str]()
        victims = ["node", "machine", *(["redis"] if redis else [])]
        for number in range(MAX_KILLS):
            await asyncio.sleep(chance.uniform(0.1, 1))
            if len(client.taken) >= EVENTS * LAST_KILL:
                break
            who = victims[number % len(victims)]
            kills[who] += 1
            match who:
                case "node":
                    await crash.kill_node(chance.randrange(count))
                case "machine":
                    await crash.kill_machine()
                case "redis" if redis is not None:
                    await asyncio.to_thread(redis.kill)
                    await asyncio.to_thread(redis.start)
        expected = [event_id(number) for number in range(EVENTS)]
        with suppress(AssertionError):  # what is missing says more
            await eventually(lambda: len(client.taken) >= EVENTS, within=MAX_SECONDS)
        await eventually(crash.nothing_is_left)
        _assert_same([frame.data["id"] for frame in client.taken], expected)
        cursors = [frame.id or "" for frame in client.taken]
        assert cursors == sorted(set(cursors))
        assert client.resumes[0] == "fresh"
        assert set(client.resumes[1:]) <= {"ok"}
        assert start is not None
        _assert_same(await crash.log(start), expected)
        with capsys.disabled():
            print(  # noqa: T201
                f"\n{EVENTS} events, kills {dict(kills)}, {len(client.resumes)} connections: "
                "each came once, in order"
            )


def _assert_same(came: Sequence[str], expected: Sequence[str]) -> None:
    """Compare ids, with a message that is no page of them."""
    counts = Counter(came)
    missing = [number for number, event_id in enumerate(expected) if event_id not in counts]
    assert not missing, f"{len(missing)} events are missing, the first is {missing[0]}"
    twice = [one for one, count in counts.items() if count > 1]
    assert not twice, f"{len(twice)} events came more than once"
    assert list(came) == list(expected), "the events are not in order"


class _Crash:
    """The processes, each of which may be killed at any moment."""

    def __init__(
        self,
        directory: Path,
        addresses: Addresses,
        count: int,
        chance: random.Random,
        running: AsyncExitStack,
    ) -> None:
        self._directory = directory
        self._addresses = addresses
        self._settings = {
            **addresses,
            "secret_key": "k" * 32,
            "node_timeout": str(NODE_TIMEOUT),
            "webhook_retry_delays": "1",
        }
        self._journal = directory / "journal.db"
        self._chance = chance
        self._running = running
        self._nodes: list[Serving] = []
        self._count = count
        self._machine: Program | None = None

    async def begin(self) -> None:
        """Start the nodes; make an account with a machine."""
        for number in range(self._count):
            self._nodes.append(await self._serve(number, 0))
        settings = Settings(
            data_dir=self._directory / "node0", secret_key="k" * 32, **self._addresses
        )
        site = Site(settings)
        owner = await site.account()
        self.key = owner.key
        self._enrolled = await owner.enrolls()
        await site.close()

    def any_node(self) -> str:
        """Return the address of a node, which may not answer now."""
        return self._chance.choice(self._nodes).url

    async def kill_node(self, number: int) -> None:
        """Kill a node, and start it again on its port."""
        node = self._nodes[number]
        node.signal(signal.SIGKILL)
        await node.ends()
        self._nodes[number] = await self._serve(number, node.port)

    async def kill_machine(self) -> None:
        """Kill the machine agent; it comes back at any of the nodes."""
        assert self._machine is not None
        self._machine.signal(signal.SIGKILL)
        await self._machine.ends()
        await self.start_machine()

    async def start_machine(self) -> None:
        """Start the machine agent."""
        env = environment(self._directory / "machine")
        root = str(Path(__file__).parents[3])
        env["PYTHONPATH"] = ":".join([*filter(None, [env.get("PYTHONPATH")]), root])
        enrolled = self._enrolled
        arguments = [self.any_node(), enrolled.daemon_id, enrolled.token, str(self._journal)]
        self._machine = await self._running.enter_async_context(
            Program("-m", "tests.service.webhooks.daemon_program", *arguments, str(EVENTS), env=env)
        )

    def nothing_is_left(self) -> bool:
        """Return whether the machine has nothing left to send."""
        with sqlite3.connect(self._journal) as journal:
            ((waiting,),) = journal.execute("SELECT count(*) FROM events")
        return bool(waiting == 0)

    async def log(self, after: str) -> list[str]:
        """Return the ids of all events after a cursor, page by page."""
        ids: list[str] = []
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(
            base_url=self._nodes[0].url, headers=headers, trust_env=False, timeout=TIMEOUT
        ) as client:
            while True:
                path = f"/api/v1/events?events=agent:*&limit=500&after={after}"
                page = (await client.get(path)).raise_for_status().json()
                if not page["events"]:
                    return ids
                ids += [event["id"] for event in page["events"]]
                after = page["cursor"]

    async def _serve(self, number: int, port: int) -> Serving:
        serving = Serving(self._directory / f"node{number}", port, **self._settings)
        return await self._running.enter_async_context(serving)
