"""A node that stood still longer than its claims last: another has what it held."""

import pytest

from outrider.service.webhooks.delivery_queue import CLAIM_SECONDS
from outrider.service.webhooks.store import deliveries, webhooks
from tests.rig.waiting import eventually
from tests.service.webhooks.delivery_node import DeliveryNode, delivery_nodes
from tests.service.webhooks.receiver import Receiver
from tests.service.webhooks.test_delivery_queue import Gate

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def finished(node: DeliveryNode, delivery: deliveries.Delivery) -> None:
    """Have a node write down what came of an attempt."""
    result = webhooks.Result(delivery.webhook_id, last_delivery={}, failed_at=None, succeeded=True)
    await deliveries.finish(node.database, [delivery], [result])


async def test_what_still_waited_is_not_sent_by_it(database_url: str, receiver: Receiver) -> None:
    gate = Gate()
    receiver.respond_with(gate)
    # Without polls: the node that stands still claims nothing meanwhile.
    async with delivery_nodes(database_url, 2, poll_interval=3600.0) as (frozen, other):
        webhook = await frozen.webhook(receiver.url)
        await frozen.open()
        for _ in range(12):
            await frozen.store_event()
        await eventually(lambda: gate.waiting == 8 and frozen.queue.claimed == 12)
        frozen.clock.passes(CLAIM_SECONDS + 1)
        await other.open()
        await eventually(lambda: gate.waiting == 16)
        gate.open()

        async def all_over() -> bool:
            history = await other.history(webhook.id)
            return {delivery.status for delivery in history} == {"succeeded"}

        await eventually(all_over)
    ids = [request.json["id"] for request in receiver.requests]
    assert len(set(ids)) == 12
    assert len(ids) == 12 + 8, "those in flight come twice, and no others"


async def test_what_another_has_written_down_stays(node: DeliveryNode, receiver: Receiver) -> None:
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    done = await node.wait_for_attempt(webhook.id)
    assert done.status == "succeeded"
    (row,), _ = await deliveries.of_webhook(node.database, webhook.id, limit=10, before=None)
    late = row._replace(status="pending", attempt=1, next_attempt_at=1, completed_at=None)
    await finished(node, late)
    assert await node.history(webhook.id) == [done]


async def test_a_success_that_comes_late_counts(node: DeliveryNode, receiver: Receiver) -> None:
    webhook = await node.webhook(receiver.url)
    (row,) = await node.store(webhook.id, 1, claimed_until=2**60)
    failed = row._replace(status="pending", attempt=1, next_attempt_at=2**60)
    await finished(node, failed)
    again = row._replace(status="pending", attempt=1, next_attempt_at=5)
    await finished(node, again)
    (kept,), _ = await deliveries.of_webhook(node.database, webhook.id, limit=10, before=None)
    assert kept.next_attempt_at == 2**60, "the same attempt is written down once"
    good = row._replace(status="succeeded", attempt=1, next_attempt_at=None, completed_at=7)
    await finished(node, good)
    assert (await node.history(webhook.id))[0].status == "succeeded"


async def test_a_page_of_deliveries_ends_before_it_is_too_long(
    node: DeliveryNode, receiver: Receiver
) -> None:
    webhook = await node.webhook(receiver.url)
    rows = await node.store(webhook.id, 8, claimed_until=2**60)
    for row in rows:
        attempts = b"[%b]" % (b" " * 600_000)
        await finished(node, row._replace(status="failed", attempt=1, attempts=attempts))
    found: list[str] = []
    before, has_more = None, True
    while has_more:
        page, has_more = await deliveries.of_webhook(
            node.database, webhook.id, limit=100, before=before
        )
        assert 1 <= len(page) <= 3
        found += [item.id for item in page]
        before = found[-1]
    assert found == sorted((row.id for row in rows), reverse=True)
