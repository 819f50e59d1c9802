"""Writes many rows with one statement, in SQL that goes to the driver unchanged.

SQLAlchemy processes each value of each row, which takes longer than the database's own work; and
the SQLite driver releases the GIL once for each statement, which lets the event loop in between.
Here the text of a statement is built once and cached, and rows are tuples of values that drivers
accept directly: text, numbers, bytes and None.

SQLite parses each text that it does not have in its cache, which takes up to 2 us for each row. So
a part of more than `_ROUND` rows is filled up to a multiple of it, with repetitions of its last
row, which change nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Column, Table
from sqlalchemy.engine import Dialect

from outrider.service.database.transaction import Transaction

_MAX_ROWS: Final = 500
"""Rows of one statement. SQLite allows at most 32,766 parameters."""

_ROUND: Final = 25

Row = tuple[Any, ...]


async def insert(transaction: Transaction, table: Table, rows: Sequence[Row]) -> int:
    """Add rows; skip those whose key exists already. Return how many were added.

    Args:
        rows: each with a value for every column, in the table's order.
    """
    added = 0
    for part in _parts(transaction.dialect, rows):
        text = _insert(table, transaction.dialect, len(part))
        result = await transaction.execute_text(text, _values(transaction.dialect, part))
        added += result.rowcount
    return added


async def insert_new(transaction: Transaction, table: Table, rows: Sequence[Row]) -> set[str]:
    """Add rows as `insert` does; return the keys (first column) of the rows that were added."""
    new: set[str] = set()
    for part in _parts(transaction.dialect, rows):
        text = f"{_insert(table, transaction.dialect, len(part))} RETURNING {_key(table)}"
        values = _values(transaction.dialect, part)
        new.update((await transaction.execute_text(text, values)).scalars())
    return new


async def upsert(
    transaction: Transaction,
    table: Table,
    rows: Sequence[Row],
    *,
    columns: tuple[str, ...],
    where: str,
) -> None:
    """Add rows; of those whose key exists already, update columns.

    Args:
        rows: each with a value for every column, in the table's order; no two with the same key.
        columns: what is updated.
        where: an SQL condition; rows that do not satisfy it are left unchanged. `excluded` is the
            new row.
    """
    for part in _parts(transaction.dialect, rows):
        text = _upsert(table, columns, transaction.dialect, len(part), where=where)
        await transaction.execute_text(text, _values(transaction.dialect, part))


async def increment(
    transaction: Transaction, table: Table, column: str, amounts: Mapping[str, int]
) -> dict[str, int]:
    """Add to a column of rows by their key (first column); return its new values.

    Rows that do not exist are skipped. The rows are locked in no particular order.
    """
    values: dict[str, int] = {}
    for part in _parts(transaction.dialect, list(amounts.items())):
        text = _increment(table, column, transaction.dialect, len(part))
        result = await transaction.execute_text(text, _values(transaction.dialect, part))
        values.update((row[0], row[1]) for row in result.all())
    return values


async def update(
    transaction: Transaction,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[Row],
    *,
    where: str = "TRUE",
    changes: str | None = None,
) -> None:
    """Update columns of rows by their key.

    Args:
        rows: each with its key (the table's first column), and a value for each of `columns`.
        where: an SQL condition; rows that do not satisfy it are left unchanged. `new` is the new
            row.
        changes: the SQL after SET; None: each of `columns` gets its value in `new`.
    """
    for part in _parts(transaction.dialect, rows):
        dialect, count = transaction.dialect, len(part)
        text = _update(table, columns, dialect, count, where=where, changes=changes)
        await transaction.execute_text(text, _values(transaction.dialect, part))


def _parts(dialect: str, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows into those of one statement each; see above for the repeated ones."""
    for start in range(0, len(rows), _MAX_ROWS):
        part = rows[start : start + _MAX_ROWS]
        missing = -len(part) % _ROUND if dialect == "sqlite" and len(part) > _ROUND else 0
        yield [*part, *[part[-1]] * missing]


def _values(dialect: str, rows: Sequence[Row]) -> Row:
    """Return the parameters of a statement; see `_source`."""
    if dialect == "sqlite":
        return tuple(chain.from_iterable(rows))
    return tuple(map(list, zip(*rows, strict=True)))


def _source(columns: Sequence[Column[Any]], dialect: str, count: int) -> str:
    """Return the SQL source of `count` rows with these columns.

    SQLite gets a parameter for each value, PostgreSQL one array for each column.
    """
    if dialect == "sqlite":
        row = f"({', '.join('?' * len(columns))})"
        return f"VALUES {', '.join([row] * count)}"
    types = [column.type.compile(_postgresql()) for column in columns]
    lists = [f"${number}::{name}[]" for number, name in enumerate(types, 1)]
    return f"SELECT * FROM unnest({', '.join(lists)})"  # noqa: S608  # no values in it


@cache
def _postgresql() -> Dialect:
    from sqlalchemy.dialects import postgresql  # 2.5 MB that SQLite does not need

    return postgresql.dialect()  # type: ignore[no-untyped-call]


def _key(table: Table) -> str:
    return table.columns[0].name


@lru_cache(maxsize=2000)
def _insert(table: Table, dialect: str, count: int) -> str:
    return f"{_insert_all(table, dialect, count)} ON CONFLICT DO NOTHING"


@lru_cache(maxsize=2000)
def _upsert(table: Table, columns: tuple[str, ...], dialect: str, count: int, *, where: str) -> str:
    keys = ", ".join(column.name for column in table.primary_key)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return (
        f"{_insert_all(table, dialect, count)} "
        f"ON CONFLICT ({keys}) DO UPDATE SET {changes} WHERE {where}"
    )


def _insert_all(table: Table, dialect: str, count: int) -> str:
    columns = list(table.columns)
    names = ", ".join(column.name for column in columns)
    return f"INSERT INTO {table.name} ({names}) {_source(columns, dialect, count)}"


@lru_cache(maxsize=2000)
def _increment(table: Table, column: str, dialect: str, count: int) -> str:
    key = _key(table)
    source = _source([table.columns[key], table.columns[column]], dialect, count)
    return (
        f"WITH added (row_key, amount) AS ({source}) "  # noqa: S608
        f"UPDATE {table.name} SET {column} = {table.name}.{column} + amount FROM added "
        f"WHERE {table.name}.{key} = row_key RETURNING {key}, {column}"
    )


@lru_cache(maxsize=2000)
def _update(
    table: Table,
    columns: tuple[str, ...],
    dialect: str,
    count: int,
    *,
    where: str,
    changes: str | None,
) -> str:
    key = _key(table)
    names = ", ".join((key, *columns))
    source = _source([table.columns[name] for name in (key, *columns)], dialect, count)
    if changes is None:
        changes = ", ".join(f"{name} = new.{name}" for name in columns)
    return (
        f"WITH new ({names}) AS ({source}) "  # noqa: S608
        f"UPDATE {table.name} SET {changes} FROM new "
        f"WHERE {table.name}.{key} = new.{key} AND {where}"
    )
