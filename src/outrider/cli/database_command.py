"""Shared by the commands on the database: open it, find an account, print the result."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer
from sqlalchemy.exc import DBAPIError

from outrider.cli.running import fail, run, service_settings
from outrider.service.accounts.encryption import key_file
from outrider.service.accounts.store import accounts
from outrider.service.database.engine import DATABASE_ERRORS, Database, DatabaseError
from outrider.service.operations.installation import prepare

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def on_database(work: Callable[[Database], Awaitable[T]]) -> T:
    """Run `work` on the service's database, with its schema up to date."""

    async def with_database() -> T:
        # Do not create the directory: a mistyped setting would create a second, empty service.
        settings = service_settings()
        database = Database(settings.sqlalchemy_url, makes_directory=False)
        try:
            # A command of a newer version may come before its service: the schema must be theirs.
            await prepare(database, used_before=key_file(settings.data_dir).exists())
            return await work(database)
        finally:
            await database.close()

    return run(with_database())


async def check(database: Database) -> None:
    """Check that the database can be read. Raises DatabaseError."""
    try:
        await database.check()
    except DATABASE_ERRORS as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise DatabaseError(f"The database {database.name} cannot be read: {cause}") from error


async def account_id(database: Database, account: str) -> str:
    """Return the id of the account with this id or email, or end the command."""
    row_id = await accounts.find(database, account)
    if row_id is None:
        fail(
            f"There is no account {account!r}: give its id or the email of its user, "
            "as in `outrider admin account list`"
        )
    return row_id


def when(millis: Any) -> str:
    """Return a time (epoch milliseconds) as text; None is "never"."""
    if millis is None:
        return "never"
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def now() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
