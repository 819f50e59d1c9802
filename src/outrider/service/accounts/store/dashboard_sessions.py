"""Dashboard sessions."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import bindparam, delete, insert, select, update

from outrider.service.accounts.store import users
from outrider.service.accounts.store.users import User
from outrider.service.database import tables
from outrider.service.database.engine import Database

_sessions = tables.sessions


class DashboardSession(NamedTuple):
    """A session that has not ended. Times are epoch milliseconds.

    `address` and `user_agent` are those of the login. They and `last_seen_at` are None if a node of
    an older release started the session.
    """

    id: str
    created_at: int
    expires_at: int
    last_seen_at: int | None
    address: str | None
    user_agent: str | None


class Origin(NamedTuple):
    """The origin of a login: its address, that address's network (`network_of`), the user agent."""

    address: str
    network: str
    user_agent: str | None


_SESSION = [_sessions.c[name] for name in DashboardSession._fields]


async def begin(
    database: Database,
    *,
    session_id: str,
    user: User,
    now: int,
    expires_at: int,
    origin: Origin | None,
) -> bool:
    """Add a session, record its address as known, and delete expired sessions.

    Returns:
        False if the user's password is no longer that of `user`, because it was changed after it
        was checked. The row lock on the user keeps a concurrent change out until the commit.
    """
    async with database.begin() as connection:
        if not await users.has_password(connection, user):
            return False
        # Skip rows that another transaction is deleting, so that the two cannot deadlock.
        expired = select(_sessions.c.id).where(_sessions.c.expires_at <= now)
        await connection.execute(
            delete(_sessions).where(_sessions.c.id.in_(expired.with_for_update(skip_locked=True)))
        )
        await connection.execute(
            insert(_sessions).values(
                id=session_id,
                user_id=user.id,
                created_at=now,
                expires_at=expires_at,
                last_seen_at=now,
                address=None if origin is None else origin.address,
                user_agent=None if origin is None else origin.user_agent,
            )
        )
        if origin is not None:
            await users.remember_address(connection, user.id, origin.network, now)
        return True


async def is_active(database: Database, session_id: str, now: int) -> bool:
    """Return whether a session has neither expired nor been ended."""
    query = select(_sessions.c.id).where(_sessions.c.id == session_id, _sessions.c.expires_at > now)
    async with database.read() as connection:
        return await connection.scalar(query) is not None


async def living(database: Database, session_ids: Collection[str], now: int) -> set[str]:
    """Return which of these sessions have neither expired nor been ended."""
    query = select(_sessions.c.id).where(
        _sessions.c.id.in_(session_ids), _sessions.c.expires_at > now
    )
    async with database.read() as connection:
        return set(await connection.scalars(query))


async def of_user(database: Database, user_id: str, now: int) -> list[DashboardSession]:
    """Return the user's sessions, newest first."""
    query = (
        select(*_SESSION)
        .where(_sessions.c.user_id == user_id, _sessions.c.expires_at > now)
        .order_by(_sessions.c.id.desc())
    )
    async with database.read() as connection:
        return [DashboardSession._make(row) for row in await connection.execute(query)]


async def touch(database: Database, seen: Mapping[str, int]) -> None:
    """Save when sessions were last seen, by id."""
    statement = (
        update(_sessions)
        .where(_sessions.c.id == bindparam("session"))
        .values(last_seen_at=bindparam("at"))
    )
    # Sorted: nodes that update the same rows lock them in one order and cannot deadlock.
    rows = [{"session": session, "at": at} for session, at in sorted(seen.items())]
    async with database.begin() as connection:
        await connection.execute(statement, rows)


async def end(database: Database, session_id: str) -> None:
    """End a session."""
    async with database.begin() as connection:
        await connection.execute(delete(_sessions).where(_sessions.c.id == session_id))


async def end_of_user(database: Database, user_id: str, session_id: str) -> bool:
    """End a session of the user; return whether the user had it."""
    statement = delete(_sessions).where(
        _sessions.c.id == session_id, _sessions.c.user_id == user_id
    )
    async with database.begin() as connection:
        return (await connection.execute(statement)).rowcount == 1


async def end_all(database: Database, user_id: str, *, but: str | None = None) -> int:
    """End the user's sessions except `but`; return how many."""
    async with database.begin() as transaction:
        return await users.end_sessions(transaction, user_id, but=but)


async def count_attempt(database: Database, session_id: str, most: int) -> int | None:
    """Count a password attempt of the session, before the password is checked.

    Counting first prevents concurrent attempts from all being checked before one is counted.

    Returns:
        The attempts since the last correct password; None if there were `most` already, or the
        session has ended.
    """
    statement = (
        update(_sessions)
        .where(_sessions.c.id == session_id, _sessions.c.failures < most)
        .values(failures=_sessions.c.failures + 1)
        .returning(_sessions.c.failures)
    )
    async with database.begin() as connection:
        count = await connection.scalar(statement)
        return None if count is None else int(count)


async def reset_attempts(database: Database, session_id: str) -> None:
    """Reset the session's count of password attempts after a correct one."""
    statement = update(_sessions).where(_sessions.c.id == session_id).values(failures=0)
    async with database.begin() as connection:
        await connection.execute(statement)
