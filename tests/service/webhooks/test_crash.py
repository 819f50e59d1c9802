"""At least once, whoever is killed. Holds docs/webhooks.md."""

import asyncio
import os
import random
import signal
import sqlite3
from collections import Counter
from contextlib import AsyncExitStack
from itertools import cycle, islice
from pathlib import Path

import pytest
from sqlalchemy import func, select

from outrider.service.database.engine import Database
from outrider.service.database.tables import deliveries
from outrider.service.settings import Settings
from tests.rig.people import dashboard, person
from tests.rig.processes import Program, Serving, environment
from tests.rig.site import Site
from tests.rig.stores import Addresses, Store
from tests.rig.waiting import eventually
from tests.service.webhooks.events import event_id
from tests.service.webhooks.receiver import Receiver, receiving

pytestmark = pytest.mark.faults

# CRASH_EVENTS=5000 is the whole of it, in about a minute.
EVENTS = int(os.environ.get("CRASH_EVENTS", "700"))
KILLS = max(3, EVENTS // 150)


async def test_every_event_arrives_though_everybody_is_killed(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Service and machine agent are killed (SIGKILL) at random moments, again and again."""
    chance = random.Random(os.environ.get("CRASH_SEED", "4"))
    async with receiving() as receiver, AsyncExitStack() as running:
        crash = _Crash(tmp_path, store.empty(), receiver, running)
        await crash.begin()
        kills = Counter[str]()
        for who in islice(cycle(("service", "both", "machine")), KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            kills[who] += 1
            if who != "machine":
                await crash.kill_service()
            if who != "service":
                await crash.kill_machine()
            if who != "machine":
                await crash.serve()
            if who != "service":
                await crash.start_machine()
        received = await crash.end()
    twice = sum(count - 1 for count in received.values())
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{EVENTS} events, {sum(kills.values())} kills {dict(kills)}: each arrived, "
            f"{twice} came again"
        )


class _Crash:
    """The processes, each of which may be killed at any moment."""

    def __init__(
        self,
        directory: Path,
        addresses: Addresses,
        receiver: Receiver,
        running: AsyncExitStack,
    ) -> None:
        self._data = directory / "data"
        self._addresses = addresses
        self._journal = directory / "journal.db"
        self._receiver = receiver
        self._running = running
        self._port = 0

    async def begin(self) -> None:
        """Start the service and the machine, with a webhook for everything."""
        await self.serve()
        site = Site(Settings(data_dir=self._data, **self._addresses))
        site.url = self._service.url
        owner = await person(site)
        self._enrolled = await owner.enrolls()
        body = {"url": self._receiver.url, "events": ["agent:generating_started"]}
        made = await (await dashboard(owner)).post("/api/v1/webhooks", json=body)
        assert made.status_code == 201, made.text
        await site.close()
        await self.start_machine()

    async def serve(self) -> None:
        """Start the service, on its old port."""
        self._service = await self._running.enter_async_context(
            Serving(self._data, self._port, **self._addresses, webhook_retry_delays="0.2,0.5,1")
        )
        self._port = self._service.port

    async def start_machine(self) -> None:
        """Start the machine agent."""
        env = environment(self._data)
        root = str(Path(__file__).parents[3])
        env["PYTHONPATH"] = ":".join([*filter(None, [env.get("PYTHONPATH")]), root])
        enrolled = self._enrolled
        arguments = [self._service.url, enrolled.daemon_id, enrolled.token, str(self._journal)]
        self._machine = await self._running.enter_async_context(
            Program("-m", "tests.service.webhooks.daemon_program", *arguments, str(EVENTS), env=env)
        )

    async def kill_service(self) -> None:
        """Kill the service."""
        self._service.signal(signal.SIGKILL)
        await self._service.ends()

    async def kill_machine(self) -> None:
        """Kill the machine agent."""
        self._machine.signal(signal.SIGKILL)
        await self._machine.ends()

    async def end(self) -> Counter[str]:
        """Wait until every event has arrived and nothing is under way; return how often each."""
        settings = Settings(data_dir=self._data, **self._addresses)
        database = Database(settings.sqlalchemy_url)
        await eventually(lambda: self._is_quiet(database), within=90)
        await database.close()
        received = Counter(taken.json["id"] for taken in self._receiver.requests)
        assert received.keys() == {event_id(number) for number in range(EVENTS)}
        return received

    async def _is_quiet(self, database: Database) -> bool:
        """Return whether every delivery has succeeded and the machine's outbox is empty."""
        query = select(deliveries.c.status, func.count()).group_by(deliveries.c.status)
        async with database.read() as connection:
            statuses = {row[0]: row[1] for row in await connection.execute(query)}
        with sqlite3.connect(self._journal) as journal:
            ((waiting,),) = journal.execute("SELECT count(*) FROM events")
        return statuses == {"succeeded": EVENTS} and waiting == 0
