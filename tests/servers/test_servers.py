"""A private server can be frozen, killed and started again, and leaves nothing behind."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psutil
import pytest
from redis import Redis as Client
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from tests.rig.private import private
from tests.rig.waiting import eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError, Server, ServerError, program

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared_postgres() -> Iterator[Postgres]:
    with private(Postgres) as one:
        yield one


@pytest.fixture(scope="module")
def shared_redis() -> Iterator[Redis]:
    with private(Redis) as one:
        yield one


@pytest.fixture
def postgres(shared_postgres: Postgres) -> Iterator[Postgres]:
    yield shared_postgres
    _mend(shared_postgres)


@pytest.fixture
def redis(shared_redis: Redis) -> Iterator[Redis]:
    yield shared_redis
    _mend(shared_redis)


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    one: Server = request.getfixturevalue(request.param)
    return one


def _mend(server: Server) -> None:
    """Let a server run again after whatever a test has done to it."""
    server.thaw()
    if not server.is_ready():
        server.restart()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    """Connect for a block; each statement is a transaction."""
    engine = create_async_engine(
        url.replace("://", "+asyncpg://"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    connection = await engine.connect()
    try:
        yield connection
    finally:
        await connection.invalidate()
        await connection.close()


def processes(port: int | str) -> list[psutil.Process]:
    """Return every process of the server on a port."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(port) in " ".join(process.info["cmdline"] or []):
            found += [process, *process.children(recursive=True)]
    return found


class TestAnyServer:
    def test_two_at_once_each_gone_at_its_end(self, server: Server) -> None:
        with type(server)() as other:
            assert other.port != server.port
            assert other.is_ready()
            running = processes(other.port)
            assert running
        assert not other.is_ready()
        assert not any(process.is_running() for process in running)
        assert not other.directory.exists()
        assert server.is_ready()

    def test_killed_and_started_again(self, server: Server) -> None:
        server.kill()
        assert not server.is_ready()
        server.kill()
        server.start()
        assert server.is_ready()

    def test_stopped_and_started_again(self, server: Server) -> None:
        port = server.port
        server.restart()
        assert server.port == port
        assert server.is_ready()

    async def test_it_ends_with_who_started_it(self, server: Server) -> None:
        """However that ends: by SIGKILL, here."""
        code = (
            f"from {type(server).__module__} import {type(server).__name__} as Server\n"
            "import time\n"
            "with Server() as server:\n"
            "    print(server.port, server.directory, flush=True)\n"
            "    time.sleep(60)\n"
        )
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert owner.stdout is not None
        port, directory = (await owner.stdout.readline()).decode().split()
        running = processes(port)
        assert running
        owner.kill()
        await owner.wait()
        await eventually(lambda: not any(process.is_running() for process in running))
        await eventually(lambda: not Path(directory).exists())

    def test_frozen(self, server: Server) -> None:
        server.freeze()
        assert not server.is_ready()
        server.thaw()
        assert server.is_ready()

    def test_a_frozen_one_can_be_ended(self, server: Server) -> None:
        server.freeze()
        server.stop()
        assert not server.is_ready()

    def test_one_that_does_not_start_says_why(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        second = type(server)()
        monkeypatch.setattr(type(server), "command", property(lambda _: ["ls", "no such thing"]))
        with pytest.raises(ServerError, match=r"does not start:\n.*no such thing"), second:
            pytest.fail("it started")
        assert not second.directory.exists()


class TestPostgres:
    async def test_a_copy_of_a_database(self, postgres: Postgres) -> None:
        async with connected(postgres.create("first")) as connection:
            await connection.execute(text("CREATE TABLE words (word text)"))
            await connection.execute(text("INSERT INTO words VALUES ('héllo')"))
        async with connected(postgres.create("second", "first")) as connection:
            assert await connection.scalar(text("SELECT word FROM words")) == "héllo"

    async def test_what_was_committed_outlives_a_kill(self, postgres: Postgres) -> None:
        url = postgres.create("kept")
        async with connected(url) as connection:
            await connection.execute(text("CREATE TABLE numbers (n int)"))
            for number in range(100):
                await connection.execute(text(f"INSERT INTO numbers VALUES ({number})"))
            postgres.kill()
        postgres.start()
        async with connected(url) as connection:
            assert await connection.scalar(text("SELECT count(*) FROM numbers")) == 100

    async def test_a_connection_stands_still_while_it_is_frozen(self, postgres: Postgres) -> None:
        async with connected(postgres.create("frozen")) as connection:
            postgres.freeze()
            asking = asyncio.create_task(connection.scalar(text("SELECT 1")))
            done, _ = await asyncio.wait({asking}, timeout=0.2)
            assert not done
            postgres.thaw()
            assert await asking == 1

    def test_a_database_that_is_there_already(self, postgres: Postgres) -> None:
        postgres.create("one")
        with pytest.raises(ServerError, match='database "one" already exists'):
            postgres.create("one")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
    def test_without_root(self, postgres: Postgres, redis: Redis) -> None:
        code = (
            "import encodings.idna, os, pwd\n"  # nobody may not read where Python is
            "from tests.servers.postgres import Postgres\n"
            "from tests.servers.redis import Redis\n"
            "nobody = pwd.getpwnam('nobody')\n"
            "os.setgroups([]), os.setgid(nobody.pw_gid), os.setuid(nobody.pw_uid)\n"
            "with Postgres() as postgres, Redis() as redis:\n"
            "    print(postgres.is_ready(), redis.is_ready())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "True True\n", done.stderr


class TestRedis:
    def test_started_again_it_is_empty(self, redis: Redis) -> None:
        with closing(Client.from_url(redis.url())) as client:
            client.set("key", "value")
        redis.restart()
        with closing(Client.from_url(redis.url())) as client:
            assert client.get("key") is None

    def test_its_databases(self, redis: Redis) -> None:
        with closing(Client.from_url(redis.url(1))) as client:
            client.set("key", "value")
        with closing(Client.from_url(redis.url(2))) as client:
            assert client.get("key") is None


class TestOneThatIsNotInstalled:
    @pytest.fixture
    def missing(self) -> Callable[[], Path]:
        return lambda: program("no-such", "some-package")

    def test_it_says_what_to_install(self, missing: Callable[[], Path]) -> None:
        with pytest.raises(NotInstalledError, match=r"no-such .*: on Debian, .* some-package$"):
            missing()

    def test_a_test_is_skipped(
        self, missing: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CI", raising=False)
        with pytest.raises(pytest.skip.Exception, match="no-such is not installed"):
            private(missing)

    def test_where_nobody_would_notice_it_fails(
        self, missing: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="no-such is not installed"):
            private(missing)
