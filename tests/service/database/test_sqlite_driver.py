"""The driver's cursors: what they return, and that they hold nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outrider.service.database.sqlite_driver import Connection, connect

pytestmark = pytest.mark.one_store


async def _connected(file: Path, isolation_level: str | None = "") -> Connection:
    connection = connect(file, isolation_level=isolation_level)
    await connection
    return connection


async def test_a_cursor_has_rows_columns_and_counts(tmp_path: Path) -> None:
    connection = await _connected(tmp_path / "numbers.db")
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE numbers (value INTEGER)")
    await cursor.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(5)])
    assert (cursor.description, cursor.rowcount, list(await cursor.fetchall())) == (None, 5, [])
    await cursor.execute("SELECT value FROM numbers WHERE value > ? ORDER BY value", (2,))
    assert list(await cursor.fetchall()) == [(3,), (4,)]
    assert cursor.description is not None
    assert cursor.description[0][0] == "value"
    await connection.close()


async def test_a_transaction_can_be_rolled_back_after_an_earlier_commit(tmp_path: Path) -> None:
    connection = await _connected(tmp_path / "numbers.db")
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE numbers (value INTEGER)")
    await cursor.execute("INSERT INTO numbers VALUES (1)")
    await connection.commit()
    await connection.rollback()
    await cursor.execute("INSERT INTO numbers VALUES (2)")
    await connection.rollback()
    await cursor.execute("SELECT value FROM numbers")
    assert list(await cursor.fetchall()) == [(1,)]
    await connection.close()


async def test_rows_that_are_not_fetched_lock_nothing(tmp_path: Path) -> None:
    connection = await _connected(tmp_path / "numbers.db", isolation_level=None)
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE numbers (value INTEGER)")
    await cursor.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(99)])
    await cursor.execute("SELECT value FROM numbers")
    with closing(sqlite3.connect(tmp_path / "numbers.db", timeout=0)) as other, other:
        other.execute("DELETE FROM numbers")
    assert len(list(await cursor.fetchall())) == 99
    await connection.close()


async def test_a_rollback_follows_a_begin_whose_caller_was_cancelled(tmp_path: Path) -> None:
    connection = await _connected(tmp_path / "numbers.db", isolation_level=None)
    cursor = connection.cursor()
    await cursor.execute("CREATE TABLE numbers (value INTEGER)")
    await connection.commit()
    with closing(sqlite3.connect(tmp_path / "numbers.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = asyncio.create_task(cursor.execute("BEGIN IMMEDIATE"))
        await asyncio.sleep(0)  # the thread waits for the lock from now on
        begin.cancel()
        rollback = asyncio.create_task(connection.rollback())
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        await rollback
    await cursor.execute("SELECT value FROM numbers")
    assert not connection.in_transaction
    await connection.close()
