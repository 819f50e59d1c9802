"""The schema: what the migrations make is what the code expects."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, select, text

from outrider.service.database import migrations, tables
from outrider.service.database.engine import HEAD, Database, DatabaseError
from outrider.service.database.migrations.run import upgrade
from outrider.service.settings import Settings
from tests.rig.stores import Store

pytestmark = pytest.mark.asyncio(loop_scope="session")

VERSIONS = Path(migrations.__file__).parent


def modes(folder: Path) -> set[int]:
    """Return the permissions that its files have."""
    return {file.stat().st_mode & 0o777 for file in folder.iterdir()}


async def test_head_is_the_newest_revision() -> None:
    script = ScriptDirectory(str(VERSIONS))
    assert script.get_heads() == [HEAD]


async def test_the_migrations_make_the_schema_of_the_tables(database: Database) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return list(compare_metadata(context, tables.metadata))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrating_again_keeps_what_is_there(database: Database) -> None:
    async with database.begin() as connection:
        await connection.execute(
            text("INSERT INTO accounts (id, plan, created_at) VALUES ('acct_1', 'free', 1)")
        )
    await database.migrate()
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT plan FROM accounts")) == "free"


async def test_several_that_migrate_at_once(tmp_path: Path, store: Store) -> None:
    """Nodes start together, and `outrider admin` may be the first on a new installation."""
    url = Settings(data_dir=tmp_path, **store.empty()).sqlalchemy_url
    databases = [Database(url) for _ in range(4)]
    await asyncio.gather(*(database.migrate() for database in databases))
    for database in databases:
        await database.check()
        await database.close()


async def test_a_new_file_that_another_is_about_to_write(tmp_path: Path) -> None:
    """SQLite refuses at once to turn it to its log, however long it would wait for a lock."""
    file = tmp_path / "outrider.db"
    database = Database(f"sqlite+aiosqlite:///{file}")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        migrating = asyncio.create_task(database.migrate())
        done, _ = await asyncio.wait({migrating}, timeout=0.3)
        assert not done
        other.execute("COMMIT")
        await migrating
    await database.close()
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    """Whoever made the directory may have let others into it."""
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'outrider.db'}")
    await database.migrate()
    assert modes(tmp_path) == {0o600}
    await database.close()


async def test_a_database_of_a_newer_outrider(database: Database) -> None:
    """It is one sentence instead of a trace from the migrations."""
    async with database.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="newer"):
        await database.migrate()


async def test_a_webhook_for_all_events_keeps_those_that_there_were(
    tmp_path: Path, store: Store
) -> None:
    """docs/webhooks.md: a `*` from before the release with the live events keeps six names."""
    database = Database(Settings(data_dir=tmp_path, **store.empty()).sqlalchemy_url)
    async with database.engine.begin() as connection:
        await connection.run_sync(upgrade, "0005")
    agent = [f"agent:{name}" for name in ("generating_started", "generating_completed")]
    agent += ["agent:waiting_approval", "agent:error"]
    six = [*agent, "machine:connected", "machine:disconnected"]
    before = {"webhook_1": ["*"], "webhook_2": ["agent:error"], "webhook_3": ["webhook:test", "*"]}
    async with database.begin() as connection:
        await connection.execute(
            text("INSERT INTO accounts (id, plan, created_at) VALUES ('acct_1', 'free', 1)")
        )
        for name, events in before.items():
            row = {
                "id": name,
                "account_id": "acct_1",
                "url": "https://example.org",
                "events": events,
                "active": True,
                "created_at": 1,
                "updated_at": 1,
                "secret": b"",
            }
            await connection.execute(insert(tables.webhooks).values(row))
    await database.migrate()
    query = select(tables.webhooks.c.id, tables.webhooks.c.events)
    async with database.read() as connection:
        found = {row.id: row.events for row in await connection.execute(query)}
    await database.close()
    assert found == {
        "webhook_1": six,
        "webhook_2": ["agent:error"],
        "webhook_3": [*six, "webhook:test"],
    }
