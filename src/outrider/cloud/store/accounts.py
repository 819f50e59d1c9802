"""Accounts and their users."""

from typing import Literal

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from outrider.cloud.store import tables
from outrider.cloud.store.database import Database
from outrider.contract.errors import OutriderError

Plan = Literal["free", "pro", "team", "enterprise"]


class EmailTaken(OutriderError):
    """An account with this email exists already."""


async def create(
    database: Database,
    *,
    account_id: str,
    user_id: str,
    email: str,
    plan: Plan,
    password_hash: str | None,
    now: int,
) -> None:
    """Make an account with its first user.

    Raises:
        EmailTaken: a user has this email.
    """
    try:
        async with database.begin() as connection:
            await connection.execute(
                insert(tables.accounts).values(id=account_id, plan=plan, created_at=now)
            )
            await connection.execute(
                insert(tables.users).values(
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
    """Return the id of the account that has this id, or a user with this email."""
    async with database.read() as connection:
        by_id = select(tables.accounts.c.id).where(tables.accounts.c.id == account)
        by_email = select(tables.users.c.account_id).where(
            tables.users.c.email == account.strip().lower()
        )
        found = await connection.scalar(by_id) or await connection.scalar(by_email)
        return None if found is None else str(found)
