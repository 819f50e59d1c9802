"""Machines: who owns them, what opens their socket, and their last state."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import bindparam, delete, insert, select, update

from outrider.cloud.store import tables
from outrider.cloud.store.database import Database

_machines = tables.machines
_codes = tables.enrolment_codes


class Machine(NamedTuple):
    """A registered machine. `snapshot` is the JSON of its newest `contract.frames.Snapshot`."""

    id: str
    account_id: str
    nickname: str
    hostname: str
    platform: str
    version: str
    connected: bool
    connected_at: int | None
    last_seen_at: int | None
    snapshot: bytes | None
    event_seq: int


class Enrolment(NamedTuple):
    """Who is enrolled: the account and the nickname that the code was made for."""

    account_id: str
    nickname: str | None


_COLUMNS = [_machines.c[name] for name in Machine._fields]


async def by_id(database: Database, machine_id: str) -> Machine | None:
    """Return the machine with this id, whoever owns it."""
    return await _one(database, _machines.c.id == machine_id)


async def by_token(database: Database, digest: bytes) -> Machine | None:
    """Return the machine that this connection token opens."""
    return await _one(database, _machines.c.token_hash == digest)


async def connected(database: Database) -> list[Machine]:
    """Return the machines that were connected, or in their grace period, when last heard of."""
    async with database.read() as connection:
        rows = await connection.execute(select(*_COLUMNS).where(_machines.c.connected))
        return [Machine(*row) for row in rows]


async def add_code(
    database: Database, *, digest: bytes, enrolment: Enrolment, now: int, expires_at: int
) -> None:
    """Add a one-time code, and forget those that have expired."""
    async with database.begin() as connection:
        await connection.execute(delete(_codes).where(_codes.c.expires_at <= now))
        await connection.execute(
            insert(_codes).values(
                hash=digest,
                account_id=enrolment.account_id,
                nickname=enrolment.nickname,
                created_at=now,
                expires_at=expires_at,
            )
        )


async def take_code(database: Database, digest: bytes, now: int) -> Enrolment | None:
    """Use a one-time code up; None where it does not exist, has been used, or has expired."""
    statement = (
        delete(_codes)
        .where(_codes.c.hash == digest, _codes.c.expires_at > now)
        .returning(_codes.c.account_id, _codes.c.nickname)
    )
    async with database.begin() as connection:
        row = (await connection.execute(statement)).first()
    return None if row is None else Enrolment(*row)


async def enrol(
    database: Database,
    *,
    machine_id: str,
    account_id: str,
    nickname: str,
    hostname: str,
    platform: str,
    version: str,
    token_hash: bytes,
    now: int,
) -> None:
    """Register a machine."""
    async with database.begin() as connection:
        await connection.execute(
            insert(_machines).values(
                id=machine_id,
                account_id=account_id,
                nickname=nickname,
                hostname=hostname,
                platform=platform,
                version=version,
                token_hash=token_hash,
                created_at=now,
                connected=False,
            )
        )


async def enrol_again(
    database: Database, machine_id: str, account_id: str, *, nickname: str | None, token_hash: bytes
) -> str | None:
    """Replace a machine's token; return its nickname, None where the account has none such."""
    values: dict[str, object] = {"token_hash": token_hash}
    if nickname is not None:
        values["nickname"] = nickname
    statement = (
        update(_machines)
        .where(_machines.c.id == machine_id, _machines.c.account_id == account_id)
        .values(values)
        .returning(_machines.c.nickname)
    )
    async with database.begin() as connection:
        found = await connection.scalar(statement)
        return None if found is None else str(found)


async def revoke_token(database: Database, machine_id: str) -> None:
    """Make the machine's token worthless."""
    statement = update(_machines).where(_machines.c.id == machine_id).values(token_hash=None)
    async with database.begin() as connection:
        await connection.execute(statement)


async def save(database: Database, machine_id: str, values: Mapping[str, object]) -> None:
    """Save what has changed of a machine."""
    statement = update(_machines).where(_machines.c.id == machine_id).values(**values)
    async with database.begin() as connection:
        await connection.execute(statement)


async def save_snapshots(
    database: Database, snapshots: Mapping[str, tuple[bytes, int | None]]
) -> None:
    """Save the newest snapshot and last-seen time of many machines, by their ids."""
    statement = (
        update(_machines)
        .where(_machines.c.id == bindparam("machine"))
        .values(snapshot=bindparam("data"), last_seen_at=bindparam("seen"))
    )
    rows = [
        {"machine": machine, "data": data, "seen": seen}
        for machine, (data, seen) in snapshots.items()
    ]
    async with database.begin() as connection:
        await connection.execute(statement, rows)


async def _one(database: Database, condition: object) -> Machine | None:
    async with database.read() as connection:
        query = select(*_COLUMNS).where(condition)  # type: ignore[arg-type]
        row = (await connection.execute(query)).first()
    return None if row is None else Machine(*row)
