"""Events and their deliveries: the history and the queue.

A pending delivery is due at `next_attempt_at`. A node claims it by setting `claimed_until` (a
lease) and renews the lease while it works on it. If the node crashes, the lease expires and another
node claims the delivery, so an event is delivered at least once, sometimes twice.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Boolean, bindparam, delete, func, literal_column, select, update

from outrider.contract.sizes import count_within
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction
from outrider.service.events import log as event_log
from outrider.service.events.log import Event
from outrider.service.machines.store import session_history
from outrider.service.machines.store.session_history import OwnedSession
from outrider.service.webhooks.store import webhooks

_deliveries = tables.deliveries
_events = tables.events
_machines = tables.machines

PRUNE_BATCH = 500

CLAIM_BYTES = 4 * 1024 * 1024
"""Bytes of the bodies that are claimed at once; the last body may exceed them."""

_OVERHEAD = 1024
"""Bytes of a delivery beside its attempts, at most."""


class Delivery(NamedTuple):
    """A delivery. `attempts` is the JSON of its `contract.webhooks.Attempt` list."""

    id: str
    webhook_id: str
    event_id: str
    event: str
    status: str
    attempt: int
    attempts: bytes
    created_at: int
    completed_at: int | None
    next_attempt_at: int | None


_PENDING = _deliveries.c.status == literal_column("'pending'")
"""A literal: with a parameter SQLite would not use the partial index on pending deliveries."""

_FINISH = (
    update(_deliveries)
    .where(_deliveries.c.id == bindparam("delivery"), _deliveries.c.status != "succeeded")
    .where((_deliveries.c.attempt < bindparam("made")) | bindparam("is_final", type_=Boolean))
)
"""Store the result of an attempt, unless another node has stored a better one; see `finish`."""

_COLUMNS = [_deliveries.c[name] for name in Delivery._fields]

_SET_NEWEST = (
    update(_machines)
    .where(_machines.c.id == bindparam("machine"))
    .where(_machines.c.connection == bindparam("number"))
    .where(_machines.c.event_seq < bindparam("seq"))
    .values(event_seq=bindparam("seq"))
)


def _row(delivery: Delivery, claimed_until: int = 0) -> dict[str, object]:
    return delivery._asdict() | {"claimed_until": claimed_until}


def _due(claimed: tuple[Delivery, bytes]) -> int:
    return claimed[0].next_attempt_at or 0


async def store(
    database: Database,
    events: Sequence[Event],
    deliveries: Sequence[Delivery],
    newest: Mapping[str, tuple[int, int]],
    ended: Sequence[OwnedSession] = (),
) -> None:
    """Store events, deliveries, and the machines' newest event numbers in one transaction.

    An event that is stored already is skipped, with its deliveries.

    Args:
        newest: by machine id, the connection and the number of its newest event. The number is not
            stored if the machine has a newer connection: the event may be of a journal that has
            been lost since, and its number would stand for another event.
        ended: the sessions of `session:ended`.
    """
    async with database.begin() as transaction:
        if newest:  # before the accounts: see the order of locks in `event_log`
            await transaction.execute(
                _SET_NEWEST,
                [
                    {"machine": machine, "number": number, "seq": seq}
                    for machine, (number, seq) in sorted(newest.items())
                ],
            )
        await add(transaction, events, deliveries)
        await session_history.save(transaction, ended)


async def add(
    transaction: Transaction,
    events: Sequence[Event],
    deliveries: Sequence[Delivery],
) -> None:
    """Add events to the log, with their deliveries, which any node may claim."""
    # Another node may store the same event concurrently: only the node whose insert succeeds
    # adds the deliveries.
    new = await event_log.append(transaction, events)
    rows = [_row(delivery) for delivery in deliveries if delivery.event_id in new]
    await transaction.add(_deliveries, rows)


async def add_test(
    database: Database, event: Event, delivery: Delivery, claimed_until: int
) -> None:
    """Add the event of a webhook's test, outside the log, and its delivery."""
    async with database.begin() as transaction:
        await transaction.add(_events, [event._asdict()])
        await transaction.add(_deliveries, [_row(delivery, claimed_until)])


async def claim(
    database: Database, *, now: int, until: int, limit: int, without: Sequence[str]
) -> tuple[list[tuple[Delivery, bytes]], bool]:
    """Claim due deliveries until the time `until`.

    Args:
        limit: how many at most; they are fewer if their bodies exceed `CLAIM_BYTES`.
        without: ids of webhooks to skip, because their deliveries in flight are at the limit.

    Returns:
        The deliveries with their bodies, and whether more may be due.
    """
    body = select(_events.c.body).where(_events.c.id == _deliveries.c.event_id).scalar_subquery()
    due = (
        select(_deliveries.c.id, _deliveries.c.next_attempt_at, func.length(body).label("size"))
        .where(_PENDING, _deliveries.c.next_attempt_at <= now)
        .where(_deliveries.c.claimed_until <= now)
        .order_by(_deliveries.c.next_attempt_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if without:
        due = due.where(_deliveries.c.webhook_id.not_in(without))
    rows_due = due.cte("due")
    order = rows_due.c.next_attempt_at, rows_due.c.id
    before = func.sum(rows_due.c.size).over(order_by=order) - rows_due.c.size
    sized = select(rows_due.c.id, before.label("before")).subquery()
    statement = (
        update(_deliveries)
        .where(_deliveries.c.id.in_(select(sized.c.id).where(sized.c.before < CLAIM_BYTES)))
        .values(claimed_until=until)
        .returning(*_COLUMNS, body)
    )
    async with database.begin() as connection:
        rows = [(Delivery(*row[:-1]), row[-1]) for row in await connection.execute(statement)]
    size = sum(len(body) for _, body in rows)
    return sorted(rows, key=_due), len(rows) == limit or size >= CLAIM_BYTES


async def renew(database: Database, ids: Sequence[str], until: int) -> None:
    """Extend the claims of pending deliveries to a later time, or release them by an earlier one.

    Rows that are locked are skipped: they are just being finished or deleted. Waiting for one while
    others are locked here could deadlock with `finish`, which locks rows in its own order.
    """
    pending = (
        select(_deliveries.c.id)
        .where(_deliveries.c.id == bindparam("delivery"), _deliveries.c.status == "pending")
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(_deliveries)
        .where(_deliveries.c.id == pending.scalar_subquery())
        .values(claimed_until=until)
    )
    async with database.begin() as connection:
        await connection.execute(statement, [{"delivery": delivery} for delivery in ids])


async def release_all(database: Database) -> None:
    """Release every claim. Only for a single node at its start: no node holds one then."""
    async with database.begin() as connection:
        await connection.execute(
            update(_deliveries)
            .where(_PENDING, _deliveries.c.claimed_until > 0)
            .values(claimed_until=0)
        )


async def finish(
    database: Database, deliveries: Sequence[Delivery], results: Sequence[webhooks.Result]
) -> dict[str, int]:
    """Store the results of attempts, and the state of their webhooks.

    If this node stalled beyond its lease, another node may have made the same attempt. Its stored
    result stays, except that a success here replaces a failure there.

    Returns:
        Of the webhooks with a failure here: since when no delivery has succeeded, by id.
    """
    rows = [
        {
            "delivery": delivery.id,
            "made": delivery.attempt,
            "is_final": delivery.status != "pending",
            "status": delivery.status,
            "attempt": delivery.attempt,
            "attempts": delivery.attempts,
            "completed_at": delivery.completed_at,
            "next_attempt_at": delivery.next_attempt_at,
            "claimed_until": 0,
        }
        for delivery in deliveries
    ]
    async with database.begin() as connection:
        # Webhooks first, as in `webhooks.remove`, which locks the webhook and then, by the cascade,
        # its deliveries. In the other order the two could deadlock.
        await webhooks.store_results(connection, results)
        await connection.execute(_FINISH, rows)
        failed = [result.webhook_id for result in results if result.failed_at is not None]
        if not failed:
            return {}
        query = select(tables.webhooks.c.id, tables.webhooks.c.failing_since).where(
            tables.webhooks.c.id.in_(failed), tables.webhooks.c.failing_since.is_not(None)
        )
        return {row[0]: row[1] for row in await connection.execute(query)}


async def of_webhook(
    database: Database, webhook_id: str, *, limit: int, before: str | None
) -> tuple[list[Delivery], bool]:
    """Return a webhook's deliveries, newest first, and whether more follow.

    Only those older than the id `before`.

    They are fewer than `limit` if their attempts, with what receivers answered, exceed a page.
    """
    of_webhook = _deliveries.c.webhook_id == webhook_id
    query = select(_deliveries.c.id, func.length(_deliveries.c.attempts)).where(of_webhook)
    if before is not None:
        query = query.where(_deliveries.c.id < before)
    query = query.order_by(_deliveries.c.id.desc()).limit(limit + 1)
    async with database.read() as connection:
        sizes = (await connection.execute(query)).all()
        # The newest attempt is shown twice.
        count = count_within(2 * length + _OVERHEAD for _, length in sizes[:limit])
        ids = [row[0] for row in sizes[:count]]
        rows = await connection.execute(
            select(*_COLUMNS).where(_deliveries.c.id.in_(ids)).order_by(_deliveries.c.id.desc())
        )
        return [Delivery._make(row) for row in rows], count < len(sizes)


async def by_id(database: Database, webhook_id: str, delivery_id: str) -> Delivery | None:
    """Return a delivery of a webhook."""
    query = select(*_COLUMNS).where(
        _deliveries.c.id == delivery_id, _deliveries.c.webhook_id == webhook_id
    )
    async with database.read() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else Delivery._make(row)


async def body_of(database: Database, event_id: str) -> bytes | None:
    """Return the body that the deliveries of an event send; None if it is no longer stored."""
    query = select(_events.c.body).where(_events.c.id == event_id)
    async with database.read() as connection:
        body: bytes | None = await connection.scalar(query)
    return body


async def failed_since(
    database: Database, webhook_id: str, since: int, limit: int
) -> list[Delivery]:
    """Return the deliveries of a webhook that failed permanently since a time, oldest first.

    Only the newest delivery of each event, and none of events that have a successful one.
    """
    other = _deliveries.alias()
    superseded = (
        select(other.c.id)
        .where(other.c.event_id == _deliveries.c.event_id)
        .where(other.c.webhook_id == _deliveries.c.webhook_id)
        .where((other.c.id > _deliveries.c.id) | (other.c.status == "succeeded"))
    )
    query = (
        select(*_COLUMNS)
        .where(_deliveries.c.webhook_id == webhook_id, _deliveries.c.status == "failed")
        .where(_deliveries.c.completed_at >= since, ~superseded.exists())
        .order_by(_deliveries.c.id)
        .limit(limit)
    )
    async with database.read() as connection:
        return [Delivery._make(row) for row in await connection.execute(query)]


async def again(
    database: Database, deliveries: Sequence[Delivery], claimed_until: int = 0
) -> dict[str, bytes]:
    """Add further deliveries of stored events.

    Returns:
        The events' bodies by event id if `claimed_until` is set, else nothing.
    """
    async with database.begin() as connection:
        await connection.add(
            _deliveries, [_row(delivery, claimed_until) for delivery in deliveries]
        )
        if not claimed_until:
            return {}
        ids = {delivery.event_id for delivery in deliveries}
        query = select(_events.c.id, _events.c.body).where(_events.c.id.in_(ids))
        return {row[0]: row[1] for row in await connection.execute(query)}


async def due_times(database: Database, now: int) -> tuple[int | None, int | None]:
    """Return when the longest waiting delivery became due, and when the next one will be."""
    at = _deliveries.c.next_attempt_at
    earliest = select(func.min(at)).where(_PENDING)
    query = select(
        earliest.where(at <= now).scalar_subquery(), earliest.where(at > now).scalar_subquery()
    )
    async with database.read() as connection:
        oldest, upcoming = (await connection.execute(query)).one()
        return oldest, upcoming


async def prune(database: Database, before: int) -> int:
    """Delete a batch of deliveries completed before `before`, and of old events without any.

    Events in the log stay; `event_log.prune` removes them from it.

    Returns:
        The larger of the two counts; below `PRUNE_BATCH` when nothing is left to delete.
    """
    old = select(_deliveries.c.id).where(_deliveries.c.completed_at < before).limit(PRUNE_BATCH)
    orphans = (
        select(_events.c.id)
        .where(_events.c.created_at < before, _events.c.cursor.is_(None))
        .where(~select(_deliveries.c.id).where(_deliveries.c.event_id == _events.c.id).exists())
        .limit(PRUNE_BATCH)
    )
    async with database.begin() as connection:
        deleted = await connection.execute(delete(_deliveries).where(_deliveries.c.id.in_(old)))
        deleted_events = await connection.execute(delete(_events).where(_events.c.id.in_(orphans)))
        return max(deleted.rowcount, deleted_events.rowcount)
