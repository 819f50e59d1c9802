"""Idempotency keys: which requests were made, and what was answered."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from outrider.cloud.store import tables
from outrider.cloud.store.database import Database

_keys = tables.idempotency_keys


class Stored(NamedTuple):
    """A request made under a key; without a status it is under way."""

    fingerprint: bytes
    status: int | None
    response: bytes | None


async def begin(
    database: Database, principal: str, key: str, fingerprint: bytes, *, now: int, expired: int
) -> Stored | None:
    """Take the key for a request and return None; or return the one that has it.

    Args:
        expired: a key taken before this time is free again.
    """
    this = (_keys.c.principal == principal) & (_keys.c.key == key)
    try:
        async with database.begin() as connection:
            await connection.execute(delete(_keys).where(this, _keys.c.created_at < expired))
            await connection.execute(
                insert(_keys).values(
                    principal=principal, key=key, fingerprint=fingerprint, created_at=now
                )
            )
            return None
    except IntegrityError:
        query = select(*(_keys.c[name] for name in Stored._fields)).where(this)
        async with database.read() as connection:
            row = (await connection.execute(query)).first()
        # It was released between the two statements: as good as under way for this request.
        return Stored(fingerprint, None, None) if row is None else Stored._make(row)


async def finish(
    database: Database, principal: str, key: str, status: int, response: bytes
) -> None:
    """Store the answer."""
    async with database.begin() as connection:
        await connection.execute(
            update(_keys)
            .where(_keys.c.principal == principal, _keys.c.key == key)
            .values(status=status, response=response)
        )


async def release(database: Database, principal: str, key: str) -> None:
    """Free the key: nothing was done under it."""
    async with database.begin() as connection:
        await connection.execute(
            delete(_keys).where(_keys.c.principal == principal, _keys.c.key == key)
        )


async def prune(database: Database, before: int) -> None:
    """Delete the keys taken before `before` (epoch milliseconds)."""
    async with database.begin() as connection:
        await connection.execute(delete(_keys).where(_keys.c.created_at < before))
