"""Backup and restore of a service that stores its data in SQLite.

A backup is a ZIP file: a consistent copy of the database, the secret key that decrypts parts of
it, the account of `outrider up`, and a description. PostgreSQL has its own tools. Everything here
blocks; it is for the command line.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from outrider import __version__
from outrider.contract.errors import OutriderError
from outrider.contract.structs import Wire
from outrider.lock_file import lock_holder, locked_file
from outrider.service.accounts.encryption import derived, key_file, secret_key
from outrider.service.database.engine import HEAD, Database
from outrider.service.operations import installation
from outrider.service.settings import LOCAL_ACCOUNT, Settings

FORMAT: Final = 1
"""Raised when an older Outrider could no longer restore the file."""

_DESCRIPTION: Final = "backup.json"
_DATABASE: Final = "outrider.db"
_SECRET_KEY: Final = "secret.key"  # noqa: S105  # a file name
_SUFFIXES: Final = ("", "-wal", "-shm")
_WAIT_SECONDS: Final = 30.0
_WORKSPACE: Final = ".outrider-copy-"
_LOCK: Final = "lock"
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNREADABLE: Final = (
    KeyError,
    RuntimeError,
    EOFError,
    UnicodeError,
    msgspec.DecodeError,
    zipfile.BadZipFile,
    zlib.error,
)


class BackupError(OutriderError):
    """The backup cannot be made or restored. The text says what to do; nothing has changed."""


class Description(Wire, kw_only=True):
    """What a backup says about itself.

    Attributes:
        schema: the revision of the database's schema.
        created_at: epoch milliseconds.
        has_secret_key: whether the key is in the file; otherwise OUTRIDER_SECRET_KEY had it.
        key_fingerprint: identifies the key without revealing it.
    """

    format: int
    version: str
    schema: str
    created_at: int
    has_secret_key: bool
    key_fingerprint: str


def create(settings: Settings, file: Path, *, overwrite: bool = False) -> Description:
    """Write a backup of the service's data to `file` (mode 0600); the service may be running.

    The copy is one snapshot: whatever is committed while it is made is in the next backup. It is
    checked as `restore` checks it before it gets its name.

    Raises:
        BackupError: there is no SQLite database or it is damaged, `file` exists and `overwrite` is
            false, or it cannot be written.
        SecretKeyError: the secret key cannot be read.
    """
    _refuse_server(settings, "pg_dump")
    source = _file(Database(settings.sqlalchemy_url, makes_directory=False))
    if not source.exists():
        raise BackupError(
            f"There is no database at {source}: set OUTRIDER_DATA_DIR (or OUTRIDER_DATABASE_URL) "
            "to the service's"
        )
    if file.exists() and not overwrite:
        raise BackupError(f"{file} exists already: choose another name, or add --force")
    key_path = key_file(settings.data_dir)
    if settings.secret_key is None and not key_path.exists():
        raise BackupError(
            f"There is no secret key at {key_path}: without it, what is encrypted in the database "
            "cannot be read. Set OUTRIDER_SECRET_KEY, or OUTRIDER_DATA_DIR, to the service's"
        )
    secret = secret_key(settings.secret_key, settings.data_dir)
    try:
        with _workspace(file.absolute().parent) as workspace:
            copy = workspace / _DATABASE
            # SQLite's backup is one read transaction: writers go on, and their pages do not get in.
            _copy(source, copy)
            schema = _schema(copy, f"The database {source}")
            if not _is_whole(copy):
                raise _damaged_database(source)
            description = Description(
                format=FORMAT,
                version=__version__,
                schema=schema,
                created_at=time.time_ns() // 1_000_000,
                has_secret_key=settings.secret_key is None,
                key_fingerprint=_fingerprint(secret),
            )
            archive = workspace / "archive"
            with _private(archive) as handle, zipfile.ZipFile(handle, "w") as files:
                files.writestr(_DESCRIPTION, msgspec.json.encode(description))
                if description.has_secret_key:
                    files.writestr(_SECRET_KEY, secret + "\n")
                if (local := settings.data_dir / LOCAL_ACCOUNT).exists():
                    files.write(local, LOCAL_ACCOUNT)
                files.write(copy, _DATABASE, zipfile.ZIP_DEFLATED)
            _read_back(archive)
            _place(archive, file, overwrite=overwrite)
    except FileExistsError:
        raise BackupError(f"{file} exists already: choose another name, or add --force") from None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise _damaged_database(source) from error
        raise BackupError(f"The database {source} cannot be copied: {error}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise BackupError(
            f"{file} was not written: what was stored on its disk cannot be read back ({error})"
        ) from error
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror or error}") from error
    return description


def restore(
    settings: Settings, file: Path, *, overwrite: bool = False
) -> tuple[Description, list[Path]]:
    """Put the data of a backup in the place of the service's; the service must not be running.

    The backup is checked completely before anything is changed. Data that was there is renamed, not
    deleted.

    Returns:
        The backup's description, and where the previous files are now.

    Raises:
        BackupError: `file` is not a whole backup that this version can restore, there is data
            already and `overwrite` is false, or the files cannot be written.
        InstallationError: a service is running on the database.
    """
    _refuse_server(settings, "pg_restore")
    with _opened(file) as (archive, description):
        _check(settings, file, description)
        target = _file(database := Database(settings.sqlalchemy_url))
        _prepare(target.parent, settings.data_dir)
        # Held to the end: a service that starts in between would write into files that are renamed.
        with installation.lock(database):
            present = _present(settings, target)
            if present and not overwrite:
                raise BackupError(
                    f"{present[0]} exists already: --force puts the backup in its place and keeps "
                    "the present data under another name"
                )
            try:
                with ExitStack() as held:
                    with _reading(file):
                        replacements = _extract(settings, archive, target, held)
                    _check_database(file, replacements[target], description)
                    return description, _replace(present, replacements)
            except OSError as error:
                raise BackupError(
                    f"The backup cannot be restored to {target.parent}: {error.strerror or error}"
                ) from error


def _refuse_server(settings: Settings, tool: str) -> None:
    if not settings.is_single_node:
        raise BackupError(
            f"This service stores its data in PostgreSQL: use {tool} (docs/operations.md), and "
            "keep a copy of the secret key"
        )


def _file(database: Database) -> Path:
    if database.file is None:
        raise BackupError("This service stores its data in memory only: there is nothing to keep")
    return database.file


def _copy(source: Path, target: Path) -> None:
    """Copy a database that may be in use. In WAL mode this neither waits for nor delays writers."""
    with (
        closing(sqlite3.connect(source, timeout=_WAIT_SECONDS)) as database,
        closing(sqlite3.connect(target)) as copy,
    ):
        database.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm


@contextmanager
def _workspace(parent: Path) -> Iterator[Path]:
    """Create a directory for copies of the data; remove those of commands that were killed.

    A command holds the lock in its directory, which the system releases when it is killed. The lock
    has its final name only once it is held, so that nobody takes a new directory for an old one.
    """
    for directory in parent.glob(f"{_WORKSPACE}*"):
        if _is_left_over(directory):
            shutil.rmtree(directory, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=_WORKSPACE) as name:
        workspace = Path(name)
        with locked_file(new := workspace / "new"):
            new.rename(workspace / _LOCK)
            yield workspace


def _is_left_over(directory: Path) -> bool:
    status, lock = directory.lstat(), directory / _LOCK
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return is_own and lock.is_file() and lock_holder(lock) is None


def _read_back(archive: Path) -> None:
    """Raise BadZipFile if a member of a backup cannot be read as it was written."""
    with zipfile.ZipFile(archive) as files:
        if (member := files.testzip()) is not None:
            raise zipfile.BadZipFile(member)


def _damaged_database(source: Path) -> BackupError:
    return BackupError(
        f"The database {source} is damaged, so no backup was made: keep the backups that you have, "
        "stop the service and restore the newest one"
    )


def _schema(database: Path, name: str) -> str:
    """Return the revision of the schema. Raises BackupError if it is not a database of ours."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError:
            row = None
    if row is None:
        raise BackupError(f"{name} is not a database of Outrider")
    return str(row[0])


def _fingerprint(secret: str) -> str:
    return derived(secret, "backup fingerprint").hex()[:16]


@contextmanager
def _private(path: Path) -> Iterator[BinaryIO]:
    """Open a new file with mode 0600 for writing; it is on the disk when the block ends."""
    # The mode is that of the first moment: it has keys in it, whatever the umask says.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w+b") as file:
        yield file
        file.flush()
        os.fsync(handle)


def _place(source: Path, target: Path, *, overwrite: bool) -> None:
    """Move a whole file to its place. Raises FileExistsError if it is taken."""
    if not overwrite:
        with _private(target):
            pass  # now the name is taken, and an empty file of ours may be replaced
    source.replace(target)


@contextmanager
def _opened(file: Path) -> Iterator[tuple[zipfile.ZipFile, Description]]:
    with ExitStack() as held:
        try:
            with _reading(file):
                archive = held.enter_context(zipfile.ZipFile(file))
                description = msgspec.json.decode(archive.read(_DESCRIPTION), type=Description)
        except OSError as error:
            raise BackupError(f"{file} cannot be read: {error.strerror or error}") from error
        yield archive, description


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Translate what `zipfile` raises for a file that is damaged, encrypted or of others."""
    try:
        yield
    except _UNREADABLE:
        raise _damaged(file) from None


def _damaged(file: Path) -> BackupError:
    return BackupError(f"{file} is not a backup of Outrider, or it is damaged: use another one")


def _check(settings: Settings, file: Path, description: Description) -> None:
    """Raise BackupError if this version or this configuration cannot use the backup."""
    if description.format > FORMAT or description.schema > HEAD:
        raise BackupError(
            f"{file} is of a newer Outrider ({description.version}, schema {description.schema}; "
            f"this is {__version__}, schema {HEAD}): update this one"
        )
    if settings.secret_key is not None:
        if _fingerprint(settings.secret_key) != description.key_fingerprint:
            raise BackupError(
                f"{file} was made with another secret key than OUTRIDER_SECRET_KEY: set it to the "
                "key of that service"
                + (", or unset it to use the key in the backup" * description.has_secret_key)
            )
    elif not description.has_secret_key:
        raise BackupError(
            f"The secret key is not in {file}, because OUTRIDER_SECRET_KEY had it: set it to the "
            "same key"
        )


def _prepare(*directories: Path) -> None:
    """Create the directories; refuse another user's, who could not use what is restored."""
    for directory in directories:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = directory.stat().st_uid
        except OSError as error:
            raise BackupError(f"{directory} cannot be used: {error.strerror or error}") from error
        if owner != os.geteuid():
            raise BackupError(
                f"{directory} belongs to another user (uid {owner}): restore as that user, such as "
                "with sudo -u"
            )


def _present(settings: Settings, target: Path) -> list[Path]:
    """Return the files that a restore replaces."""
    files = [target.with_name(target.name + suffix) for suffix in _SUFFIXES]
    if settings.secret_key is None:
        files.append(key_file(settings.data_dir))
    files.append(settings.data_dir / LOCAL_ACCOUNT)
    return [path for path in files if path.exists()]


def _extract(
    settings: Settings, archive: zipfile.ZipFile, target: Path, held: ExitStack
) -> dict[Path, Path]:
    """Extract what is to be restored; return the extracted file for each path.

    The extracted files are on the file systems of their paths, and removed when `held` ends.
    Reading a member to its end checks its CRC. No path of the archive is used.
    """
    places = {_DATABASE: target}
    if settings.secret_key is None:
        places[_SECRET_KEY] = key_file(settings.data_dir)
    if LOCAL_ACCOUNT in archive.namelist():
        places[LOCAL_ACCOUNT] = settings.data_dir / LOCAL_ACCOUNT
    extracted = {}
    for name, place in places.items():
        extracted[place] = held.enter_context(_workspace(place.parent)) / name
        with archive.open(name) as member, _private(extracted[place]) as file:
            shutil.copyfileobj(member, file)
    return extracted


def _check_database(file: Path, database: Path, description: Description) -> None:
    try:
        if not _is_whole(database) or _schema(database, str(file)) != description.schema:
            raise _damaged(file)
    except sqlite3.Error:
        raise _damaged(file) from None


def _is_whole(database: Path) -> bool:
    with closing(sqlite3.connect(database)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    return bool(verdict == "ok")


def _replace(present: list[Path], replacements: dict[Path, Path]) -> list[Path]:
    """Rename the present files, and put the replacements in place; undo both on an error."""
    ending = datetime.now(UTC).strftime(".before-restore-%Y%m%dT%H%M%S%fZ")
    moved: list[tuple[Path, Path]] = []
    try:
        for path in present:
            name = path.name
            suffix = next((end for end in _SUFFIXES[1:] if name.endswith(end)), "")
            # SQLite finds the -wal of a database by its name.
            aside = path.with_name(name.removesuffix(suffix) + ending + suffix)
            path.rename(aside)
            moved.append((path, aside))
        for path, replacement in replacements.items():
            replacement.rename(path)
            moved.append((replacement, path))
    # Also after Ctrl-C: half of the old and half of the new files are of no use to anybody.
    except BaseException:
        for before, now in reversed(moved):
            now.rename(before)
        raise
    return [aside for path, aside in moved if path in present]
