"""Accounts and their users."""

from typing import Any, Final, NamedTuple

from sqlalchemy import Select, Table, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from outrider.contract.account import PlanName
from outrider.contract.errors import OutriderError
from outrider.service.accounts.store import account_changes
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.webhooks.store import webhooks

_accounts = tables.accounts
_users = tables.users
_DELETE_BATCH: Final = 500


class EmailTaken(OutriderError):
    """An account with this email exists already."""


class Account(NamedTuple):
    """An account with its user. `created_at` is epoch milliseconds."""

    id: str
    user_id: str
    email: str
    plan: str
    created_at: int
    has_password: bool


class Holdings(NamedTuple):
    """How much an account owns; of keys and sessions only the valid ones."""

    machines: int
    keys: int
    webhooks: int
    sessions: int


async def create(
    database: Database,
    *,
    account_id: str,
    user_id: str,
    email: str,
    plan: PlanName,
    password_hash: str | None,
    now: int,
) -> None:
    """Create an account with its first user.

    Raises:
        EmailTaken: a user has this email.
    """
    try:
        async with database.begin() as connection:
            await connection.execute(
                insert(_accounts).values(id=account_id, plan=plan, created_at=now)
            )
            await connection.execute(
                insert(_users).values(
                    id=user_id,
                    account_id=account_id,
                    email=email.strip().lower(),
                    password_hash=password_hash,
                    created_at=now,
                )
            )
    except IntegrityError as error:
        raise EmailTaken(f"An account with the email {email} exists already") from error


async def find(database: Database, account: str) -> str | None:
    """Return the id of the account with this id, or with a user that has this email."""
    async with database.read() as connection:
        by_id = select(_accounts.c.id).where(_accounts.c.id == account)
        by_email = select(_users.c.account_id).where(_users.c.email == account.strip().lower())
        account_id = await connection.scalar(by_id) or await connection.scalar(by_email)
        return None if account_id is None else str(account_id)


async def every(database: Database, account_id: str | None = None) -> list[Account]:
    """Return every account, oldest first; with `account_id` only that one."""
    query = (
        select(
            _accounts.c.id,
            _users.c.id,
            _users.c.email,
            _accounts.c.plan,
            _accounts.c.created_at,
            _users.c.password_hash.is_not(None),
        )
        .join(_users, _users.c.account_id == _accounts.c.id)
        .order_by(_accounts.c.created_at, _users.c.id)
    )
    if account_id is not None:
        query = query.where(_accounts.c.id == account_id)
    async with database.read() as connection:
        rows = await connection.execute(query)
        return [Account._make(row) for row in rows]


async def holdings(database: Database, account_id: str, now: int) -> Holdings:
    """Return how much an account owns at `now` (epoch milliseconds)."""
    keys, sessions = tables.api_keys, tables.sessions
    user_ids = select(_users.c.id).where(_users.c.account_id == account_id)
    valid = (keys.c.expires_at.is_(None) | (keys.c.expires_at > now)) & keys.c.revoked_at.is_(None)
    counts = (
        _count(tables.machines).where(tables.machines.c.account_id == account_id),
        _count(keys).where(keys.c.account_id == account_id, valid),
        _count(tables.webhooks).where(tables.webhooks.c.account_id == account_id),
        _count(sessions).where(sessions.c.user_id.in_(user_ids), sessions.c.expires_at > now),
    )
    async with database.read() as connection:
        return Holdings(*[int(await connection.scalar(count)) for count in counts])


async def set_plan(database: Database, account_id: str, plan: PlanName, now: int) -> None:
    """Change an account's plan; every node applies it within seconds."""
    async with database.begin() as transaction:
        await transaction.execute(
            update(_accounts).where(_accounts.c.id == account_id).values(plan=plan)
        )
        await account_changes.note(transaction, account_id, now)


async def remove(database: Database, account_id: str, now: int) -> None:
    """Delete an account with everything that it owns; its audit records stay.

    One transaction deletes everything that gives access and records the change for the nodes. The
    history follows in batches, so that other writers never wait long, then the account itself. Call
    it again after an interruption: every step is idempotent, and the account row goes last.
    """
    await _remove_access(database, account_id, now)
    for webhook in await webhooks.of_account(database, account_id):
        await webhooks.remove(database, account_id, webhook.id)
    await _remove_events(database, account_id)
    async with database.begin() as transaction:
        await transaction.execute(delete(_accounts).where(_accounts.c.id == account_id))
        await account_changes.note(transaction, account_id, now)


async def _remove_access(database: Database, account_id: str, now: int) -> None:
    users = select(_users.c.id).where(_users.c.account_id == account_id)
    keys = select(tables.api_keys.c.id).where(tables.api_keys.c.account_id == account_id)
    responses = tables.idempotency_keys
    async with database.begin() as transaction:
        # Nodes update these rows while they serve. Lock them in the same order as the nodes do
        # (by id), so that the two transactions cannot deadlock.
        for table, condition in (
            (tables.sessions, tables.sessions.c.user_id.in_(users)),
            (tables.api_keys, tables.api_keys.c.account_id == account_id),
            (tables.machines, tables.machines.c.account_id == account_id),
        ):
            locked = select(table.c.id).where(condition).order_by(table.c.id).with_for_update()
            await transaction.execute(locked)
        await transaction.execute(
            delete(responses).where(
                responses.c.principal.in_(users) | responses.c.principal.in_(keys)
            )
        )
        for table in (tables.sessions, tables.password_resets, tables.known_addresses):
            await transaction.execute(delete(table).where(table.c.user_id.in_(users)))
        for table in (
            tables.api_keys,
            tables.enrollment_codes,
            tables.device_codes,
            tables.machines,
        ):
            await transaction.execute(delete(table).where(table.c.account_id == account_id))
        await transaction.execute(
            update(_users).where(_users.c.account_id == account_id).values(password_hash=None)
        )
        hooks = tables.webhooks
        # Not FOR UPDATE: that would wait for event intake, which refers to webhooks (and so locks
        # their keys) before it updates machines.
        locked = select(hooks.c.id).where(hooks.c.account_id == account_id).order_by(hooks.c.id)
        await transaction.execute(locked.with_for_update(key_share=True))
        await transaction.execute(
            update(hooks).where(hooks.c.account_id == account_id).values(active=False)
        )
        await account_changes.note(transaction, account_id, now)


async def _remove_events(database: Database, account_id: str) -> None:
    events, last = tables.events, ""
    while True:
        # Continue after the last id: without an index by account, each batch would otherwise
        # scan the table from its start.
        batch = (
            select(events.c.id)
            .where(events.c.account_id == account_id, events.c.id > last)
            .order_by(events.c.id)
            .limit(_DELETE_BATCH)
        )
        async with database.begin() as transaction:
            ids = list(await transaction.scalars(batch))
            if not ids:
                return
            await transaction.execute(delete(events).where(events.c.id.in_(ids)))
        last = ids[-1]


def _count(table: Table) -> Select[Any]:
    return select(func.count()).select_from(table)
