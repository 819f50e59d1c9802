"""The accounts that `outrider admin` has changed or deleted, so that nodes drop their caches."""

from typing import Final

from sqlalchemy import case, delete, select

from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_changes = tables.account_changes

_KEPT_MILLIS: Final = 86_400_000
"""How long a change is kept: much longer than the interval in which nodes poll."""


async def note(transaction: Transaction, account_id: str, now: int) -> None:
    """Record, in the transaction of a change, that the account has changed."""
    await transaction.execute(delete(_changes).where(_changes.c.changed_at < now - _KEPT_MILLIS))
    new = transaction.insert(_changes).values(account_id=account_id, changed_at=now)
    # The number must grow with each change, even within a millisecond: nodes compare it.
    later = case(
        (new.excluded.changed_at > _changes.c.changed_at, new.excluded.changed_at),
        else_=_changes.c.changed_at + 1,
    )
    await transaction.execute(
        new.on_conflict_do_update(
            index_elements=[_changes.c.account_id], set_={_changes.c.changed_at: later}
        )
    )


async def recent(database: Database) -> dict[str, int]:
    """Return when accounts last changed, by id. An account's number grows with each change."""
    query = select(_changes.c.account_id, _changes.c.changed_at)
    async with database.read() as connection:
        return {row[0]: row[1] for row in await connection.execute(query)}
