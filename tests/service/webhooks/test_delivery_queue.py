"""The queue: lanes, claims, several nodes, and the end. Holds docs/webhooks.md."""

import asyncio
from collections import Counter

import pytest
from aiohttp import web

from outrider.service.webhooks import delivery_queue
from outrider.service.webhooks.delivery_queue import DEFAULT_LIMITS, DeliveryLimits
from outrider.service.webhooks.store import deliveries, webhooks
from tests.rig.waiting import eventually
from tests.service.webhooks.delivery_node import DeliveryNode, delivery_nodes
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import Receiver, receiving, response

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Gate:
    """Answers once it is opened; counts how many wait at a time."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.waiting = 0
        self.most = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer a request once the gate is open."""
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self._open.wait()
        self.waiting -= 1
        return web.Response()

    def open(self) -> None:
        """Let everybody through, from now on."""
        self._open.set()


async def delivered(node: DeliveryNode, webhook_id: str, count: int) -> bool:
    history = await node.history(webhook_id)
    return [delivery.status for delivery in history].count("succeeded") == count


async def test_eight_in_flight_for_each_webhook(node: DeliveryNode, receiver: Receiver) -> None:
    gate = Gate()
    receiver.respond_with(gate)
    webhook = await node.webhook(receiver.url)
    for _ in range(30):
        await node.store_event()
    await eventually(lambda: gate.waiting == DEFAULT_LIMITS.in_flight_per_webhook)
    gate.open()
    await eventually(lambda: delivered(node, webhook.id, 30))
    assert gate.most == DEFAULT_LIMITS.in_flight_per_webhook


async def test_one_that_hangs_holds_up_nobody_else(node: DeliveryNode, receiver: Receiver) -> None:
    """Twenty others receive everything while one receiver does not answer at all."""
    gate = Gate()
    async with receiving() as slow:
        slow.respond_with(gate)
        hanging = await node.webhook(slow.url)
        others = [await node.webhook(f"{receiver.url}/{n}") for n in range(20)]
        for _ in range(50):
            await node.store_event()
        for other in others:
            await eventually(lambda other=other: delivered(node, other.id, 50))  # type: ignore[misc]
        assert not await delivered(node, hanging.id, 1)
        assert gate.waiting == DEFAULT_LIMITS.in_flight_per_webhook
        gate.open()
        await eventually(lambda: delivered(node, hanging.id, 50))


async def test_webhooks_that_wait_for_a_slot_get_one(database_url: str, receiver: Receiver) -> None:
    """With all slots taken by other webhooks, a delivery waits for a slot and no longer."""
    async with delivery_nodes(database_url, limits=DeliveryLimits(in_flight=12)) as (node,):
        await node.open()
        made = [await node.webhook(f"{receiver.url}/{n}") for n in range(6)]
        for _ in range(3):
            await asyncio.gather(*(node.store_event() for _ in range(10)))
        for webhook in made:
            await eventually(lambda webhook=webhook: delivered(node, webhook.id, 30))  # type: ignore[misc]
        await eventually(lambda: not node.queue.claimed)


async def test_receivers_that_hang_leave_half_of_the_slots_to_prompt_ones(
    database_url: str, receiver: Receiver
) -> None:
    gate = Gate()
    limits = DeliveryLimits(in_flight=8)
    async with delivery_nodes(database_url, limits=limits) as (node,), receiving() as slow:
        await node.open()
        slow.respond_with(gate)
        prompt = await node.webhook(receiver.url)
        await node.store_event()
        await node.wait_for_attempt(prompt.id)
        hanging = [await node.webhook(f"{slow.url}/{number}") for number in range(3)]
        for _ in range(21):
            await node.store_event()
        await eventually(lambda: delivered(node, prompt.id, 22))
        assert gate.waiting == limits.in_flight // 2
        gate.open()
        for webhook in hanging:
            await eventually(lambda webhook=webhook: delivered(node, webhook.id, 21))  # type: ignore[misc]


@pytest.mark.parametrize(
    "limits",
    [
        DeliveryLimits(waiting_per_webhook=50),
        DeliveryLimits(waiting_bytes_per_webhook=50 * 300),
        DeliveryLimits(waiting_bytes=50 * 300),
    ],
    ids=["count", "bytes", "bytes of all webhooks"],
)
async def test_more_than_a_node_has_room_for(
    database_url: str, receiver: Receiver, limits: DeliveryLimits
) -> None:
    """The rest waits in the table, and is fetched in time, without waiting for the next poll."""
    async with delivery_nodes(database_url, limits=limits, poll_interval=30.0) as (node,):
        await node.open()
        webhook = await node.webhook(receiver.url)
        count = 150
        seen = [asyncio.Event() for _ in range(count)]
        for number in range(count):
            await node.intake.agent_event(
                node.account_id,
                "machine_x",
                1,
                number + 1,
                agent_event(),
                stored=seen[number].set,
            )
        await eventually(lambda: delivered(node, webhook.id, count))
        await receiver.wait_for(count)


_BODY_BYTES = len(b'{"event":"x"}')


@pytest.mark.parametrize(
    ("limits", "second"),
    [
        (DeliveryLimits(waiting_bytes_per_webhook=20 * _BODY_BYTES), 60),
        # Each webhook has its turn: what is in flight, and as many again that wait.
        (DeliveryLimits(waiting_bytes=20 * _BODY_BYTES), 16),
    ],
    ids=["bytes", "bytes of all webhooks"],
)
async def test_what_is_fetched_from_the_table_keeps_to_the_limits_on_bytes(
    database_url: str, receiver: Receiver, limits: DeliveryLimits, second: int
) -> None:
    gate = Gate()
    receiver.respond_with(gate)
    async with delivery_nodes(database_url, limits=limits) as (node,):
        webhooks = [await node.webhook(f"{receiver.url}/{number}") for number in range(2)]
        try:
            await node.store(webhooks[0].id, 60)
            await node.queue.claim()
            assert node.queue.claimed == 60
            await node.store(webhooks[0].id, 60)
            await node.store(webhooks[1].id, 60)
            for _ in range(5):
                await node.queue.claim()
            assert node.queue.claimed == 60 + second
            await eventually(lambda: gate.waiting == 2 * limits.in_flight_per_webhook)
        finally:
            await node.queue.close()


async def test_long_bodies_are_claimed_a_few_megabytes_at_a_time(
    node: DeliveryNode, receiver: Receiver
) -> None:
    webhook = await node.webhook(receiver.url)
    body = b" " * (deliveries.CLAIM_BYTES // 8)
    stored = await node.store(webhook.id, 20, body=body)
    found: list[str] = []
    now, more = int(node.clock() * 1000), True
    while more:
        claimed, more = await deliveries.claim(
            node.database, now=now, until=now + 1, limit=200, without=[]
        )
        assert 1 <= len(claimed) <= 8
        found += [delivery.id for delivery, _ in claimed]
    assert sorted(found) == sorted(delivery.id for delivery in stored)


async def test_two_nodes_deliver_each_once(database_url: str, receiver: Receiver) -> None:
    async with delivery_nodes(database_url, 2) as nodes:
        webhook = await nodes[0].webhook(receiver.url)
        await nodes[0].store(webhook.id, 500)
        for node in nodes:
            await node.open()
        await eventually(lambda: delivered(nodes[0], webhook.id, 500))
    attempts = Counter(request.headers["X-Service-Delivery"] for request in receiver.requests)
    assert len(attempts) == 500
    assert set(attempts.values()) == {1}


async def test_claims_of_a_node_that_died_run_out(node: DeliveryNode, receiver: Receiver) -> None:
    webhook = await node.webhook(receiver.url)
    until = int((node.clock() + delivery_queue.CLAIM_SECONDS) * 1000)
    (stored,) = await node.store(webhook.id, 1, claimed_until=until)
    node.queue.wake([webhook.id])
    await node.pass_time(delivery_queue.CLAIM_SECONDS - 1)
    await node.queue.claim()
    assert receiver.requests == []
    await node.pass_time(1)
    (taken,) = await receiver.wait_for(1)
    assert taken.headers["X-Service-Delivery"] == stored.id


async def test_what_is_in_hand_stays_claimed(node: DeliveryNode, receiver: Receiver) -> None:
    """However long its attempt takes, no other node takes it."""
    gate = Gate()
    receiver.respond_with(gate)
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    await eventually(lambda: gate.waiting == 1)
    node.clock.passes(delivery_queue.CLAIM_SECONDS - 1)
    await node.queue.renew()
    node.clock.passes(2)
    now = int(node.clock() * 1000)
    found, _ = await deliveries.claim(node.database, now=now, until=now, limit=9, without=[])
    assert not found
    gate.open()
    await eventually(lambda: delivered(node, webhook.id, 1))


async def test_the_end_gives_back_what_is_in_hand(database_url: str, receiver: Receiver) -> None:
    """No attempt begins once the node ends, and another one takes over at once."""
    gate = Gate()
    receiver.respond_with(gate)
    async with delivery_nodes(database_url, 2) as (first, second):
        webhook = await first.webhook(receiver.url)
        await first.open()
        for _ in range(30):
            await first.store_event()
        await eventually(lambda: gate.waiting == DEFAULT_LIMITS.in_flight_per_webhook)
        await first.close()
        assert len(receiver.requests) == DEFAULT_LIMITS.in_flight_per_webhook
        receiver.respond_with(response(200))
        gate.open()
        await second.open()
        await eventually(lambda: delivered(second, webhook.id, 30))


async def test_a_defect_does_not_keep_a_delivery(
    node: DeliveryNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again once its claim has run out."""
    webhook = await node.webhook(receiver.url)
    real, broken = node.sender.attempt, True

    async def attempt(**values: object) -> object:
        if broken:
            raise ZeroDivisionError
        return await real(**values)  # type: ignore[arg-type]

    monkeypatch.setattr(node.sender, "attempt", attempt)
    await node.store_event()
    await eventually(lambda: not node.queue.claimed)
    broken = False
    await node.pass_time(delivery_queue.CLAIM_SECONDS + 1)
    await eventually(lambda: delivered(node, webhook.id, 1))


async def test_a_replay_has_the_times_of_the_clock_that_nodes_share(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """The machine's own clock may be minutes ahead: the replay would wait for so long."""
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    node.clock.passes(5)
    await node.queue.replay(
        (await deliveries.of_webhook(node.database, webhook.id, limit=1, before=None))[0]
    )
    await receiver.wait_for(2)
    await eventually(lambda: delivered(node, webhook.id, 2))
    again, first = await node.history(webhook.id)
    assert again.created_at == int(node.clock() * 1000)
    assert again.event_id == first.event_id


async def test_age_of_the_queue(node: DeliveryNode, receiver: Receiver) -> None:
    gate = Gate()
    receiver.respond_with(gate)
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    await eventually(lambda: gate.waiting == 1)
    await node.pass_time(7)

    def age() -> float | None:
        return node.registry.get_sample_value("outrider_webhook_queue_age_seconds")

    await eventually(lambda: age() == 7.0)
    gate.open()
    await eventually(lambda: delivered(node, webhook.id, 1))
    await node.pass_time(1)
    await eventually(lambda: age() == 0.0)


async def test_webhooks_are_read_once_for_all_who_ask(
    node: DeliveryNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand deliveries that begin when what is remembered is too old read them once."""
    webhook = await node.webhook(receiver.url)
    await node.subscriptions.destination(webhook.id)
    node.clock.passes(2)
    real, reads = webhooks.of_account, 0

    async def of_account(*values: object) -> object:
        nonlocal reads
        reads += 1
        return await real(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(webhooks, "of_account", of_account)
    found = await asyncio.gather(*(node.subscriptions.destination(webhook.id) for _ in range(1000)))
    assert reads == 1
    assert all(item is not None for item in found)
    node.subscriptions.invalidate(node.account_id)
    await node.subscriptions.destination(webhook.id)
    assert reads == 2
