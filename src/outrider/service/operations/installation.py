"""Checks before a service uses its database: exclusive use, the schema, lost tables."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import structlog

from outrider.contract.errors import OutriderError
from outrider.lock_file import FileLockedError, locked_file
from outrider.service.database.engine import Database

_log = structlog.get_logger(__name__)


class InstallationError(OutriderError):
    """The service must not use the database: another one does, or the lock cannot be checked."""


@contextmanager
def lock(database: Database) -> Iterator[None]:
    """Hold an SQLite database while the block runs: one service at a time may use it.

    `outrider admin` may run at the same time and takes no lock. PostgreSQL needs none, because
    several nodes share it. The kernel releases the lock when the process ends, also in a crash.

    Raises:
        InstallationError: another service holds it, or the lock file cannot be written.
    """
    if database.file is None:
        yield
        return
    # Beside the database and not in the data directory: two directories may name one database.
    path = database.file.with_name(f"{database.file.name}.lock")
    with ExitStack() as held:
        try:
            held.enter_context(locked_file(path))
        except FileLockedError as error:
            raise InstallationError(
                f"A service uses the database {database.file} already (process {error.holder}): "
                "stop that one first, or choose another OUTRIDER_DATA_DIR"
            ) from None
        except OSError as error:
            raise InstallationError(f"{path} cannot be written: {error.strerror}") from error
        yield


async def prepare(database: Database, *, used_before: bool) -> None:
    """Migrate the database, and warn if it was used before and has lost its tables.

    Args:
        used_before: whether a service with this data directory has run before.

    Raises:
        DatabaseError: the database cannot be used.
    """
    was_empty = await database.migrate()
    if was_empty and used_before:
        _log.warning(
            "database found empty",
            database=database.name,
            advice="The data directory was in use before (it has a secret.key), but this database "
            "has no tables: all accounts, keys and machines are gone. If you miss them, stop the "
            "service and restore the database",
        )
