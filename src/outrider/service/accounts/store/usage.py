"""Monthly usage: the API calls that an account has made, or that nodes have reserved for it."""

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.database import tables
from outrider.service.database.engine import Database

_usage = tables.usage


def account_deleted() -> ApiError:
    """Return the error for requests of an account that has just been deleted."""
    return ApiError(401, "This account has been deleted", code=ErrorCode.AUTH_INVALID)


async def plan_of(database: Database, account_id: str) -> str:
    """Return the account's plan.

    Raises:
        ApiError: 401, the account has been deleted.
    """
    query = select(tables.accounts.c.plan).where(tables.accounts.c.id == account_id)
    async with database.read() as connection:
        plan = await connection.scalar(query)
    if plan is None:
        raise account_deleted()
    return str(plan)


async def calls(database: Database, account_id: str, month: str) -> int:
    """Return the calls of a month (`YYYY-MM`), including reserved ones."""
    query = select(_usage.c.calls).where(_usage.c.account_id == account_id, _usage.c.month == month)
    async with database.read() as connection:
        return int(await connection.scalar(query) or 0)


async def set_aside(
    database: Database, account_id: str, month: str, limit: int | None, *, most: int
) -> int:
    """Reserve calls of the month: one percent of the rest, at least one, at most `most`.

    The row lock serializes concurrent reservations, so that they never exceed `limit` together.

    Returns:
        How many were reserved; 0 if none are left.

    Raises:
        ApiError: 401, the account has been deleted.
    """
    row = {"account_id": account_id, "month": month, "calls": 0}
    async with database.begin() as connection:
        try:
            insert = connection.insert(_usage).values(row)
            await connection.execute(insert.on_conflict_do_nothing())
        except IntegrityError as error:
            raise account_deleted() from error
        is_row = (_usage.c.account_id == account_id) & (_usage.c.month == month)
        used = int(
            await connection.scalar(select(_usage.c.calls).where(is_row).with_for_update()) or 0
        )
        left = None if limit is None else max(0, limit - used)
        granted = most if left is None else min(most, left, max(1, left // 100))
        if granted:
            await connection.execute(
                update(_usage).where(is_row).values(calls=_usage.c.calls + granted)
            )
        return granted


async def give_back(database: Database, account_id: str, month: str, calls: int) -> None:
    """Give back reserved calls that were not used."""
    is_row = (_usage.c.account_id == account_id) & (_usage.c.month == month)
    async with database.begin() as connection:
        await connection.execute(update(_usage).where(is_row).values(calls=_usage.c.calls - calls))
