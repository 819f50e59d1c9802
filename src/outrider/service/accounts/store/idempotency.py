"""Idempotency keys: the requests made with them, and their responses."""

from typing import NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from outrider.service.database import tables
from outrider.service.database.engine import Database

_keys = tables.idempotency_keys


class KeyedRequest(NamedTuple):
    """A request made with a key; while it is in progress, `status` and `response` are None."""

    fingerprint: bytes
    status: int | None
    response: bytes | None


async def begin(
    database: Database, principal: str, key: str, fingerprint: bytes, *, now: int, expired: int
) -> KeyedRequest | None:
    """Reserve the key for a request and return None; or return the request that has it.

    The primary key decides between concurrent requests: exactly one insert succeeds.

    Args:
        expired: a key reserved before this time (epoch milliseconds) is free again.
    """
    is_key = (_keys.c.principal == principal) & (_keys.c.key == key)
    try:
        async with database.begin() as connection:
            await connection.execute(delete(_keys).where(is_key, _keys.c.created_at < expired))
            await connection.execute(
                insert(_keys).values(
                    principal=principal, key=key, fingerprint=fingerprint, created_at=now
                )
            )
            return None
    except IntegrityError:
        query = select(*(_keys.c[name] for name in KeyedRequest._fields)).where(is_key)
        async with database.read() as connection:
            row = (await connection.execute(query)).first()
        # The key was released between the two statements. Report it as in progress: the
        # caller answers 409, and the client's retry gets the key.
        return KeyedRequest(fingerprint, None, None) if row is None else KeyedRequest._make(row)


async def finish(
    database: Database, principal: str, key: str, status: int, response: bytes
) -> None:
    """Store the response."""
    async with database.begin() as connection:
        await connection.execute(
            update(_keys)
            .where(_keys.c.principal == principal, _keys.c.key == key)
            .values(status=status, response=response)
        )


async def release(database: Database, principal: str, key: str) -> None:
    """Free the key: its request had no effect."""
    async with database.begin() as connection:
        await connection.execute(
            delete(_keys).where(_keys.c.principal == principal, _keys.c.key == key)
        )


async def prune(database: Database, before: int) -> None:
    """Delete the keys reserved before `before` (epoch milliseconds)."""
    async with database.begin() as connection:
        await connection.execute(delete(_keys).where(_keys.c.created_at < before))
