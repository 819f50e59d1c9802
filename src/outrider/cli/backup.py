"""`outrider backup` and `outrider restore`: the data of a service that uses SQLite.

After a restore, what was revoked after the backup is revoked again.
"""

from pathlib import Path

import msgspec
from rich.filesize import decimal
from sqlalchemy.exc import DBAPIError

from outrider.cli.database_command import check, now, when
from outrider.cli.printing import show_result
from outrider.cli.running import fail, run, service_settings
from outrider.contract.errors import OutriderError
from outrider.service.database import revocations
from outrider.service.database.engine import DATABASE_ERRORS, HEAD, Database, DatabaseError
from outrider.service.database.revocations import Revoked
from outrider.service.operations import backup, installation
from outrider.service.operations.backup import Description
from outrider.service.settings import Settings


def create(file: Path, *, overwrite: bool, as_json: bool) -> None:
    """Write a backup and say what is in it and what is not."""
    settings = service_settings()
    try:
        made = backup.create(settings, file, overwrite=overwrite)
    except OutriderError as error:
        fail(str(error))
    key = (
        "It has the secret key: keep it as safe as a password."
        if made.has_secret_key
        else "The secret key is not in it: keep OUTRIDER_SECRET_KEY too."
    )
    size = file.stat().st_size
    show_result(
        {"file": str(file), "bytes": size, **_fields(made)},
        f"{file} has the service's data ({decimal(size)}). {key}\n"
        "Not in it: settings, and what the machines keep (chats, connections).",
        as_json,
    )


def restore(file: Path, *, overwrite: bool, as_json: bool) -> None:
    """Restore a backup and say what comes next."""
    settings = service_settings()
    try:
        description, previous = backup.restore(settings, file, overwrite=overwrite)
    except OutriderError as error:
        fail(str(error))
    created = when(description.created_at)
    lines = [f"The service's data is that of {created}."]
    if description.schema != HEAD:
        lines.append(f"It was upgraded from schema {description.schema} to schema {HEAD}.")
    revoked = run(_revoke_again(settings, previous))
    if isinstance(revoked, Revoked):
        lines.append(revoked_again_text(revoked))
    else:
        lines.append(
            f"{revoked}, so machines, keys and webhooks that were revoked after {created} work "
            "again: revoke them once more, or all with `outrider admin revoke-again --everything`."
        )
    previous = [path for path in previous if path.exists()]
    if previous:
        lines += ["The data before is in", *(f"  {path}" for path in previous)]
    lines.append("Start the service now.")
    show_result(
        {
            "previous": [str(path) for path in previous],
            "revokedAgain": revoked._asdict() if isinstance(revoked, Revoked) else None,
            **_fields(description),
        },
        "\n".join(lines),
        as_json,
    )


async def _revoke_again(settings: Settings, previous: list[Path]) -> Revoked | str:
    """Revoke what was revoked in the data before; return why not if that cannot be known."""
    database = Database(settings.sqlalchemy_url)
    try:
        with installation.lock(database):
            await database.migrate()
            assert database.file is not None
            start = f"{database.file.name}.before-restore-"
            before = next((path for path in previous if path.name.startswith(start)), None)
            # Logins of the backup may have been ended since, for a reason that nobody wrote down.
            await revocations.end_short_lived(database)
            if before is None:
                return "There was no data here before"
            return await revoked_since(database, before)
    except DatabaseError as error:
        return str(error)
    finally:
        await database.close()


def _fields(description: Description) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(description)
    return fields


async def revoked_since(restored: Database, previous: str | Path) -> Revoked:
    """Revoke what is revoked in the previous database: a URL, or an SQLite file.

    Raises:
        DatabaseError: the previous database cannot be read.
    """
    database = Database(_url(previous), makes_directory=False)
    try:
        await check(database)
        return await revocations.revoke_again(restored, database, now())
    except DATABASE_ERRORS as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise DatabaseError(f"What was revoked cannot be compared: {cause}") from error
    finally:
        await database.close()


def _url(previous: str | Path) -> str:
    file = Path(previous)
    address = f"sqlite:///{file.absolute()}" if file.is_file() else str(previous)
    return Settings(database_url=address).sqlalchemy_url


def revoked_again_text(revoked: Revoked) -> str:
    """Return what was revoked, as a sentence."""
    counts = [
        f"{count} {name if count > 1 else name.removesuffix('s')}"
        for name, count in revoked._asdict().items()
        if count and name != "unknown_accounts"
    ]
    text = f"Revoked again: {', '.join(counts) or 'nothing'}. Everybody has to log in again."
    if revoked.unknown_accounts:
        text += (
            f"\nAccounts that the data before did not have: {revoked.unknown_accounts}. They have "
            "all that they had in the backup, also what was revoked after it."
        )
    return text
