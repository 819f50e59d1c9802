"""A transaction whose statements are completed even if the caller is cancelled.

If a cancellation interrupted a statement, its connection would be closed while the statement is
still open. SQLite then keeps the file locked for as long as anything refers to the statement, such
as the traceback of the cancellation. So a cancellation waits for the running statement, and the
transaction is rolled back afterwards, as after any other error.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import CursorResult, Executable, ScalarResult, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")

Row = Mapping[str, Any]


class DatabaseUnavailable(SQLAlchemyError):
    """The database cannot be reached: the connection was refused or lost."""


class Transaction:
    """An open transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        """The database's kind: `sqlite` or `postgresql`."""
        return self._connection.dialect.name

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that can have an ON CONFLICT clause."""
        return sqlite.insert(table) if self.dialect == "sqlite" else postgresql.insert(table)

    async def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows; skip those whose key exists already."""
        if rows:
            await self.execute(self.insert(table).on_conflict_do_nothing(), rows)

    async def execute(
        self, statement: Executable, parameters: Row | Sequence[Row] | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement and return its result."""
        return await _run(self._connection.execute(statement, parameters))

    async def scalar(self, statement: Executable) -> Any:
        """Run a statement and return the first column of its first row, None without a row."""
        return await _run(self._connection.scalar(statement))

    async def scalars(
        self, statement: Executable, parameters: Sequence[Row] | None = None
    ) -> ScalarResult[Any]:
        """Run a statement and return the first column of its rows."""
        return await _run(self._connection.scalars(statement, parameters))


async def to_its_end(work: Awaitable[T]) -> T:
    """Await `work`; a cancellation is raised only after `work` has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


async def _run(work: Awaitable[T]) -> T:
    try:
        return await to_its_end(work)
    except OSError as error:  # asyncpg does not wrap the socket's errors
        raise DatabaseUnavailable(str(error) or "no answer in time") from error
