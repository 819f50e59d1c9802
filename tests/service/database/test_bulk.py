"""Many rows at once: all of them, each once, however many there are."""

import pytest
from sqlalchemy import select

from outrider.service.database import bulk, tables
from outrider.service.database.engine import Database

pytestmark = pytest.mark.asyncio(loop_scope="session")

_TABLE = tables.audit


def rows(first: int, last: int) -> list[bulk.Row]:
    """Return rows of the audit's table, with null and with text that is not plain."""
    return [
        (f"aud_{number:05d}", number, None, "key_'x'", "ação", None, 200, "::1", "r")
        for number in range(first, last)
    ]


async def stored(database: Database) -> list[bulk.Row]:
    async with database.read() as transaction:
        found = await transaction.execute(select(_TABLE).order_by(_TABLE.c.id))
        return [tuple(row) for row in found]


async def test_more_rows_than_a_statement_takes(database: Database) -> None:
    async with database.begin() as transaction:
        await bulk.insert(transaction, _TABLE, rows(0, 1234))
    assert await stored(database) == rows(0, 1234)


async def test_rows_that_are_added_are_counted(database: Database) -> None:
    async with database.begin() as transaction:
        assert await bulk.insert(transaction, _TABLE, rows(0, 26)) == 26
        assert await bulk.insert(transaction, _TABLE, rows(20, 620)) == 594
        assert await bulk.insert(transaction, _TABLE, rows(0, 620)) == 0


async def test_rows_that_are_there_stay_as_they_are(database: Database) -> None:
    async with database.begin() as transaction:
        await bulk.insert(transaction, _TABLE, rows(500, 510))
    others = [(*row[:4], "other", *row[5:]) for row in rows(0, 1100)]
    async with database.begin() as transaction:
        new = await bulk.insert_new(transaction, _TABLE, others)
    assert new == {row[0] for row in others} - {row[0] for row in rows(500, 510)}
    assert [row for row in await stored(database) if row[4] != "other"] == rows(500, 510)
    assert len(await stored(database)) == 1100


async def test_nothing_at_all(database: Database) -> None:
    async with database.begin() as transaction:
        await bulk.insert(transaction, _TABLE, [])
        assert await bulk.insert_new(transaction, _TABLE, []) == set()
        await bulk.update(transaction, _TABLE, ("outcome",), [])
    assert await stored(database) == []


async def test_each_row_changes_as_told_and_no_other(database: Database) -> None:
    before = rows(0, 1300)
    async with database.begin() as transaction:
        await bulk.insert(transaction, _TABLE, before)
    changes = [(row[0], row[1] + 1, "here" if row[1] % 2 else None) for row in before[100:1200]]
    async with database.begin() as transaction:
        await bulk.update(transaction, _TABLE, ("outcome", "target"), [*changes, ("none", 1, "")])
    after = {change[0]: change[1:] for change in changes}
    for row in await stored(database):
        outcome, target = after.get(row[0], (200, None))
        assert (row[6], row[5]) == (outcome, target)


async def test_rows_are_added_or_updated_where_the_condition_holds(database: Database) -> None:
    async with database.begin() as transaction:
        await bulk.insert(transaction, _TABLE, rows(500, 600))
    newer = [(row[0], row[1] + 1, *row[2:5], "new", *row[6:]) for row in rows(0, 1100)]
    async with database.begin() as transaction:
        await bulk.upsert(
            transaction, _TABLE, newer, columns=("target",), where="audit.id < 'aud_00550'"
        )
        await bulk.upsert(transaction, _TABLE, [], columns=("target",), where="TRUE")
    expected = [
        *newer[:500],
        *((*row[:5], "new", *row[6:]) for row in rows(500, 550)),
        *rows(550, 600),
        *newer[600:],
    ]
    assert await stored(database) == expected
