"""Users: the people who log in, their passwords, and where they have logged in from."""

from typing import Final, NamedTuple

from sqlalchemy import delete, insert, select, update

from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_users = tables.users
_sessions = tables.sessions
_known = tables.known_addresses
_resets = tables.password_resets

_KNOWN_ADDRESSES: Final = 100
"""How many known addresses are stored for a user: the most recent ones."""


class User(NamedTuple):
    """A person who may log in."""

    id: str
    account_id: str
    email: str
    password_hash: str | None


_USER = [_users.c[name] for name in User._fields]


async def by_email(database: Database, email: str) -> User | None:
    """Return the user with this email."""
    return await _one(database, _users.c.email == email.strip().lower())


async def by_id(database: Database, user_id: str) -> User | None:
    """Return the user with this id."""
    return await _one(database, _users.c.id == user_id)


async def has_password(transaction: Transaction, user: User) -> bool:
    """Return whether the password is still that of `user`; locks it until the transaction ends."""
    query = select(_users.c.password_hash).where(_users.c.id == user.id).with_for_update()
    row = (await transaction.execute(query)).first()
    return row is not None and row[0] == user.password_hash


async def knows_address(database: Database, email: str, address: str, since: int) -> bool:
    """Return whether the user with this email has logged in from an address since a time."""
    query = (
        select(_known.c.user_id)
        .join(_users, _users.c.id == _known.c.user_id)
        .where(_users.c.email == email.strip().lower())
        .where(_known.c.address == address, _known.c.seen_at >= since)
    )
    async with database.read() as connection:
        return await connection.scalar(query) is not None


async def remember_address(transaction: Transaction, user_id: str, address: str, now: int) -> None:
    """Add an address to the user's known ones; keep the newest `_KNOWN_ADDRESSES`."""
    is_own = _known.c.user_id == user_id
    await transaction.execute(delete(_known).where(is_own, _known.c.address == address))
    newest = (
        select(_known.c.address)
        .where(is_own)
        .order_by(_known.c.seen_at.desc())
        .limit(_KNOWN_ADDRESSES - 1)
    )
    await transaction.execute(delete(_known).where(is_own, _known.c.address.not_in(newest)))
    row = {"user_id": user_id, "address": address, "seen_at": now}
    await transaction.execute(insert(_known).values(row))


async def end_sessions(transaction: Transaction, user_id: str, *, but: str | None) -> int:
    """End the user's sessions except `but`; return how many."""
    own = select(_sessions.c.id).where(_sessions.c.user_id == user_id)
    if but is not None:
        own = own.where(_sessions.c.id != but)
    # Lock in the same order as `dashboard_sessions.touch` does, so that the two cannot deadlock.
    ordered = own.order_by(_sessions.c.id).with_for_update()
    return (
        await transaction.execute(delete(_sessions).where(_sessions.c.id.in_(ordered)))
    ).rowcount


async def change_password(
    database: Database,
    user: User,
    password_hash: str,
    *,
    now: int,
    keep_session: str,
    address: str | None,
) -> bool:
    """Replace the password of `user`, and end all of the user's sessions but one.

    The user's password links are deleted, and the known addresses except `address`.

    Returns:
        False, with nothing changed, if the password is no longer that of `user`.
    """
    async with database.begin() as transaction:
        if not await has_password(transaction, user):
            return False
        await _set(transaction, user.id, password_hash, keep_session=keep_session)
        if address is not None:
            await remember_address(transaction, user.id, address, now)
        return True


async def set_password(database: Database, user_id: str, password_hash: str) -> int:
    """Set a user's password without checking the old one; return how many sessions ended.

    Ends every session, and deletes all password links and known addresses.
    """
    async with database.begin() as transaction:
        return await _set(transaction, user_id, password_hash, keep_session=None)


async def add_reset(
    database: Database, user_id: str, digest: bytes, *, now: int, expires_at: int
) -> None:
    """Store the hash of a password link, and delete the user's older one."""
    row = {"user_id": user_id, "hash": digest, "created_at": now, "expires_at": expires_at}
    async with database.begin() as transaction:
        await transaction.execute(delete(_resets).where(_resets.c.user_id == user_id))
        await transaction.execute(insert(_resets).values(row))


async def by_reset(database: Database, digest: bytes, now: int) -> User | None:
    """Return the user of a password link; None if the link is not valid."""
    query = (
        select(*_USER)
        .join(_resets, _resets.c.user_id == _users.c.id)
        .where(_resets.c.hash == digest, _resets.c.expires_at > now)
    )
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else User(*row)


async def use_reset(
    database: Database, digest: bytes, password_hash: str, *, now: int, address: str | None
) -> bool:
    """Delete a password link, set the password, end every session, add the known address.

    Of concurrent calls with one link exactly one succeeds.

    Returns:
        False if the link does not exist, has been used, or has expired.
    """
    statement = (
        delete(_resets)
        .where(_resets.c.hash == digest, _resets.c.expires_at > now)
        .returning(_resets.c.user_id)
    )
    async with database.begin() as transaction:
        user_id = await transaction.scalar(statement)
        if user_id is None:
            return False
        await _set(transaction, user_id, password_hash, keep_session=None)
        if address is not None:
            await remember_address(transaction, user_id, address, now)
        return True


async def _set(
    transaction: Transaction, user_id: str, password_hash: str, *, keep_session: str | None
) -> int:
    await transaction.execute(
        update(_users).where(_users.c.id == user_id).values(password_hash=password_hash)
    )
    await transaction.execute(delete(_resets).where(_resets.c.user_id == user_id))
    await transaction.execute(delete(_known).where(_known.c.user_id == user_id))
    return await end_sessions(transaction, user_id, but=keep_session)


async def _one(database: Database, condition: object) -> User | None:
    async with database.read() as connection:
        query = select(*_USER).where(condition)  # type: ignore[arg-type]
        row = (await connection.execute(query)).first()
    return None if row is None else User(*row)
