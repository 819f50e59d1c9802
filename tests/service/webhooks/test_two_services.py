"""Two services on one PostgreSQL: one delivery is sent by one worker, and none is forgotten."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.service.events.log import Event
from outrider.service.webhooks.retry_policy import new_delivery
from outrider.service.webhooks.store import deliveries
from tests.conftest import running, settings
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL
from tests.rig.waiting import eventually
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import Receiver
from tests.service.webhooks.test_subscriptions import subscriber

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

WAITING = 300
RECEIVED = 100


@pytest_asyncio.fixture(loop_scope="session")
async def sites(tmp_path: Path, postgresql: PostgreSQL) -> AsyncIterator[list[Site]]:
    """Two services that share their stores and their secret key."""
    shared = settings(tmp_path / "0", postgresql, secret_key="k" * 32)
    other = shared.model_copy(update={"data_dir": tmp_path / "1"})
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(item)) for item in (shared, other)]


async def test_each_delivery_is_sent_once(sites: list[Site], receiver: Receiver) -> None:
    """Those that both find in the table, and those whose events one of them hears."""
    me = await subscriber(sites[0])
    webhook = await me.create_webhook(receiver.url, "agent:generating_started")
    machine = await me.owner.machine()
    await _store(sites[0], me.owner.id, webhook["id"])
    for _ in range(RECEIVED):
        await me.report_event(machine)
    await eventually(lambda: len(receiver.requests) >= WAITING + RECEIVED, within=30)
    for site in sites:
        await site.stop()  # now none can come any more
    attempts = Counter(request.headers["X-Service-Delivery"] for request in receiver.requests)
    assert len(attempts) == WAITING + RECEIVED
    assert set(attempts.values()) == {1}


async def _store(site: Site, account_id: str, webhook_id: str) -> None:
    """Put deliveries into the table that are due and that nobody has claimed."""
    now = int(time.time() * 1000)
    events = [agent_event() for _ in range(WAITING)]
    await deliveries.store(
        site.database,
        [Event(event.id, account_id, event.event, b'{"event":"x"}', now) for event in events],
        [new_delivery(webhook_id, event.id, event.event, now) for event in events],
        {},
    )
