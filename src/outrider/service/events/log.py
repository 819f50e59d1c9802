"""The event log: every account's events, in the order of their cursors.

A cursor is a number per account, allotted in the transaction that stores the event. The account's
row is locked from then on until the commit, so events become visible in the order of their cursors:
a reader that has seen one never misses an earlier one that committed late. Some numbers are unused.

Locks: a transaction locks rows of machines first, then rows of accounts in the order of their ids,
then it adds events.

    accounts.event_floor  <  cursors in the log  <=  accounts.event_cursor
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import delete, func, select, update

from outrider.contract.sizes import MAX_PAGE_BYTES
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_accounts = tables.accounts
_events = tables.events

PRUNE_BATCH: Final = 500

_LOGGED = _events.c.cursor.is_not(None)


class Event(NamedTuple):
    """An event with its body: the JSON that webhooks and streams carry."""

    id: str
    account_id: str
    name: str
    body: bytes
    created_at: int
    cursor: int | None = None


class Extent(NamedTuple):
    """Which cursors of an account are in the log: those above `floor`, up to `newest`."""

    newest: int
    floor: int


class LoggedEvent(NamedTuple):
    """An event as it is read from the log."""

    cursor: int
    name: str
    body: bytes


class Part(NamedTuple):
    """A part of the log: its events, up to which cursor it was read, and whether more follow."""

    events: list[LoggedEvent]
    cursor: int
    has_more: bool


async def append(transaction: Transaction, events: Sequence[Event]) -> set[str]:
    """Add events to the logs of their accounts, in this order; return the ids of the new ones.

    An event whose id is stored already is skipped.
    """
    if not events:
        return set()
    counts = Counter(event.account_id for event in events)
    cursors: dict[str, int] = {}
    # In one order, because each row stays locked: nodes that store events of the same accounts
    # cannot deadlock.
    for account_id, count in sorted(counts.items()):
        newest = await transaction.scalar(
            update(_accounts)
            .where(_accounts.c.id == account_id)
            .values(event_cursor=_accounts.c.event_cursor + count)
            .returning(_accounts.c.event_cursor)
        )
        # Of an account that has been deleted, the foreign key refuses the events below.
        cursors[account_id] = count if newest is None else newest
        cursors[account_id] -= count
    rows = []
    for event in events:
        cursors[event.account_id] += 1
        rows.append(event._asdict() | {"cursor": cursors[event.account_id]})
    new = transaction.insert(_events).on_conflict_do_nothing().returning(_events.c.id)
    return set(await transaction.scalars(new, rows))


async def extent(database: Database, account_id: str) -> Extent:
    """Return which cursors of an account are in the log."""
    query = select(_accounts.c.event_cursor, _accounts.c.event_floor).where(
        _accounts.c.id == account_id
    )
    async with database.read() as transaction:
        row = (await transaction.execute(query)).first()
    return Extent(0, 0) if row is None else Extent(*row)


async def newest(database: Database, account_ids: Iterable[str]) -> Mapping[str, int]:
    """Return the newest cursor of each of these accounts that exists."""
    query = select(_accounts.c.id, _accounts.c.event_cursor).where(_accounts.c.id.in_(account_ids))
    async with database.read() as transaction:
        return {row[0]: row[1] for row in await transaction.execute(query)}


async def read(
    database: Database,
    account_id: str,
    after: int,
    limit: int,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
    wants: Callable[[str], bool] = lambda _: True,
) -> Part:
    """Return the events after a cursor, oldest first: at most `limit`, and `max_bytes` of bodies.

    One event is returned, however long it is.

    Args:
        wants: returns whether events of a name are wanted; the others are left out.
    """
    following = (
        select(_events.c.cursor, _events.c.name, func.length(_events.c.body))
        .where(_events.c.account_id == account_id, _events.c.cursor > after)
        .order_by(_events.c.cursor)
        .limit(limit)
    )
    cursor, left = after, max_bytes
    names: dict[int, str] = {}
    async with database.read() as transaction:
        rows = (await transaction.execute(following)).all()
        has_more = len(rows) == limit
        for row_cursor, name, size in rows:
            if wants(name):
                if size > left and names:
                    has_more = True
                    break
                left -= size
                names[row_cursor] = name
            cursor = row_cursor
        # Bodies are read only now that it is known which fit: together they may have megabytes.
        query = select(_events.c.cursor, _events.c.body).where(
            _events.c.account_id == account_id, _events.c.cursor.in_(names)
        )
        bodies = {row[0]: row[1] for row in await transaction.execute(query)} if names else {}
    # An event that was pruned between the two statements is left out, as if it were a gap.
    events = [LoggedEvent(at, name, bodies[at]) for at, name in names.items() if at in bodies]
    return Part(events, cursor, has_more)


async def outgrown(database: Database, keep: int) -> list[str]:
    """Return the accounts that may have more than `keep` events in the log."""
    query = select(_accounts.c.id).where(_accounts.c.event_cursor - _accounts.c.event_floor > keep)
    async with database.read() as transaction:
        return list(await transaction.scalars(query))


async def raise_floor(database: Database, account_id: str, *, before: int, keep: int) -> bool:
    """End the log of an account at its oldest event to keep; return whether the floor rose.

    The last `keep` events are kept, and those created since `before` (epoch milliseconds).
    """
    of_account = select(_events.c.cursor).where(_events.c.account_id == account_id, _LOGGED)
    async with database.begin() as transaction:
        surplus = await transaction.scalar(
            of_account.order_by(_events.c.cursor.desc()).offset(keep).limit(1)
        )
        if surplus is None:
            return False
        young = await transaction.scalar(
            of_account.where(_events.c.created_at >= before).order_by(_events.c.cursor).limit(1)
        )
        floor = surplus if young is None else min(surplus, young - 1)
        raised = await transaction.execute(
            update(_accounts)
            .where(_accounts.c.id == account_id, _accounts.c.event_floor < floor)
            .values(event_floor=floor)
        )
        return raised.rowcount > 0


async def prune(database: Database, account_id: str) -> int:
    """Remove a batch of events below the account's floor from the log; return how many.

    Those with deliveries stay stored, outside the log, until their deliveries are deleted.
    """
    floor = select(_accounts.c.event_floor).where(_accounts.c.id == account_id).scalar_subquery()
    below = (
        select(_events.c.id)
        .where(_events.c.account_id == account_id, _LOGGED, _events.c.cursor <= floor)
        .order_by(_events.c.cursor)
        .limit(PRUNE_BATCH)
        .with_for_update(skip_locked=True)
    )
    delivered = select(tables.deliveries.c.id).where(tables.deliveries.c.event_id == _events.c.id)
    async with database.begin() as transaction:
        ids = list(await transaction.scalars(below))
        if ids:
            these = _events.c.id.in_(ids)
            await transaction.execute(delete(_events).where(these, ~delivered.exists()))
            await transaction.execute(update(_events).where(these).values(cursor=None))
        return len(ids)
