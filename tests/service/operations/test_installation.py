"""One service at a time on an SQLite database, and a word where a database was emptied."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from outrider.service.operations.installation import InstallationError
from outrider.service.settings import Settings
from tests.conftest import settings
from tests.rig.processes import Serving, environment, outrider
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL, SQLite

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def held() -> AsyncIterator[AsyncExitStack]:
    """What ends with the test."""
    async with AsyncExitStack() as stack:
        yield stack


async def started(site: Site, held: AsyncExitStack) -> Site:
    await site.start()
    held.push_async_callback(site.close)
    return site


class TestLock:
    async def test_a_second_service_on_the_same_database_does_not_start(
        self, sqlite: SQLite, tmp_path: Path, held: AsyncExitStack
    ) -> None:
        chosen = settings(tmp_path, sqlite)
        first = await started(Site(chosen), held)
        with pytest.raises(InstallationError, match=rf"outrider\.db .*process {os.getpid()}"):
            await started(Site(chosen), held)
        await first.stop()
        await started(Site(chosen), held)

    async def test_it_goes_by_the_database_and_not_by_the_directory(
        self, sqlite: SQLite, tmp_path: Path, held: AsyncExitStack
    ) -> None:
        first = settings(tmp_path / "one", sqlite)
        await started(Site(first), held)
        there = f"sqlite:///{first.data_dir / 'outrider.db'}"
        elsewhere = settings(tmp_path / "two", sqlite, database_url=there)
        with pytest.raises(InstallationError, match="already"):
            await started(Site(elsewhere), held)

    async def test_services_share_a_postgresql(
        self, postgresql: PostgreSQL, tmp_path: Path, held: AsyncExitStack
    ) -> None:
        chosen = settings(tmp_path, postgresql)
        for _ in range(2):
            await started(Site(chosen), held)

    @pytest.mark.faults
    async def test_a_second_service_ends_with_a_sentence(
        self, sqlite: SQLite, tmp_path: Path
    ) -> None:
        (tmp_path / "home").mkdir()
        env = environment(tmp_path / "data", port="0") | {"HOME": str(tmp_path / "home")}
        sqlite.migrated(tmp_path / "data")
        async with Serving(tmp_path / "data") as service:
            for command in ("serve", "up"):
                outcome = await outrider(command, env=env)
                assert outcome.code == 1
                sentence = outcome.err.splitlines()[-1]
                assert sentence.startswith("outrider: A service uses the database ")
                assert f"(process {service.process.pid})" in sentence
                assert "Traceback" not in outcome.err
            email = ("--email", "a@example.org", "--password", "correct horse battery")
            (await service.admin("account", "create", *email)).json()
        async with Serving(tmp_path / "data") as again:  # the first one was killed
            again.signal(signal.SIGTERM)
            assert await again.ends() == 0


class TestEmptied:
    async def test_it_is_logged_that_the_tables_are_gone(
        self, sqlite: SQLite, tmp_path: Path, held: AsyncExitStack
    ) -> None:
        chosen = settings(tmp_path, sqlite)
        with capture_logs() as first:
            await (await started(Site(chosen), held)).stop()
            await (await started(Site(chosen), held)).stop()
        for name in ("outrider.db", "outrider.db-wal", "outrider.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        with capture_logs() as logs:
            await started(Site(chosen), held)
        assert "database found empty" not in [log["event"] for log in first]
        (warning,) = [log for log in logs if log["event"] == "database found empty"]
        assert warning["log_level"] == "warning"
        assert warning["database"].endswith("outrider.db")

    async def test_nothing_is_logged_of_a_first_start(
        self, tmp_path: Path, held: AsyncExitStack
    ) -> None:
        empty = Settings(port=0, data_dir=tmp_path / "data")
        with capture_logs() as logs:
            await started(Site(empty), held)
        assert "database found empty" not in [log["event"] for log in logs]

    async def test_the_operators_commands_tell_it_too(self, tmp_path: Path) -> None:
        site = Site(Settings(port=0, data_dir=tmp_path / "data"))
        await site.start()
        await site.close()
        (tmp_path / "data" / "outrider.db").write_bytes(b"")
        env = environment(tmp_path / "data")
        migrated = await outrider("admin", "migrate", env=env)
        assert (migrated.code, migrated.out.strip()) == (0, "The database is up to date.")
        assert "database found empty" in migrated.err
        assert "database found empty" not in (await outrider("admin", "migrate", env=env)).err
