"""Dashboard sessions, and the users who log in."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select

from outrider.cloud.store import tables
from outrider.cloud.store.database import Database

_sessions = tables.sessions
_users = tables.users


class User(NamedTuple):
    """A person who may log in."""

    id: str
    account_id: str
    email: str
    password_hash: str | None


_USER = [_users.c[name] for name in User._fields]


async def user_by_email(database: Database, email: str) -> User | None:
    """Return the user with this email."""
    return await _user(database, _users.c.email == email.strip().lower())


async def user_by_id(database: Database, user_id: str) -> User | None:
    """Return the user with this id."""
    return await _user(database, _users.c.id == user_id)


async def begin(
    database: Database, *, session_id: str, user_id: str, now: int, expires_at: int
) -> None:
    """Add a session, and forget those that have expired."""
    async with database.begin() as connection:
        await connection.execute(delete(_sessions).where(_sessions.c.expires_at <= now))
        await connection.execute(
            insert(_sessions).values(
                id=session_id, user_id=user_id, created_at=now, expires_at=expires_at
            )
        )


async def lives(database: Database, session_id: str, now: int) -> bool:
    """Tell whether a session has neither expired nor been ended."""
    query = select(_sessions.c.id).where(_sessions.c.id == session_id, _sessions.c.expires_at > now)
    async with database.read() as connection:
        return await connection.scalar(query) is not None


async def end(database: Database, session_id: str) -> None:
    """End a session."""
    async with database.begin() as connection:
        await connection.execute(delete(_sessions).where(_sessions.c.id == session_id))


async def _user(database: Database, condition: object) -> User | None:
    async with database.read() as connection:
        query = select(*_USER).where(condition)  # type: ignore[arg-type]
        row = (await connection.execute(query)).first()
    return None if row is None else User(*row)
