"""Device codes (RFC 8628): machines that wait for a user's approval."""

from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, insert, select, update

from outrider.service.database import tables
from outrider.service.database.engine import Database

_codes = tables.device_codes


class Device(NamedTuple):
    """A waiting machine. `machine` is the JSON of its `contract.enrollment.MachineInfo`.

    `address` is the address of its request; None if a node of an older release served it.
    """

    machine: bytes
    expires_at: int
    polled_at: int
    account_id: str | None
    denied: bool
    created_at: int
    address: str | None


_COLUMNS = [_codes.c[name] for name in Device._fields]


async def add(
    database: Database,
    *,
    digest: bytes,
    user_code_digest: bytes,
    machine: bytes,
    address: str | None,
    now: int,
    expires_at: int,
) -> None:
    """Add a device code, and delete those that expired over an hour ago."""
    async with database.begin() as connection:
        await connection.execute(delete(_codes).where(_codes.c.expires_at <= now - 3_600_000))
        await connection.execute(
            insert(_codes).values(
                hash=digest,
                user_code_hash=user_code_digest,
                machine=machine,
                created_at=now,
                expires_at=expires_at,
                polled_at=0,
                denied=False,
                address=address,
            )
        )


async def exists(database: Database, digest: bytes) -> bool:
    """Return whether the device code exists."""
    query = select(_codes.c.hash).where(_codes.c.hash == digest)
    async with database.read() as connection:
        return await connection.scalar(query) is not None


async def polled(database: Database, digest: bytes, now: int) -> Device | None:
    """Record a poll; return the device with the time of the poll before, None if unknown."""
    async with database.begin() as connection:
        query = select(*_COLUMNS).where(_codes.c.hash == digest).with_for_update()
        row = (await connection.execute(query)).first()
        if row is None:
            return None
        await connection.execute(
            update(_codes).where(_codes.c.hash == digest).values(polled_at=now)
        )
        return Device(*row)


async def waiting(database: Database, user_code_digest: bytes, now: int) -> Device | None:
    """Return the device with this user code while it waits for a decision."""
    query = select(*_COLUMNS).where(_undecided(user_code_digest, now))
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else Device(*row)


async def decide(
    database: Database, user_code_digest: bytes, now: int, *, account_id: str | None
) -> bool:
    """Approve a device for an account, or deny it (None); return whether it was waiting."""
    statement = (
        update(_codes)
        .where(_undecided(user_code_digest, now))
        .values(account_id=account_id, denied=account_id is None)
    )
    async with database.begin() as connection:
        return (await connection.execute(statement)).rowcount == 1


async def take(database: Database, digest: bytes) -> bool:
    """Delete a device code; of concurrent calls, True for exactly one."""
    async with database.begin() as connection:
        return (
            await connection.execute(delete(_codes).where(_codes.c.hash == digest))
        ).rowcount == 1


def _undecided(user_code_digest: bytes, now: int) -> ColumnElement[bool]:
    return and_(
        _codes.c.user_code_hash == user_code_digest,
        _codes.c.expires_at > now,
        _codes.c.account_id.is_(None),
        _codes.c.denied.is_(False),
    )
