"""Writes many rows with one statement, in SQL that goes to the driver unchanged.

SQLAlchemy processes each value of each row, which takes longer than the database's own work; and
the SQLite driver releases the GIL once for each statement, which lets the event loop in between.
Here the text of a statement is built once and cached, and rows are tuples of values that drivers
accept directly: text, numbers, bytes and None.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Column, Table
from sqlalchemy.engine import Dialect

from outrider.cloud.store.transaction import Transaction

_MAX_ROWS: Final = 500
"""Rows of one statement. SQLite allows at most 32,766 parameters."""

Row = tuple[Any, ...]


async def insert(transaction: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Add rows; skip those whose key exists already.

    Args:
        rows: each with a value for every column, in the table's order.
    """
    for part in _parts(rows):
        text = _insert(table, transaction.dialect, len(part))
        await transaction.execute_text(text, _values(transaction.dialect, part))


async def insert_new(transaction: Transaction, table: Table, rows: Sequence[Row]) -> set[str]:
    """Add rows as `insert` does; return the keys (first column) of the rows that were added."""
    new: set[str] = set()
    for part in _parts(rows):
        text = f"{_insert(table, transaction.dialect, len(part))} RETURNING {_key(table)}"
        values = _values(transaction.dialect, part)
        new.update((await transaction.execute_text(text, values)).scalars())
    return new


async def existing(transaction: Transaction, table: Table, keys: Sequence[str]) -> set[str]:
    """Return which of these keys (first column) a table of SQLite has."""
    found: set[str] = set()
    for start in range(0, len(keys), _MAX_ROWS):
        part = tuple(keys[start : start + _MAX_ROWS])
        result = await transaction.execute_text(_existing(table, len(part)), part)
        found.update(result.scalars())
    return found


async def increment(
    transaction: Transaction, table: Table, column: str, amounts: Mapping[str, int]
) -> dict[str, int]:
    """Add to a column of rows by their key (first column); return its new values.

    Rows that do not exist are skipped. The rows are locked in no particular order.
    """
    values: dict[str, int] = {}
    for part in _parts(list(amounts.items())):
        text = _increment(table, column, transaction.dialect, len(part))
        result = await transaction.execute_text(text, _values(transaction.dialect, part))
        values.update((row[0], row[1]) for row in result.all())
    return values


async def update(
    transaction: Transaction,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[Row],
    where: str = "TRUE",
) -> None:
    """Update columns of rows by their key.

    Args:
        rows: each with its key (the table's first column), and a value for each of `columns`.
        where: an SQL condition; rows that do not satisfy it are left unchanged. `new` is the new
            row.
    """
    for part in _parts(rows):
        text = _update(table, columns, transaction.dialect, len(part), where)
        await transaction.execute_text(text, _values(transaction.dialect, part))


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _MAX_ROWS] for start in range(0, len(rows), _MAX_ROWS))


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
    columns = list(table.columns)
    names = ", ".join(column.name for column in columns)
    source = _source(columns, dialect, count)
    return f"INSERT INTO {table.name} ({names}) {source} ON CONFLICT DO NOTHING"


@lru_cache(maxsize=2000)
def _existing(table: Table, count: int) -> str:
    placeholders = ", ".join("?" * count)
    return f"SELECT {_key(table)} FROM {table.name} WHERE {_key(table)} IN ({placeholders})"  # noqa: S608


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
def _update(table: Table, columns: tuple[str, ...], dialect: str, count: int, where: str) -> str:
    key = _key(table)
    names = ", ".join((key, *columns))
    source = _source([table.columns[name] for name in (key, *columns)], dialect, count)
    changes = ", ".join(f"{name} = new.{name}" for name in columns)
    return (
        f"WITH new ({names}) AS ({source}) "  # noqa: S608
        f"UPDATE {table.name} SET {changes} FROM new "
        f"WHERE {table.name}.{key} = new.{key} AND {where}"
    )
