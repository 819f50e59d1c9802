"""A driver of SQLite that hands a statement to its connection's thread once.

aiosqlite runs every call in the connection's thread, and SQLAlchemy makes four for a statement
(create a cursor, execute, fetch the rows, close the cursor) and one for a rollback after each
commit. Waking a thread takes longer than most statements do: to store one event (six statements)
takes 1.2 ms of a processor with this driver, 2.0 ms without (medians, on a busy computer).
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Self

import aiosqlite


class Connection(aiosqlite.Connection):
    """A connection with cursors of this module."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=1)
        self._thread.daemon = True  # as SQLAlchemy has it: a process may end without closing it
        self._is_committed = False
        """Whether nothing was run since a commit. Not `in_transaction`: if a caller is cancelled,
        a BEGIN may still be on its way to the thread when the rollback follows."""

    def cursor(self) -> "Cursor":  # type: ignore[override]  # what SQLAlchemy uses of one
        """Return a cursor, without I/O."""
        return Cursor(self)

    async def commit(self) -> None:
        """Commit the transaction."""
        await super().commit()
        self._is_committed = True

    async def rollback(self) -> None:
        """Roll the transaction back; SQLAlchemy does so after each commit too."""
        if not self._is_committed:
            await super().rollback()

    async def run(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Run `work` in the connection's thread."""
        self._is_committed = False
        await self._execute(work, self._conn)  # type: ignore[no-untyped-call]


def connect(*arguments: Any, **options: Any) -> Connection:
    """Return a connection to be awaited; takes what `sqlite3.connect` does."""
    return Connection(partial(sqlite3.connect, *arguments, **options))


class Cursor:
    """Runs a statement to its end: afterwards it has all rows, and no lock."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._rows: Iterable[Any] = ()
        self.description: Sequence[Any] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> None:
        """Run a statement."""
        await self._connection.run(partial(self._run, sqlite3.Cursor.execute, sql, parameters))

    async def executemany(self, sql: str, parameters: Any) -> None:
        """Run a statement for each row of parameters."""
        await self._connection.run(partial(self._run, sqlite3.Cursor.executemany, sql, parameters))

    async def fetchall(self) -> Iterable[Any]:
        """Return the rows of the last statement."""
        return self._rows

    async def close(self) -> None:
        """Do nothing: it holds nothing."""

    def _run(self, execute: Any, sql: str, parameters: Any, connection: sqlite3.Connection) -> None:
        with closing(connection.cursor()) as cursor:
            execute(cursor, sql, parameters)
            self._rows = cursor.fetchall()
            self.description = cursor.description
            self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid
