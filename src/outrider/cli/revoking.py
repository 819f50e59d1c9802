"""After a restore: revoke again what was revoked after the backup."""

from pathlib import Path

from sqlalchemy.exc import DBAPIError

from outrider.cli.database_command import check, now
from outrider.service.database import revocations
from outrider.service.database.engine import DATABASE_ERRORS, Database, DatabaseError
from outrider.service.settings import Settings


async def revoked_since(restored: Database, previous: str | Path) -> revocations.Revoked:
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


def revoked_again_text(revoked: revocations.Revoked) -> str:
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
