"""PostgreSQL is restarted, gone, or stands still: requests fail for the moment (docs/nodes.md)."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from outrider.contract.frames import Acknowledge, CloseCode, Command, Event
from outrider.service.database.engine import Database
from outrider.service.database.transaction import DatabaseUnavailable
from outrider.service.settings import Settings
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.postgres import Postgres
from tests.service.webhooks.events import agent_event, event_id
from tests.system.faults.cluster import GRACE, NODE_TIMEOUT, V1, Machine, Servers
from tests.system.faults.conftest import StartFleet
from tests.system.faults.steps import listed, works

pytestmark = pytest.mark.faults

FAULTS: dict[str, Callable[[Postgres], None]] = {
    "stopped": Postgres.stop,
    "frozen": Postgres.freeze,
}
OUTAGE = NODE_TIMEOUT + GRACE + 1
"""Seconds for which it is gone: no machine may be declared dead for that."""

DISCONNECTED = "machine:disconnected"


@pytest.mark.parametrize("fault", FAULTS)
async def test_nodes_stay_alive_and_lose_nothing_while_postgresql_is_unavailable(
    fault: str, start_fleet: StartFleet, servers: Servers
) -> None:
    async with start_fleet(2) as two:
        await two.subscribes(two.nodes[0], "agent:generating_started", DISCONNECTED)
        machines = [await two.machine() for _ in range(3)]
        executed = Counter[str]()

        def execute(command: Command) -> None:
            executed[payload_of(command)["command"]] += 1

        sockets = [
            (await machine.connects(two.nodes[0])).obliges(terminal=execute) for machine in machines
        ]
        busy, _, leaving = sockets
        clients = [two.client(node) for node in two.nodes]
        async with working(clients, machines[:2]) as work, telling(busy) as sent_events:
            await eventually(lambda: len(two.receiver.requests) > 5)
            await asyncio.to_thread(FAULTS[fault], servers.postgres)
            await leaving.drops()
            if fault != "frozen":
                assert await machines[2].is_sent_away(two.nodes[1]) == CloseCode.TRY_AGAIN_LATER
            await asyncio.sleep(OUTAGE)
            await asyncio.to_thread(_mend, servers.postgres)
            await two.site.database.engine.dispose()  # the test's own connections
            for client in clients:
                for machine in machines[:2]:
                    await eventually(lambda c=client, m=machine: works(c, m))  # type: ignore[misc]
        assert work.statuses[200] > 0
        assert fault == "frozen" or work.statuses[503] > 0, work.statuses
        await work.is_not_done_twice()
        assert set(executed.values()) == {1}, "a request was executed twice"

        await eventually(lambda: _acknowledged(busy) == len(sent_events))
        gone = (DISCONNECTED, machines[2].id)
        await eventually(lambda: two.events_received()[gone] > 0)
        await two.every_node_looks(NODE_TIMEOUT + GRACE, two.nodes)
        await two.deliveries_are_over()
        came = {taken.json["id"] for taken in two.receiver.requests}
        assert {event_id(number) for number in range(len(sent_events))} <= came
        assert [item for item in two.events_received().items() if item[0][0] == DISCONNECTED] == [
            (gone, 1)
        ]
        assert all(socket.is_open for socket in sockets[:2])
        for node, client in zip(two.nodes, clients, strict=True):
            assert await listed(client) == {machine.id for machine in machines[:2]}
            assert (
                node.logged("this node was declared dead by its peers; releasing its machines") == 0
            )
            assert node.errors() == []


async def test_requests_go_on_over_a_restart_of_postgresql(
    start_fleet: StartFleet, servers: Servers
) -> None:
    async with start_fleet(2) as two:
        await two.subscribes(two.nodes[0], "agent:generating_started", DISCONNECTED)
        machine = await two.machine()
        socket = (await machine.connects(two.nodes[0])).obliges()
        clients = [two.client(node) for node in two.nodes]
        async with working(clients, [machine]) as work, telling(socket) as sent_events:
            for stop in (Postgres.stop, Postgres.kill, Postgres.stop):
                count = len(two.receiver.requests)
                await asyncio.to_thread(stop, servers.postgres)
                await asyncio.to_thread(servers.postgres.start)
                await two.site.database.engine.dispose()
                await eventually(lambda n=count: len(two.receiver.requests) > n + 5)  # type: ignore[misc]
            for client in clients:
                await eventually(lambda c=client: works(c, machine))  # type: ignore[misc]
        await work.is_not_done_twice()
        await eventually(lambda: _acknowledged(socket) == len(sent_events))
        await two.deliveries_are_over()
        assert set(two.events_received()) == {("agent:generating_started", machine.id)}
        came = {taken.json["id"] for taken in two.receiver.requests}
        assert came == {event_id(number) for number in range(len(sent_events))}
        assert socket.is_open


async def test_requests_fail_while_postgresql_is_frozen_and_succeed_afterwards(
    servers: Servers, tmp_path: Path
) -> None:
    """Longer than it has for a statement: requests get an error, and it is no worse afterwards."""
    url = Settings(database_url=servers.empty(tmp_path)["database_url"]).sqlalchemy_url
    database = Database(url, timeout=0.5)
    await database.check()
    await asyncio.to_thread(servers.postgres.freeze)
    try:
        for _ in range(3):  # a connection that was open, and new ones
            with pytest.raises(DatabaseUnavailable):
                async with asyncio.timeout(TIMEOUT):
                    await database.check()
    finally:
        await asyncio.to_thread(servers.postgres.thaw)
    await database.check()
    await database.close()


class Work:
    """Requests of every kind, and what came of them."""

    def __init__(self, clients: list[httpx.AsyncClient], machines: list[Machine]) -> None:
        self.statuses = Counter[int]()
        self._asking = [(client, machine) for client in clients for machine in machines]
        self._done: list[tuple[httpx.AsyncClient, str, str]] = []
        self._numbers = itertools.count(1)

    async def until(self, stop: asyncio.Event) -> None:
        """Make them. Each that is no success must be a 503 in the shape of docs/api.md."""
        async with asyncio.TaskGroup() as group:
            for client, machine in self._asking:
                group.create_task(self._ask(client, machine, stop))

    async def is_not_done_twice(self) -> None:
        """Check that what was done under an idempotency key is known to have been."""
        assert self._done
        for client, path, key in self._done:

            async def known(client: httpx.AsyncClient = client, key: str = key) -> bool:
                response = await self._change(client, path, key)  # noqa: B023  # awaited here
                if response.status_code in (409, 503):  # the answer is not stored yet
                    return False
                assert response.headers["idempotency-replayed"] == "true"
                return True

            await eventually(known)

    async def _ask(self, client: httpx.AsyncClient, machine: Machine, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._count(await client.get(f"{V1}/daemons"))
            self._count(await client.get(machine.status))
            key = f"{machine.id}-{next(self._numbers)}"
            if self._count(await self._change(client, machine.terminal, key)):
                self._done.append((client, machine.terminal, key))
            await asyncio.sleep(0.05)

    async def _change(self, client: httpx.AsyncClient, path: str, key: str) -> httpx.Response:
        return await client.post(path, json={"command": key}, headers={"Idempotency-Key": key})

    def _count(self, response: httpx.Response) -> bool:
        self.statuses[response.status_code] += 1
        if response.status_code == 200:
            return True
        assert_error(response, 503)
        return False


@asynccontextmanager
async def working(clients: list[httpx.AsyncClient], machines: list[Machine]) -> AsyncIterator[Work]:
    """Have requests made for a block."""
    work, stop = Work(clients, machines), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(work.until(stop))
        try:
            yield work
        finally:
            stop.set()


@asynccontextmanager
async def telling(socket: ScriptedMachine) -> AsyncIterator[list[int]]:
    """Have a machine tell of an event every few milliseconds for a block; give their numbers."""
    sent_events: list[int] = []

    async def tell() -> None:
        while True:
            number = len(sent_events)
            sent_events.append(number)
            await socket.say(Event(seq=number + 1, event=agent_event(id=event_id(number))))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(tell(), name="tell of events")
    try:
        yield sent_events
    finally:
        task.cancel()
        await asyncio.wait({task})


def _acknowledged(socket: ScriptedMachine) -> int:
    """Return the newest event that the service has acknowledged."""
    return max((frame.seq for frame in socket.received(Acknowledge)), default=0)


def _mend(postgres: Postgres) -> None:
    postgres.thaw()
    if not postgres.is_ready():
        postgres.start()
