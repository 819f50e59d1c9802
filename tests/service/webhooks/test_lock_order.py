"""Transactions that need the same rows of PostgreSQL: they wait for each other and do not deadlock.

SQLite has one writer at a time.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy import select, text

from outrider.service.database import tables
from outrider.service.webhooks.store import deliveries, webhooks
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.delivery_node import DeliveryNode, delivery_nodes

pytestmark = pytest.mark.asyncio(loop_scope="session")

_LATER = 2**50
_URL = "http://127.0.0.1:1/"


@pytest_asyncio.fixture(loop_scope="session")
async def idle(database_url: str) -> AsyncIterator[DeliveryNode]:
    """A node that does not work."""
    async with delivery_nodes(database_url) as (node,):
        yield node


async def has_waiting(node: DeliveryNode, count: int) -> bool:
    """Return whether so many transactions wait for a lock."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with node.database.read() as transaction:
        return bool(await transaction.scalar(query) == count)


async def test_a_webhook_is_deleted_while_its_deliveries_are_finished(idle: DeliveryNode) -> None:
    webhook = await idle.webhook(_URL)
    (delivery,) = await idle.store(webhook.id, 1, claimed_until=_LATER)
    done = delivery._replace(status="succeeded", attempt=1, next_attempt_at=None, completed_at=7)
    result = webhooks.Result(webhook.id, last_delivery={}, failed_at=None, succeeded=True)
    async with idle.database.begin() as other:
        if other.dialect == "sqlite":
            return
        row = select(tables.webhooks.c.id).where(tables.webhooks.c.id == webhook.id)
        await other.execute(row.with_for_update())
        deletion = asyncio.create_task(idle.subscriptions.remove(idle.account_id, webhook.id))
        await eventually(lambda: has_waiting(idle, 1))
        finishing = asyncio.create_task(deliveries.finish(idle.database, [done], [result]))
        await eventually(lambda: has_waiting(idle, 2))
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(deletion, finishing)
    assert await idle.history(webhook.id) == []


async def test_renewing_claims_waits_for_no_other_transaction(idle: DeliveryNode) -> None:
    webhook = await idle.webhook(_URL)
    ids = [item.id for item in await idle.store(webhook.id, 2, claimed_until=_LATER)]
    table = tables.deliveries
    async with idle.database.begin() as other:
        if other.dialect == "sqlite":
            return
        await other.execute(select(table.c.id).where(table.c.id == ids[0]).with_for_update())
        async with asyncio.timeout(TIMEOUT):
            await deliveries.renew(idle.database, ids, _LATER + 1)
    async with idle.database.read() as transaction:
        rows = await transaction.execute(select(table.c.id, table.c.claimed_until))
        assert {row[0]: row[1] for row in rows} == {ids[0]: _LATER, ids[1]: _LATER + 1}
