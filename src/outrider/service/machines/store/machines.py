"""Machines: their owner, connection token and last state.

`node` is the node that is responsible for a connected machine: it has the machine's socket, or
waits for the end of its grace period. `connection` counts the machine's connections. Together they
order concurrent writes of several nodes: only the responsible node saves a machine's state, and
only the newest connection may disconnect it.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from sqlalchemy import bindparam, delete, insert, null, or_, select, update

from outrider.service.batched import batched
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_RECLAIMED_AT_ONCE = 500
_machines = tables.machines
_codes = tables.enrollment_codes


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
    connection: int


class Enrollment(NamedTuple):
    """The account and the nickname that a one-time code was created for."""

    account_id: str
    nickname: str | None


class Arrival(NamedTuple):
    """A machine that has sent its hello, with the hash of its token and what it reported.

    `connection` is the number of its newest connection when this one was known to be alive.
    `values` has `connected_at`, `last_seen_at`, `hostname`, `platform`, `version`, `snapshot`.
    """

    machine_id: str
    token_hash: bytes
    connection: int
    values: Mapping[str, object]


class AttachedMachine(NamedTuple):
    """A machine that has been assigned to a node.

    `connection` is higher than the number of every earlier connection. `was_connected` is whether
    the machine was connected or in its grace period before.
    """

    id: str
    nickname: str
    event_seq: int
    connection: int
    was_connected: bool


class AttachFailure(Enum):
    """Why a machine has not been assigned to a node."""

    TOKEN_INVALID = auto()
    SUPERSEDED = auto()
    """Another node has stored a connection since the handshake, which may be the newer one."""


_COLUMNS = [_machines.c[name] for name in Machine._fields]


async def by_id(database: Database, machine_id: str) -> Machine | None:
    """Return the machine with this id, of any account."""
    query = select(*_COLUMNS).where(_machines.c.id == machine_id)
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else Machine(*row)


async def node_of(database: Database, machine_id: str) -> str | None:
    """Return the node that is responsible for a connected machine; None if there is none."""
    query = select(_machines.c.node).where(_machines.c.id == machine_id, _machines.c.connected)
    async with database.read() as connection:
        node = await connection.scalar(query)
        return None if node is None else str(node)


async def by_token(database: Database, digest: bytes) -> Machine | None:
    """Return the machine of a connection token, without its snapshot."""
    columns = [null() if c is _machines.c.snapshot else c for c in _COLUMNS]
    query = select(*columns).where(_machines.c.token_hash == digest)
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else Machine(*row)


async def existing(database: Database, machine_ids: Sequence[str]) -> set[str]:
    """Return the ids of these machines that have not been deleted."""
    query = select(_machines.c.id).where(_machines.c.id.in_(machine_ids))
    async with database.read() as connection:
        return set(await connection.scalars(query))


async def connected(database: Database, account_id: str) -> list[Machine]:
    """Return the account's machines that are connected or in their grace period."""
    query = select(*_COLUMNS).where(_machines.c.connected, _machines.c.account_id == account_id)
    async with database.read() as connection:
        return [Machine(*row) for row in await connection.execute(query)]


async def of_account(database: Database, account_id: str) -> list[Machine]:
    """Return every machine of the account."""
    query = select(*_COLUMNS).where(_machines.c.account_id == account_id)
    async with database.read() as connection:
        return [Machine(*row) for row in await connection.execute(query)]


async def attach(
    transaction: Transaction, node: str, arrival: Arrival
) -> AttachedMachine | AttachFailure:
    """Assign a machine to the node that has its socket, and save what it reported.

    Connections are numbered in the order in which they are stored. If a hello is stored late, its
    machine may have given up and connected elsewhere: the late one must not become the newest. So
    a connection is superseded if another node has stored one since its handshake. On one node,
    connections are stored in the order of their hellos.

    Returns:
        The state of the machine, or why it is not attached.
    """
    this = _machines.c.id == arrival.machine_id
    query = select(
        _machines.c.token_hash,
        _machines.c.nickname,
        _machines.c.event_seq,
        _machines.c.connection,
        _machines.c.connected,
        _machines.c.node,
    )
    # Locked until the commit: of two nodes that attach the machine at once, the later one sees the
    # number of the earlier one.
    row = (await transaction.execute(query.where(this).with_for_update())).first()
    if row is None or row.token_hash != arrival.token_hash:
        return AttachFailure.TOKEN_INVALID
    if row.connection > arrival.connection and row.node != node:
        return AttachFailure.SUPERSEDED
    number = row.connection + 1
    values = {**arrival.values, "connected": True, "node": node, "connection": number}
    await transaction.execute(update(_machines).where(this).values(values))
    return AttachedMachine(
        id=arrival.machine_id,
        nickname=row.nickname,
        event_seq=row.event_seq,
        connection=number,
        was_connected=row.connected,
    )


async def detach(
    transaction: Transaction,
    machine_id: str,
    values: Mapping[str, object],
    *,
    node: str | None,
    connection: int | None,
) -> bool:
    """Mark the machine as offline and save these values; return whether it was connected.

    Args:
        node: if set, only while this node is responsible for the machine.
        connection: if set, only while this is the machine's newest connection.
    """
    statement = update(_machines).where(_machines.c.id == machine_id, _machines.c.connected)
    if node is not None:
        statement = statement.where(_machines.c.node == node)
    if connection is not None:
        statement = statement.where(_machines.c.connection == connection)
    result = await transaction.execute(statement.values(**values, connected=False, node=None))
    return result.rowcount > 0


async def take_over(database: Database, node: str) -> list[Machine]:
    """Make a node responsible for connected machines whose node no longer exists; return them."""
    orphaned = or_(_machines.c.node.is_(None), _machines.c.node.not_in(select(tables.nodes.c.id)))
    statement = (
        update(_machines)
        .where(_machines.c.connected, orphaned)
        .values(node=node)
        .returning(*_COLUMNS)
    )
    async with database.begin() as connection:
        return [Machine(*row) for row in await connection.execute(statement)]


async def reclaim(database: Database, node: str, connections: Mapping[str, int]) -> set[str]:
    """Make a node responsible for its machines again; return those that are still connected here.

    A machine that has connected to another node since has a higher number, and is left to it.
    Idempotent: call it again after an interruption.

    Args:
        connections: the number of each machine's connection here, by machine id.
    """
    reclaimed: set[str] = set()
    for ids in batched(sorted(connections), _RECLAIMED_AT_ONCE):
        query = (
            select(_machines.c.id, _machines.c.connection)
            .where(_machines.c.id.in_(ids))
            .where(_machines.c.connected, _machines.c.token_hash.is_not(None))
            .order_by(_machines.c.id)  # the lock order of `attach`
            .with_for_update()
        )
        async with database.begin() as transaction:
            rows = await transaction.execute(query)
            here = {machine_id for machine_id, number in rows if number == connections[machine_id]}
            if here:
                await transaction.execute(
                    update(_machines).where(_machines.c.id.in_(here)).values(node=node)
                )
        reclaimed |= here
    return reclaimed


async def add_code(
    database: Database, *, digest: bytes, enrollment: Enrollment, now: int, expires_at: int
) -> None:
    """Add a one-time code, and delete those that have expired."""
    async with database.begin() as connection:
        await connection.execute(delete(_codes).where(_codes.c.expires_at <= now))
        await connection.execute(
            insert(_codes).values(
                hash=digest,
                account_id=enrollment.account_id,
                nickname=enrollment.nickname,
                created_at=now,
                expires_at=expires_at,
            )
        )


async def take_code(database: Database, digest: bytes, now: int) -> Enrollment | None:
    """Delete a one-time code and return its enrollment; None if it is invalid or has expired."""
    statement = (
        delete(_codes)
        .where(_codes.c.hash == digest, _codes.c.expires_at > now)
        .returning(_codes.c.account_id, _codes.c.nickname)
    )
    async with database.begin() as connection:
        row = (await connection.execute(statement)).first()
    return None if row is None else Enrollment(*row)


async def enroll(
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


async def enroll_again(
    database: Database, machine_id: str, account_id: str, *, nickname: str | None, token_hash: bytes
) -> str | None:
    """Replace a machine's token; return its nickname, None if the account has no such machine."""
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
        name = await connection.scalar(statement)
        return None if name is None else str(name)


async def revoke_token(database: Database, machine_id: str) -> None:
    """Make the machine's token invalid."""
    statement = update(_machines).where(_machines.c.id == machine_id).values(token_hash=None)
    async with database.begin() as connection:
        await connection.execute(statement)


async def save_snapshots(
    database: Database, node: str, snapshots: Mapping[str, tuple[bytes, int | None]]
) -> None:
    """Save the newest snapshot and last-seen time of a node's machines, by id.

    Machines that another node has taken over are skipped.
    """
    statement = (
        update(_machines)
        .where(_machines.c.id == bindparam("machine"), _machines.c.node == node)
        .values(snapshot=bindparam("data"), last_seen_at=bindparam("seen"))
    )
    # Sorted: nodes that update the same rows lock them in one order and cannot deadlock.
    rows = [
        {"machine": machine, "data": data, "seen": seen}
        for machine, (data, seen) in sorted(snapshots.items())
    ]
    async with database.begin() as connection:
        await connection.execute(statement, rows)
