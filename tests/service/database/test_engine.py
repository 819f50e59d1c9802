"""Whether a database can be read."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from outrider.service.database.engine import DATABASE_ERRORS, Database
from tests.conftest import running, settings
from tests.rig.stores import SQLite

ROWS = 2000


@pytest.fixture
def file(sqlite: SQLite, tmp_path: Path) -> Path:
    """A database file with a table of many pages."""
    sqlite.migrated(tmp_path)
    with closing(sqlite3.connect(tmp_path / "outrider.db")) as connection, connection:
        connection.executemany(
            "INSERT INTO accounts (id, plan, created_at) VALUES (?, 'free', 1)",
            [(f"acct_{number:034}",) for number in range(ROWS)],
        )
    return tmp_path / "outrider.db"


@pytest_asyncio.fixture
async def database(file: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{file}")
    await database.migrate()
    await database.check()
    yield database
    await database.close()


def overwrite(file: Path) -> None:
    file.write_bytes(b"x" * file.stat().st_size)


def remove(file: Path) -> None:
    file.rename(file.with_name("moved"))


def damage_a_leaf(file: Path) -> None:
    """Overwrite a page that only a scan of the accounts reads."""
    data = file.read_bytes()
    newest, leaf = f"acct_{ROWS - 1:034}".encode(), 0x0D
    place = next(
        start
        for start in range(0, len(data), 4096)
        if data[start] == leaf and newest in data[start : start + 4096]
    )
    file.write_bytes(data[:place] + b"x" * 4096 + data[place + 4096 :])


@pytest.mark.parametrize(
    ("harm", "reason"), [(overwrite, "not a database"), (remove, "unable to open")]
)
async def test_a_file_that_cannot_be_read_is_found(
    file: Path, database: Database, harm: Callable[[Path], None], reason: str
) -> None:
    harm(file)
    with pytest.raises(DATABASE_ERRORS, match=reason):
        await database.check()


async def test_a_damaged_page_that_a_request_needed_is_remembered(
    file: Path, database: Database
) -> None:
    damage_a_leaf(file)
    await database.check()
    async with database.read() as transaction:
        with pytest.raises(DatabaseError):
            await transaction.execute(text("SELECT sum(length(plan)) FROM accounts"))
    with pytest.raises(DATABASE_ERRORS, match="malformed"):
        await database.check()


@pytest.mark.one_store
async def test_a_service_with_a_damaged_file_is_not_ready(sqlite: SQLite, tmp_path: Path) -> None:
    async with running(settings(tmp_path / "data", sqlite)) as site, site.visit():
        client = site.client()
        assert (await client.get("/readyz")).status_code == 200
        overwrite(tmp_path / "data" / "outrider.db")
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert "database" in answer.json()["database"]
