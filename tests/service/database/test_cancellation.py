"""A request that is cancelled, or work that is ended, leaves the database as it was and free."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import func, insert, select

from outrider.contract.ids import new_id
from outrider.service.database import tables
from outrider.service.database.engine import Database
from tests.conftest import settings
from tests.rig.stores import Store
from tests.rig.waiting import TIMEOUT

CANCELLATIONS = 200


async def _add_without_end(database: Database) -> None:
    while True:
        async with database.begin() as connection:
            account = {"id": new_id("acct"), "plan": "free", "created_at": 1}
            await connection.execute(insert(tables.accounts).values(account))
            await connection.execute(select(tables.accounts.c.id))
            user = {"id": new_id("user"), "account_id": account["id"], "created_at": 1}
            await connection.execute(insert(tables.users).values(user | {"email": user["id"]}))


async def test_a_cancelled_transaction_is_rolled_back_and_holds_no_lock(
    tmp_path: Path, store: Store
) -> None:
    """Cancelled at many moments, since few of them did harm, with the tasks kept around."""
    database = Database(settings(tmp_path / "data", store).sqlalchemy_url)
    tasks = []
    for moment in range(CANCELLATIONS):
        task = asyncio.create_task(_add_without_end(database))
        await asyncio.sleep(moment % 50 * 0.0002)
        task.cancel()
        await asyncio.wait({task})
        tasks.append(task)
        async with asyncio.timeout(TIMEOUT), database.begin() as connection:
            accounts = await connection.scalar(select(func.count()).select_from(tables.accounts))
            users = await connection.scalar(select(func.count()).select_from(tables.users))
        assert accounts == users, "half a transaction stayed"
    assert all(task.cancelled() for task in tasks)
    await database.close()


async def test_a_transaction_that_is_cancelled_while_another_program_writes_holds_no_lock(
    tmp_path: Path,
) -> None:
    file = tmp_path / "outrider.db"
    database = Database(f"sqlite+aiosqlite:///{file}")
    await database.migrate()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(_add_without_end(database))
        await asyncio.wait({task}, timeout=0.2)  # its thread waits for the lock by now
        task.cancel()
        other.execute("ROLLBACK")
        await asyncio.wait({task}, timeout=TIMEOUT)
        async with asyncio.timeout(TIMEOUT), database.begin() as connection:
            await connection.execute(select(tables.accounts.c.id))
        other.execute(f"PRAGMA busy_timeout = {int(TIMEOUT * 1000)}")
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    await database.close()
    assert task.cancelled()
