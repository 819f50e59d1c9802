"""A transaction whose statements are completed even if the caller is cancelled.

If a cancellation interrupted a statement, its connection would be closed while the statement is
still open. SQLite then keeps the file locked for as long as anything refers to the statement, such
as the traceback of the cancellation. So a cancellation waits for the running statement, and the
transaction is rolled back afterwards, as after any other error.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import CursorResult, Executable, ScalarResult, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

T = TypeVar("T")

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


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

    def insert(self, table: Table) -> "sqlite.Insert | postgresql.Insert":
        """Return an INSERT that can have an ON CONFLICT clause."""
        if self.dialect == "sqlite":
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # 2.5 MB that SQLite does not need

        return postgresql.insert(table)

    async def execute(
        self, statement: Executable, parameters: Parameters | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement and return its result."""
        return await _run(self._connection.execute(statement, parameters))

    async def execute_text(
        self, text: str, values: tuple[Any, ...]
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run SQL in the driver's syntax, with values that it accepts directly; see `bulk`."""
        return await _run(self._connection.exec_driver_sql(text, values))

    async def scalar(self, statement: Executable) -> Any:
        """Run a statement and return the first column of its first row, None without a row."""
        return await _run(self._connection.scalar(statement))

    async def scalars(
        self, statement: Executable, parameters: Parameters | None = None
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
