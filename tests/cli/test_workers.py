"""`outrider serve --workers N` as real processes, on a real PostgreSQL and Redis."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import httpx
import psutil
import pytest
import pytest_asyncio

from outrider.cli.workers import pause
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.private import private
from tests.rig.processes import Outcome, Program, environment, outrider
from tests.rig.site import GATEWAY
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

COUNT = 3


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[Postgres, Redis]]:
    """Servers that the tests of this module share."""
    with private(Postgres) as postgres, private(Redis) as redis:
        yield postgres, redis


@pytest.fixture
def env(
    stores: tuple[Postgres, Redis], tmp_path: Path, request: pytest.FixtureRequest
) -> dict[str, str]:
    """An environment with an empty database."""
    postgres, redis = stores
    name = "".join(letter for letter in request.node.name.lower() if letter.isalnum())[:40]
    return environment(
        tmp_path / "data",
        port="0",
        database_url=postgres.create(name),
        redis_url=redis.url(),
    )


class Workers(Program):
    """A supervisor with its workers, all of which serve."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.first = free_port(COUNT)
        self.url = ""
        arguments = ("--workers", str(COUNT), "--worker-ports", str(self.first))
        super().__init__("-m", "outrider", "serve", *arguments, env=env)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            async with asyncio.timeout(3 * TIMEOUT):
                assert self.process.stdout is not None
                line = (await self.process.stdout.readline()).decode().strip()
            assert line.endswith(f"with {COUNT} workers")
            self.url = line.split()[-4]
            self.pids = self.worker_pids()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        left = self.worker_pids()
        await super().__aexit__()
        await eventually(lambda: gone(left), within=30)

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers that live."""
        try:
            return [child.pid for child in psutil.Process(self.process.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def own(self, number: int) -> str:
        """Return the address that only worker `number` (from 0) answers at."""
        return f"http://127.0.0.1:{self.first + number}"

    async def admin(self, *arguments: str) -> Outcome:
        return await outrider("admin", *arguments, "--json", env=self.env)


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


@pytest_asyncio.fixture(loop_scope="session")
async def workers(env: dict[str, str]) -> AsyncIterator[Workers]:
    async with Workers(env) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=2 * TIMEOUT) as client:
        yield client


async def test_every_worker_serves_and_reaches_every_machine(
    workers: Workers, client: httpx.AsyncClient
) -> None:
    account = (await workers.admin("account", "create", "--email", "a@example.org")).json()
    account_id = account["accountId"]
    key = (await workers.admin("key", "create", "--account", account_id, "--name", "k")).json()
    code = (await workers.admin("enroll", "--account", account_id)).json()["code"]
    client.headers["Authorization"] = f"Bearer {key['key']}"
    body = {"hostname": "bench", "platform": "linux", "code": code}
    enrolled = (await client.post(f"{workers.url}/api/v1/auth/enroll", json=body)).json()
    gateway = workers.url.replace("http", "ws") + GATEWAY
    async with ScriptedMachine(gateway, enrolled["token"], hello()) as machine:
        machine.obliges()
        for number in range(COUNT):
            path = f"/api/v1/daemons/{machine.id}/terminal"
            answer = await client.post(f"{workers.own(number)}{path}", json={"command": "true"})
            assert answer.status_code == 200, answer.text


async def test_each_has_its_own_metrics(workers: Workers, client: httpx.AsyncClient) -> None:
    """The shared port answers with those of whichever worker took the connection."""
    for _ in range(3):
        await client.get(f"{workers.own(1)}/healthz")
    counts = []
    for number in range(COUNT):
        text = (await client.get(f"{workers.own(number)}/metrics")).text
        counts.append('route="/healthz",status="200"} 3.0' in text)
    assert counts == [False, True, False]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_they_stop_together(workers: Workers, number: signal.Signals) -> None:
    workers.signal(number)
    assert await workers.ends(20) == 0
    assert gone(workers.pids)


async def test_a_worker_that_dies_is_started_again(
    workers: Workers, client: httpx.AsyncClient
) -> None:
    """Whoever connects meanwhile waits for it instead of being refused."""
    victim = workers.pids[1]
    psutil.Process(victim).kill()
    answers = await asyncio.gather(
        *(client.get(f"{workers.url}/healthz", headers={"Connection": "close"}) for _ in range(30))
    )
    assert {answer.status_code for answer in answers} == {200}
    await eventually(lambda: len(workers.worker_pids()) == COUNT)
    assert victim not in workers.worker_pids()
    for number in range(COUNT):
        assert (await client.get(f"{workers.own(number)}/readyz")).status_code == 200


async def test_workers_end_when_their_supervisor_is_killed(workers: Workers) -> None:
    workers.signal(signal.SIGKILL)
    await workers.ends()
    await eventually(lambda: gone(workers.pids), within=30)


async def test_a_second_signal_ends_them_at_once(workers: Workers) -> None:
    """Also one that is frozen and would be waited for."""
    psutil.Process(workers.pids[0]).suspend()
    workers.signal(signal.SIGTERM)
    await eventually(lambda: gone(workers.pids[1:]), within=20)
    workers.signal(signal.SIGTERM)
    assert await workers.ends() == -signal.SIGTERM
    psutil.Process(workers.pids[0]).resume()
    await eventually(lambda: gone(workers.pids))


class TestWrongStart:
    async def test_without_stores_to_share_none_starts(self, tmp_path: Path) -> None:
        env = environment(tmp_path / "data", port="0")
        sentence = (await outrider("serve", "--workers", "2", env=env)).assert_sentence()
        assert "OUTRIDER_DATABASE_URL" in sentence
        assert "OUTRIDER_REDIS_URL" in sentence

    async def test_a_port_of_another_services_workers_is_refused(
        self, workers: Workers, env: dict[str, str]
    ) -> None:
        """They share theirs among themselves, and with nobody else."""
        port = workers.url.rpartition(":")[2]
        again = env | {"OUTRIDER_PORT": port}
        sentence = (await outrider("serve", "--workers", "2", env=again)).assert_sentence()
        assert f"127.0.0.1:{port}" in sentence

    async def test_the_first_worker_says_why_none_can_start(self, env: dict[str, str]) -> None:
        """One says why, and they do not all try."""
        wrong = env | {"OUTRIDER_DATABASE_URL": env["OUTRIDER_DATABASE_URL"] + "none"}
        outcome = await outrider("serve", "--workers", "2", env=wrong)
        assert outcome.code == 1
        why, sentence = [line for line in outcome.err.splitlines() if line.startswith("outrider:")]
        assert "cannot be used" in why
        assert "No worker could start" in sentence
        assert "Traceback" not in outcome.err


async def test_a_worker_that_keeps_dying_is_started_less_and_less_often() -> None:
    assert [pause(deaths) for deaths in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
