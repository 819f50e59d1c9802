"""Many rows in one statement, in SQL that goes to the driver as it is.

SQLAlchemy looks at each value of each row, which costs more than the database's own work on it;
and SQLite lets go of Python's lock once for each statement, where the loop takes it. Here a
statement is made text once, and rows are tuples of what drivers take by themselves: text,
numbers, bytes and None.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

from outrider.cloud.store.transaction import Transaction

_AT_ONCE: Final = 500
"""Rows of one statement: SQLite takes no more than 32,766 values."""

_POSTGRESQL: Final[Dialect] = postgresql.dialect()  # type: ignore[no-untyped-call]

Row = tuple[Any, ...]


async def insert(transaction: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Add rows, but for those that are there already.

    Args:
        rows: each with a value for every column, in the table's order.
    """
    for part in _parts(rows):
        text = _insert(table, transaction.dialect, len(part))
        await transaction.execute_text(text, _values(transaction.dialect, part))


async def insert_new(transaction: Transaction, table: Table, rows: Sequence[Row]) -> set[str]:
    """Add rows as `insert` does, and return the keys (the first column) of those it has added."""
    if transaction.dialect == "sqlite":  # nobody else writes meanwhile
        known: set[str] = set()
        for part in _parts(rows):
            keys = tuple(row[0] for row in part)
            known.update((await transaction.execute_text(_known(table, len(keys)), keys)).scalars())
        unknown = [row for row in rows if row[0] not in known]
        await insert(transaction, table, unknown)
        return {row[0] for row in unknown}
    new: set[str] = set()
    for part in _parts(rows):
        text = f"{_insert(table, transaction.dialect, len(part))} RETURNING {_key(table)}"
        values = _values(transaction.dialect, part)
        new.update((await transaction.execute_text(text, values)).scalars())
    return new


async def update(
    transaction: Transaction,
    table: Table,
    columns: tuple[str, ...],
    rows: Sequence[Row],
    where: str = "TRUE",
) -> None:
    """Change columns of rows.

    Args:
        rows: each with its key (the table's first column), and a value for each of `columns`.
        where: SQL that tells which of them are changed; it has the new row as `new`.
    """
    for part in _parts(rows):
        text = _update(table, columns, transaction.dialect, len(part), where)
        await transaction.execute_text(text, _values(transaction.dialect, part))


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))


def _values(dialect: str, rows: Sequence[Row]) -> Row:
    """Return the values of rows as the statement takes them: see `_source`."""
    if dialect == "sqlite":
        return tuple(chain.from_iterable(rows))
    return tuple(map(list, zip(*rows, strict=True)))


def _source(columns: Sequence[Column[Any]], dialect: str, count: int) -> str:
    """Return what rows of these columns are read from.

    On SQLite every value is a parameter; on PostgreSQL every column is one, a list.
    """
    if dialect == "sqlite":
        row = f"({', '.join('?' * len(columns))})"
        return f"VALUES {', '.join([row] * count)}"
    types = [column.type.compile(_POSTGRESQL) for column in columns]
    lists = [f"${number}::{name}[]" for number, name in enumerate(types, 1)]
    return f"SELECT * FROM unnest({', '.join(lists)})"  # noqa: S608  # no values in it


def _key(table: Table) -> str:
    return table.columns[0].name


@lru_cache(maxsize=2000)
def _insert(table: Table, dialect: str, count: int) -> str:
    columns = list(table.columns)
    names = ", ".join(column.name for column in columns)
    source = _source(columns, dialect, count)
    return f"INSERT INTO {table.name} ({names}) {source} ON CONFLICT DO NOTHING"


@lru_cache(maxsize=2000)
def _known(table: Table, count: int) -> str:
    marks = ", ".join("?" * count)
    return f"SELECT {_key(table)} FROM {table.name} WHERE {_key(table)} IN ({marks})"  # noqa: S608


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
