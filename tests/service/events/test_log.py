"""The event log: cursors, what readers see of concurrent writers, and what is kept."""

import asyncio
import itertools

import pytest
from sqlalchemy import delete, insert, select

from outrider.contract.ids import new_id
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.events import log as event_log
from outrider.service.events.log import Event, Extent, LoggedEvent
from outrider.service.webhooks.retention import LOG_SECONDS, prune, prune_log
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.store.deliveries import Delivery

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = int(LOG_SECONDS * 1000)
NOW = 100 * DAY


def event(account: str, at: int = NOW) -> Event:
    event_id = new_id("evt")
    return Event(event_id, account, "agent:error", event_id.encode(), at)


async def new_account(database: Database, account: str | None = None) -> str:
    account = account or new_id("acct")
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.accounts).values(id=account, plan="free", created_at=0)
        )
    return account


async def append(database: Database, *events: Event) -> set[str]:
    async with database.begin() as transaction:
        return await event_log.append(transaction, events)


async def cursors(database: Database, account: str) -> list[int]:
    part = await event_log.read(database, account, 0, 1000)
    return [logged.cursor for logged in part.events]


async def test_the_events_of_each_account_are_numbered(database: Database) -> None:
    account, other = await new_account(database), await new_account(database)
    assert await event_log.extent(database, account) == Extent(newest=0, floor=0)
    first, second, third, fourth = event(account), event(other), event(account), event(account)
    assert await append(database, first, second, third) == {first.id, second.id, third.id}
    await append(database, fourth)
    assert (await event_log.read(database, account, 1, 10)).events == [
        LoggedEvent(2, "agent:error", third.body),
        LoggedEvent(3, "agent:error", fourth.body),
    ]
    assert await cursors(database, other) == [1]
    assert await event_log.extent(database, account) == Extent(newest=3, floor=0)
    assert await event_log.newest(database, [account, other, "acct_none"]) == {account: 3, other: 1}


async def test_an_event_is_in_the_log_once(database: Database) -> None:
    account = await new_account(database)
    first, second = event(account), event(account)
    await append(database, first)
    assert await append(database, first, second) == {second.id}
    part = await event_log.read(database, account, 0, 10)
    assert [logged.body for logged in part.events] == [first.body, second.body]


async def test_a_read_ends_before_the_event_that_does_not_fit(database: Database) -> None:
    account = await new_account(database)
    sizes = [3_000, 90_000, 50_000, 3_000]
    await append(database, *(event(account)._replace(body=b"x" * size) for size in sizes))

    async def read(after: int, max_bytes: int, limit: int = 10) -> tuple[list[int], int, bool]:
        part = await event_log.read(database, account, after, limit, max_bytes=max_bytes)
        return [len(logged.body) for logged in part.events], part.cursor, part.has_more

    assert await read(0, 200_000) == (sizes, 4, False)
    assert await read(0, 100_000) == ([3_000, 90_000], 2, True)
    assert await read(1, 10) == ([90_000], 2, True)
    assert await read(0, 200_000, limit=2) == ([3_000, 90_000], 2, True)


async def test_events_that_are_not_wanted_take_no_room(database: Database) -> None:
    account = await new_account(database)
    large = event(account)._replace(name="chat:message", body=b"x" * 90_000)
    wanted = event(account)
    await append(database, large, wanted)
    part = await event_log.read(
        database, account, 0, 10, max_bytes=10_000, wants=lambda name: name != large.name
    )
    assert part == event_log.Part([LoggedEvent(2, wanted.name, wanted.body)], 2, has_more=False)


async def test_an_event_of_another_account_is_not_new(database: Database) -> None:
    account, other = await new_account(database), await new_account(database)
    first = event(account)
    await append(database, first)
    second = event(other)
    assert await append(database, first._replace(account_id=other), second) == {second.id}
    assert await cursors(database, account) == [1]


async def test_a_reader_misses_nothing_of_concurrent_writers(database: Database) -> None:
    """Each read continues after the last cursor of the one before."""
    accounts = [await new_account(database) for _ in range(3)]
    ids: dict[str, list[str]] = {account: [] for account in accounts}
    batches: list[list[Event]] = []
    for number in range(60):
        # In a different order each time: the writers must not deadlock.
        batch = [event(account) for account in accounts[:: 1 if number % 2 else -1]]
        batches.append(batch)
        for logged in batch:
            ids[logged.account_id].append(logged.id)
    queue = iter(batches)

    async def write() -> None:
        for batch in queue:
            await append(database, *batch)

    async def read(account: str) -> list[LoggedEvent]:
        seen: list[LoggedEvent] = []
        while len(seen) < len(batches):
            after = seen[-1].cursor if seen else 0
            seen += (await event_log.read(database, account, after, 7)).events
        return seen

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read(account)) for account in accounts]
        for _ in range(4):
            tasks.create_task(write())
    for account, reader in zip(accounts, readers, strict=True):
        seen = [logged.body.decode() for logged in reader.result()]
        assert sorted(seen) == sorted(ids[account])
        numbers = [logged.cursor for logged in reader.result()]
        assert all(a < b for a, b in itertools.pairwise(numbers))


async def test_what_is_old_leaves_the_log(database: Database) -> None:
    account = await new_account(database)
    old = [event(account, NOW - 2 * DAY) for _ in range(6)]
    young = [event(account) for _ in range(2)]
    await append(database, *old, *young)
    await prune_log(database, NOW / 1000, keep=3)
    assert await cursors(database, account) == [6, 7, 8]
    assert await event_log.extent(database, account) == Extent(newest=8, floor=5)


async def test_what_is_young_stays_in_the_log(database: Database) -> None:
    account = await new_account(database)
    await append(database, *(event(account, NOW - DAY + 1) for _ in range(5)))
    await prune_log(database, NOW / 1000, keep=3)
    assert await cursors(database, account) == [1, 2, 3, 4, 5]


async def test_the_last_events_stay_for_years(database: Database) -> None:
    """Neither the log's retention nor that of deliveries removes them."""
    account = await new_account(database)
    await append(database, *(event(account, 1) for _ in range(3)))
    await prune_log(database, NOW / 1000, keep=3)
    await prune(database, NOW / 1000)
    assert await cursors(database, account) == [1, 2, 3]


async def test_an_event_with_deliveries_outlives_its_place_in_the_log(database: Database) -> None:
    account = await new_account(database)
    webhook = new_id("webhook")
    sent, kept = event(account, NOW - 2 * DAY), event(account)
    delivery = Delivery(
        new_id("dlv"), webhook, sent.id, sent.name, "succeeded", 1, b"[]", NOW, NOW, None
    )
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.webhooks).values(
                id=webhook,
                account_id=account,
                url="http://127.0.0.1:9",
                events=["*"],
                active=True,
                created_at=0,
                updated_at=0,
                secret=b"",
            )
        )
    await deliveries.store(database, [sent, kept], [delivery], {})
    await prune_log(database, NOW / 1000, keep=1)
    assert await cursors(database, account) == [2]
    assert await deliveries.again(database, [delivery._replace(id=new_id("dlv"))], NOW) == {
        sent.id: sent.body
    }
    async with database.begin() as transaction:
        await transaction.execute(delete(tables.deliveries))
    await prune(database, NOW / 1000 + 31 * 86400)
    async with database.read() as transaction:
        stored = select(tables.events.c.id).where(tables.events.c.account_id == account)
        assert list(await transaction.scalars(stored)) == [kept.id]


async def test_a_node_of_the_previous_release_still_stores_events(database: Database) -> None:
    account = await new_account(database)
    await append(database, event(account))
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.events).values(
                id=new_id("evt"), account_id=account, name="agent:error", body=b"", created_at=NOW
            )
        )
    await append(database, event(account))
    assert await cursors(database, account) == [1, 2]
