"""The connection pool of the database, its transactions, and schema migrations.

Locks, in the order in which they are taken: `Database._turn` (SQLite only: one writer of this
process at a time), then a connection of the pool, then the locks of the database itself. Reads take
no `_turn`, so that they do not wait for writers.
"""

import asyncio
import errno
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, event, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    InvalidRequestError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from outrider.contract.errors import OutriderError
from outrider.service.database import tables
from outrider.service.database.transaction import DatabaseUnavailable, Transaction

HEAD: Final = "0008"
"""The newest revision in `migrations/versions/`; checked by a test."""


_BEGIN: Final = "outrider_begin"

_MIGRATION_LOCK: Final = 8400
_MIGRATION_WAIT: Final = "60s"

_SQLITE_WAIT: Final = 10
"""Seconds that an SQLite connection waits for a lock."""

_UNAVAILABLE_STATES: Final = ("08", "53", "57P")
"""SQLSTATE prefixes of an unavailable PostgreSQL: stopping, starting, or out of connections."""

_REFUSED_STATES: Final = ("22", "23")
"""SQLSTATE prefixes of values that PostgreSQL cannot store, and of violated constraints."""

_SQLITE_CANNOT_STORE: Final = frozenset(
    (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
)
_SQLITE_DAMAGED: Final = frozenset(
    (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_READ)
)
_POSTGRESQL_CANNOT_STORE: Final = frozenset(("53100", "25006", "58030"))
"""SQLSTATE codes of a full disk, a read-only transaction, and a disk failure."""


_READ_EVERY_TABLE: Final = str(
    select(*(table.select().exists() for table in tables.metadata.tables.values()))
)

DATABASE_ERRORS: Final = (SQLAlchemyError, OSError)
"""The errors of using the database; some drivers raise OSError unwrapped. `is_unavailable`,
`is_refused` and `cannot_store` distinguish them."""


class DatabaseError(OutriderError):
    """The database cannot be used with this configuration."""


class Database:
    """A pool of connections.

    Args:
        url: an SQLAlchemy URL with an asynchronous driver.
        timeout: the timeout of a statement on a server, in seconds; it also bounds the wait for a
            server that hangs and a network that drops packets.
        makes_directory: whether to create the directory of an SQLite file if it is missing.

    Raises:
        DatabaseError: the URL is not valid, or the file's directory is missing or cannot be
            created.
    """

    def __init__(self, url: str, timeout: float = 30.0, *, makes_directory: bool = True) -> None:
        try:
            self.url = make_url(url)
            _check_kind(self.url)
            if (file := _file(self.url)) is not None:
                _prepare_directory(file.parent, makes=makes_directory)
            self.engine = _engine(self.url, timeout)
            self._damage = ""
            event.listen(self.engine.sync_engine, "handle_error", self._note_damage)
            # Writers queue here, in order. SQLite itself makes them sleep and retry, unfairly.
            self._turn: asyncio.Lock | nullcontext[None] = (
                asyncio.Lock() if self.url.get_backend_name() == "sqlite" else nullcontext()
            )
        except ModuleNotFoundError as error:
            raise DatabaseError(
                f"OUTRIDER_DATABASE_URL needs the driver {error.name}, which is not installed"
            ) from error
        except (ArgumentError, InvalidRequestError, ValueError) as error:
            raise DatabaseError(
                "OUTRIDER_DATABASE_URL is not an address such as "
                "postgresql://user:password@host/name"
            ) from error

    @property
    def name(self) -> str:
        """The database's URL for messages: without the password, which parameters may have too."""
        return self.url.set(query={}).render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a server and for a database in memory."""
        return _file(self.url)

    @property
    def is_embedded(self) -> bool:
        """Whether it is SQLite, which a single node uses, and not a server."""
        return self.url.get_backend_name() == "sqlite"

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        """Open a write transaction; commit it at the end, roll it back on an error or cancellation.

        Raises:
            DatabaseUnavailable: the database cannot be reached.
        """
        async with self._turn, _opened(self.engine.begin()) as connection:
            yield Transaction(connection)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """Open a read-only transaction, which does not wait for writers.

        Raises:
            DatabaseUnavailable: the database cannot be reached.
        """
        async with _opened(self.engine.connect()) as connection:
            await connection.execution_options(**{_BEGIN: "BEGIN"})
            yield Transaction(connection)

    async def check(self) -> None:
        """Read from the database, to check that it can be read.

        SQLite: from every table, and with a new connection, since those of the pool may have the
        pages in their caches. A damaged page that this does not read fails the statement that needs
        it; from then on this raises until the service starts again.

        Raises:
            SQLAlchemyError, OSError: it cannot be read.
        """
        if self.file is None:
            async with self.read() as connection:
                await connection.execute(select(tables.accounts.c.id).limit(1))
            return
        if self._damage:
            raise DatabaseUnavailable(self._damage)
        try:
            await asyncio.to_thread(_read_file, self.file)
        except sqlite3.Error as error:
            raise DatabaseUnavailable(str(error)) from error

    async def migrate(self) -> bool:
        """Upgrade the schema to `HEAD`; return whether the database was empty before.

        Raises:
            DatabaseError: the database cannot be reached or written, or a newer version of
                Outrider has migrated it.
        """
        try:
            if (file := _file(self.url)) is not None:
                await asyncio.to_thread(_enable_wal, file)
            async with self.engine.connect() as connection:
                revision = await connection.run_sync(_revision)
            if revision is not None and revision > HEAD:
                raise DatabaseError(
                    f"The database {self.name} is of a newer "
                    f"Outrider (schema {revision}; this one knows {HEAD}): update this one"
                )
            if revision != HEAD:
                await self._upgrade()
        except (DBAPIError, sqlite3.Error, OSError) as error:
            cause = getattr(error, "orig", None) or error
            raise DatabaseError(f"The database {self.name} cannot be used: {cause}") from error
        return revision is None

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.shield(self.engine.dispose())

    def _note_damage(self, context: ExceptionContext) -> None:
        error = context.original_exception
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and (code in _SQLITE_DAMAGED or code & 0xFF in _SQLITE_DAMAGED):
            self._damage = str(error)

    async def _upgrade(self) -> None:
        """Migrate in one transaction, which no timeout ends."""
        from outrider.service.database.migrations.run import upgrade  # Alembic; rarely needed

        engine = _engine(self.url, None)
        try:
            async with engine.begin() as connection:
                # One node migrates at a time; on SQLite the write transaction ensures that.
                if not self.is_embedded:
                    wait = f"SET LOCAL lock_timeout = '{_MIGRATION_WAIT}'"
                    await connection.execute(text(wait))
                    lock = f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"
                    await connection.execute(text(lock))
                # Another node may have migrated meanwhile: Alembic reads the revision again.
                await connection.run_sync(upgrade)
        finally:
            await engine.dispose()


def is_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the database is currently unavailable.

    False for statements that the database refused, for example because of a constraint.
    """
    if not isinstance(error, DBAPIError):
        return isinstance(error, (PoolTimeout, DatabaseUnavailable, OSError))
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the driver lost the connection or its protocol state
        kinds = (OperationalError, InterfaceError, InternalError)
        return error.connection_invalidated or isinstance(error, kinds)
    return error.connection_invalidated or state.startswith(_UNAVAILABLE_STATES)


def is_refused(error: BaseException) -> bool:
    """Return whether the database refused the values of a statement: it would do so again.

    They violate a constraint, or no column of that type can hold them.
    """
    if isinstance(error, (IntegrityError, DataError)):
        return True
    # SQLAlchemy has no class of its own for asyncpg's errors about values.
    state = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
    return state is not None and state.startswith(_REFUSED_STATES)


def cannot_store(error: BaseException) -> bool:
    """Return whether an error means that the database can be read but not written.

    The disk is full or broken, or the database is read-only, like a PostgreSQL standby.
    """
    if isinstance(error, DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is not None:  # the low byte is the primary result code
            return code & 0xFF in _SQLITE_CANNOT_STORE
        return getattr(error.orig, "sqlstate", None) in _POSTGRESQL_CANNOT_STORE
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@asynccontextmanager
async def _opened(
    opening: AbstractAsyncContextManager[AsyncConnection],
) -> AsyncIterator[AsyncConnection]:
    """Open a connection for a block; raise its OSErrors as `DatabaseUnavailable`.

    A plain ConnectionError could be mistaken for that of an HTTP client's connection. Errors that
    the block itself raises pass unchanged.
    """
    raised: BaseException | None = None
    try:
        async with opening as connection:
            try:
                yield connection
            except BaseException as error:
                raised = error
                raise
    except OSError as error:
        if error is raised:
            raise
        raise DatabaseUnavailable(str(error) or "no answer in time") from error


def _revision(connection: Connection) -> str | None:
    """Return the revision of the schema, None for a database without our tables."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def _check_kind(url: URL) -> None:
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise DatabaseError(
            f"OUTRIDER_DATABASE_URL names a {kind} database: Outrider keeps its data in SQLite "
            "(the default), or in PostgreSQL: postgresql://user:password@host/name"
        )


def _prepare_directory(directory: Path, *, makes: bool) -> None:
    if not makes and not directory.is_dir():
        raise DatabaseError(
            f"The directory {directory} does not exist: set OUTRIDER_DATA_DIR (or "
            "OUTRIDER_DATABASE_URL) to the service's, or start the service first"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DatabaseError(
            f"The directory {directory} cannot be used ({error.strerror}): "
            "set OUTRIDER_DATA_DIR to one that can"
        ) from error


def _file(url: URL) -> Path | None:
    """Return the file of an SQLite URL; None for a server and for a database in memory."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def _read_file(file: Path) -> None:
    """Read from every table of a file. Raises sqlite3.Error."""
    address = f"{file.absolute().as_uri()}?mode=rw"  # a missing file is not created
    with closing(sqlite3.connect(address, timeout=_SQLITE_WAIT, uri=True)) as connection:
        connection.execute(_READ_EVERY_TABLE)


def _enable_wal(file: Path) -> None:
    """Switch SQLite to write-ahead logging, so that readers and a writer do not block each other.

    The setting is stored in the file. SQLite ignores its lock timeout for this statement and fails
    at once while another process writes to a new file, so it is retried here.
    """
    file.touch(0o600)  # private, whatever the mode of the directory
    deadline = time.monotonic() + _SQLITE_WAIT
    with closing(sqlite3.connect(file, timeout=_SQLITE_WAIT)) as connection:
        while not _try_enable_wal(connection, is_last_try=time.monotonic() > deadline):
            time.sleep(0.01)


def _try_enable_wal(connection: sqlite3.Connection, *, is_last_try: bool) -> bool:
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or is_last_try:
            raise
        return False
    return True


def _engine(url: URL, timeout: float | None) -> AsyncEngine:
    if url.get_backend_name() != "sqlite":
        bounds = {"timeout": min(10.0, timeout or 10.0), "command_timeout": timeout}
        return create_async_engine(
            url,
            pool_size=10,
            max_overflow=10,
            pool_timeout=10,
            connect_args=bounds if url.get_driver_name() == "asyncpg" else {},
        )
    # No overflow: each connection is a thread, and starting many at once is slow. The newest is
    # used first: it has the statements and the pages of the file in its caches.
    options = {"timeout": _SQLITE_WAIT}
    engine = create_async_engine(url, max_overflow=0, pool_use_lifo=True, connect_args=options)

    @event.listens_for(engine.sync_engine, "connect")
    def _set_up(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        # BEGIN IMMEDIATE takes the write lock at once: upgrading a read transaction to a write
        # fails without waiting if another writer has committed since it began.
        options = connection.get_execution_options()
        connection.exec_driver_sql(options.get(_BEGIN, "BEGIN IMMEDIATE"))

    return engine
