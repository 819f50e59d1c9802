"""Revoke in a restored database what was revoked after its backup.

The database that the restored one replaces still has it: machine tokens, API keys, passwords and
webhooks get the state that they have there. What is valid for hours at most (dashboard sessions and
one-time codes) ends in any case. An account that the other database does not have was deleted, and
is restored as a whole.
"""

from typing import Any, Final, NamedTuple

from sqlalchemy import Table, bindparam, delete, select, update

from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_SHORT_LIVED: Final = (
    tables.sessions,
    tables.enrollment_codes,
    tables.device_codes,
    tables.password_resets,
)


class Revoked(NamedTuple):
    """How many of each kind are valid in the backup and not any more.

    `unknown_accounts` are those of the backup that the previous database does not have: it cannot
    say what was revoked of theirs.
    """

    machines: int = 0
    keys: int = 0
    passwords: int = 0
    webhooks: int = 0
    unknown_accounts: int = 0


async def revoke_again(restored: Database, previous: Database, now: int) -> Revoked:
    """Give what can be revoked the state that it has in the previous database.

    Args:
        now: epoch milliseconds.

    Raises:
        SQLAlchemyError, OSError: one of the databases cannot be used; nothing has changed.
    """
    async with previous.read() as there:
        accounts = set(await there.scalars(select(tables.accounts.c.id)))
        tokens = await _values(there, tables.machines, "token_hash")
        keys = await _values(there, tables.api_keys, "revoked_at")
        passwords = await _values(there, tables.users, "password_hash")
        webhooks = await _values(there, tables.webhooks, "active")
    async with restored.begin() as here:
        await _end_short_lived(here)
        machines = await _set(here, tables.machines, "token_hash", tokens, accounts)
        revoked = await _set(here, tables.api_keys, "revoked_at", keys, accounts, missing=now)
        changed = await _set(here, tables.users, "password_hash", passwords, accounts)
        # One that was resumed since stays as it is in the backup.
        paused = {webhook: active for webhook, active in webhooks.items() if not active}
        ended = await _set(here, tables.webhooks, "active", paused, set())
        deleted = [
            webhook
            for webhook, account in await here.execute(
                select(tables.webhooks.c.id, tables.webhooks.c.account_id)
            )
            if account in accounts and webhook not in webhooks
        ]
        await _delete_webhooks(here, deleted)
        present = set(await here.scalars(select(tables.accounts.c.id)))
    return Revoked(
        machines=machines,
        keys=revoked,
        passwords=changed,
        webhooks=ended + len(deleted),
        unknown_accounts=len(present - accounts),
    )


async def revoke_all(restored: Database, now: int) -> Revoked:
    """Revoke every machine and key, and pause every webhook; passwords stay."""
    machines, keys, webhooks = tables.machines, tables.api_keys, tables.webhooks
    async with restored.begin() as here:
        await _end_short_lived(here)
        counts = [
            (await here.execute(statement)).rowcount
            for statement in (
                update(machines).where(machines.c.token_hash.is_not(None)).values(token_hash=None),
                update(keys).where(keys.c.revoked_at.is_(None)).values(revoked_at=now),
                update(webhooks).where(webhooks.c.active).values(active=False),
            )
        ]
    return Revoked(machines=counts[0], keys=counts[1], webhooks=counts[2])


async def end_short_lived(restored: Database) -> None:
    """End the dashboard sessions and one-time codes."""
    async with restored.begin() as here:
        await _end_short_lived(here)


async def _end_short_lived(here: Transaction) -> None:
    for table in _SHORT_LIVED:
        await here.execute(delete(table))


async def _values(there: Transaction, table: Table, column: str) -> dict[str, Any]:
    """Return a column's value for each id."""
    rows = await there.execute(select(table.c.id, table.c[column]))
    return {row[0]: row[1] for row in rows}


async def _set(
    here: Transaction,
    table: Table,
    column: str,
    values: dict[str, Any],
    accounts: set[str],
    *,
    missing: object = None,
) -> int:
    """Set a column to these values where it differs; return how many rows have changed.

    Args:
        missing: the value of a row without one, whose account is one of `accounts`.
    """
    rows = await here.execute(select(table.c.id, table.c.account_id, table.c[column]))
    changes = [
        {"row": row_id, "value": value}
        for row_id, account, present in rows
        if row_id in values or account in accounts
        if (value := values.get(row_id, missing)) != present
    ]
    if changes:
        statement = update(table).where(table.c.id == bindparam("row"))
        await here.execute(statement.values({column: bindparam("value")}), changes)
    return len(changes)


async def _delete_webhooks(here: Transaction, ids: list[str]) -> None:
    if ids:
        column = tables.webhooks.c.id
        await here.execute(
            delete(tables.webhooks).where(column == bindparam("row")),
            [{"row": row_id} for row_id in ids],
        )
