"""A node that stood still longer than its claims last: another has what it held."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outrider.service.webhooks.delivery_queue import CLAIM_SECONDS
from outrider.service.webhooks.store import deliveries, webhooks
from tests.rig.patience import eventually
from tests.service.webhooks.office import Office, offices
from tests.service.webhooks.receiver import Receiver
from tests.service.webhooks.test_delivery_queue import Gate

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def two(database_url: str) -> AsyncIterator[tuple[Office, Office]]:
    """Two nodes; neither works yet."""
    async with offices(database_url, 2) as (one, other):
        yield one, other


async def finished(office: Office, delivery: deliveries.Delivery) -> None:
    """Have a node write down what came of an attempt."""
    result = webhooks.Result(delivery.webhook_id, last_delivery={}, failed_at=None, succeeded=True)
    await deliveries.finish(office.database, [delivery], [result])


async def test_what_still_waited_is_not_sent_by_it(
    two: tuple[Office, Office], receiver: Receiver
) -> None:
    frozen, other = two
    gate = Gate()
    receiver.answers(gate)
    webhook = await frozen.webhook(receiver.url)
    await frozen.open()
    for _ in range(12):
        await frozen.happens()
    await eventually(lambda: gate.waiting == 8)
    frozen.clock.passes(CLAIM_SECONDS + 1)
    await other.open()
    await eventually(lambda: gate.waiting == 16)
    gate.open()

    async def all_over() -> bool:
        return {one.status for one in await other.history(webhook.id)} == {"succeeded"}

    await eventually(all_over)
    ids = [taken.json["id"] for taken in receiver.taken]
    assert len(set(ids)) == 12
    assert len(ids) == 12 + 8, "those in flight come twice, and no others"


async def test_what_another_has_written_down_stays(office: Office, receiver: Receiver) -> None:
    webhook = await office.webhook(receiver.url)
    await office.happens()
    done = await office.settles(webhook.id)
    assert done.status == "succeeded"
    (row,), _ = await deliveries.of_webhook(office.database, webhook.id, limit=10, before=None)
    late = row._replace(status="pending", attempt=1, next_attempt_at=1, completed_at=None)
    await finished(office, late)
    assert await office.history(webhook.id) == [done]


async def test_a_success_that_comes_late_counts(office: Office, receiver: Receiver) -> None:
    webhook = await office.webhook(receiver.url)
    (row,) = await office.store(webhook.id, 1, claimed_until=2**60)
    failed = row._replace(status="pending", attempt=1, next_attempt_at=2**60)
    await finished(office, failed)
    again = row._replace(status="pending", attempt=1, next_attempt_at=5)
    await finished(office, again)
    (kept,), _ = await deliveries.of_webhook(office.database, webhook.id, limit=10, before=None)
    assert kept.next_attempt_at == 2**60, "the same attempt is written down once"
    good = row._replace(status="succeeded", attempt=1, next_attempt_at=None, completed_at=7)
    await finished(office, good)
    assert (await office.history(webhook.id))[0].status == "succeeded"


async def test_a_page_of_deliveries_ends_before_it_is_too_long(
    office: Office, receiver: Receiver
) -> None:
    webhook = await office.webhook(receiver.url)
    rows = await office.store(webhook.id, 8, claimed_until=2**60)
    for row in rows:
        attempts = b"[%b]" % (b" " * 600_000)
        await finished(office, row._replace(status="failed", attempt=1, attempts=attempts))
    found: list[str] = []
    before, has_more = None, True
    while has_more:
        page, has_more = await deliveries.of_webhook(
            office.database, webhook.id, limit=100, before=before
        )
        assert 1 <= len(page) <= 3
        found += [one.id for one in page]
        before = found[-1]
    assert found == sorted((row.id for row in rows), reverse=True)
