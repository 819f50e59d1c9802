"""The schema: what the migrations make is what the code expects."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from outrider.cloud.store import migrations, tables
from outrider.cloud.store.database import HEAD, Database, DatabaseError

pytestmark = pytest.mark.asyncio(loop_scope="session")

VERSIONS = Path(migrations.__file__).parent


async def test_head_is_the_newest_revision() -> None:
    script = ScriptDirectory(str(VERSIONS))
    assert script.get_heads() == [HEAD]


async def test_the_migrated_schema_is_that_of_the_tables(migrated: Path) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return list(compare_metadata(context, tables.metadata))

    database = Database(f"sqlite+aiosqlite:///{migrated}")
    async with database.engine.connect() as connection:
        found = await connection.run_sync(differences)
    await database.close()
    assert found == []


async def test_migrating_again_keeps_what_is_there(migrated: Path, tmp_path: Path) -> None:
    path = shutil.copy(migrated, tmp_path / "outrider.db")
    database = Database(f"sqlite+aiosqlite:///{path}")
    async with database.begin() as connection:
        await connection.execute(
            text("INSERT INTO accounts (id, plan, created_at) VALUES ('acct_1', 'free', 1)")
        )
    await database.migrate()
    async with database.read() as connection:
        assert await connection.scalar(text("SELECT plan FROM accounts")) == "free"
    await database.close()


async def test_two_that_migrate_at_once(tmp_path: Path) -> None:
    """`outrider serve` and `outrider admin` may both be the first on a new installation."""

    url = f"sqlite+aiosqlite:///{tmp_path / 'outrider.db'}"
    databases = [Database(url), Database(url)]
    await asyncio.gather(*(database.migrate() for database in databases))
    for database in databases:
        await database.ping()
        await database.close()


async def test_a_database_of_a_newer_outrider(migrated: Path, tmp_path: Path) -> None:
    """It is told, instead of a trace from the migrations."""
    path = shutil.copy(migrated, tmp_path / "outrider.db")
    database = Database(f"sqlite+aiosqlite:///{path}")
    async with database.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseError, match="newer"):
        await database.migrate()
    await database.close()
