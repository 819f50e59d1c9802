"""Pages of the log whose filter fits little, and what ends a wait."""

import asyncio

import pytest
from sqlalchemy import insert

from outrider.contract.ids import new_id
from outrider.service.cluster.bus import Bus
from outrider.service.cluster.transport import Transport
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.events import log as event_log
from outrider.service.events.feed import LiveFeed
from outrider.service.events.log import Event
from outrider.service.events.pages import Pages
from outrider.service.events.selection import AGENT_KINDS, MACHINE_KINDS, Selection
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


async def account_with(database: Database, *names: str) -> str:
    account = new_id("acct")
    events = [Event(new_id("evt"), account, name, b"{}", 0) for name in names]
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.accounts).values(id=account, plan="free", created_at=0)
        )
        await event_log.append(transaction, events)
    return account


async def test_what_is_not_selected_is_passed_over(database: Database) -> None:
    account = await account_with(database, *["agent:error"] * 1200, "machine:connected")
    pages = Pages(database, LiveFeed(Transport(Bus())))
    selection = Selection(MACHINE_KINDS)
    page = await pages.read(account, selection, after="0", limit=1, wait=0)
    assert [event.cursor for event in page.events] == [1201]
    page = await pages.read(account, selection, after="1201", limit=1, wait=0)
    assert page == ([], 1201, "ok")


async def test_a_node_that_drains_answers_those_who_wait(database: Database) -> None:
    account = await account_with(database, "machine:connected")
    feed = LiveFeed(Transport(Bus()))
    reading = asyncio.create_task(
        Pages(database, feed).read(account, Selection(AGENT_KINDS), after="0", limit=1, wait=60)
    )
    await asyncio.sleep(0)
    feed.drain()
    async with asyncio.timeout(TIMEOUT):
        assert await reading == ([], 1, "ok")
