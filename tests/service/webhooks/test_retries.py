"""When a delivery is tried again, and when no more. Holds docs/webhooks.md."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from aiohttp import web
from prometheus_client import generate_latest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from outrider.contract.events import EventName
from outrider.service.accounts.encryption import Cipher
from outrider.service.database import tables
from outrider.service.webhooks.retention import prune, prune_log
from outrider.service.webhooks.store import deliveries, webhooks
from tests.rig.waiting import eventually
from tests.service.webhooks.delivery_node import DeliveryNode, delivery_nodes
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import Receiver, one_after_another, response

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_retry_at_its_time_and_not_before(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """Three retries with the chance at its ends; then the delivery has failed."""
    receiver.respond_with(response(500, "no"))
    webhook = await node.webhook(receiver.url)
    node.chance = 1.0
    await node.store_event()
    for number, delay in enumerate((6.0, 30.0, 150.0), start=1):
        seen = await node.wait_for_attempt(webhook.id, number)
        assert seen.status == "pending"
        assert seen.next_attempt_at is not None
        ended = seen.attempts[-1].started_at + seen.attempts[-1].duration_ms
        assert seen.next_attempt_at == ended + delay * 1000
        before = (seen.next_attempt_at / 1000) - node.clock() - 0.001
        await node.pass_time(before)
        await node.queue.claim()
        assert len(receiver.requests) == number
        await node.pass_time(0.002)
    seen = await node.wait_for_attempt(webhook.id, 4)
    assert (seen.status, seen.status_code, seen.response_body) == ("failed", 500, "no")
    assert seen.next_attempt_at is None
    assert [delivery.attempt for delivery in seen.attempts] == [1, 2, 3, 4]
    taken = await receiver.wait_for(4)
    assert [request.headers["X-Service-Attempt"] for request in taken] == ["1", "2", "3", "4"]
    assert {request.headers["X-Service-Delivery"] for request in taken} == {seen.id}
    assert len({request.json["id"] for request in taken}) == 1


async def test_a_retry_that_succeeds(node: DeliveryNode, receiver: Receiver) -> None:
    receiver.respond_with(one_after_another(response(503), response(204)))
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    await node.wait_for_attempt(webhook.id, 1)
    await node.pass_time(5.1)
    seen = await node.wait_for_attempt(webhook.id, 2)
    assert (seen.status, seen.status_code, seen.error) == ("succeeded", 204, None)
    assert [delivery.status_code for delivery in seen.attempts] == [503, 204]
    (shown,) = await node.subscriptions.list(node.account_id)
    assert shown.last_delivery is not None
    assert (shown.last_delivery.id, shown.last_delivery.status) == (seen.id, "succeeded")
    assert shown.last_delivery.status_code == 204
    metrics = generate_latest(node.registry).decode()
    assert 'outrider_webhook_attempts_total{outcome="failed"} 1.0' in metrics
    assert 'outrider_webhook_attempts_total{outcome="delivered"} 1.0' in metrics
    assert "outrider_webhook_attempt_seconds_count 2.0" in metrics


@pytest.mark.one_store
@pytest.mark.parametrize("status", [199 + 1, 201, 299])
async def test_any_2xx_is_a_success(node: DeliveryNode, receiver: Receiver, status: int) -> None:
    receiver.respond_with(response(status))
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    assert (await node.wait_for_attempt(webhook.id)).status == "succeeded"


@pytest.mark.one_store
@pytest.mark.parametrize("status", [304, 400, 404, 429, 599])
async def test_anything_else_is_a_failure(
    node: DeliveryNode, receiver: Receiver, status: int
) -> None:
    receiver.respond_with(response(status))
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    seen = await node.wait_for_attempt(webhook.id)
    assert (seen.status, seen.status_code) == ("pending", status)
    assert seen.error is not None
    assert str(status) in seen.error


class TestRetryAfter:
    async def waited(self, node: DeliveryNode, receiver: Receiver, value: str) -> float:
        """Return after how many seconds a delivery is tried again that was answered so."""
        receiver.respond_with(response(503, Retry_After=value))
        webhook = await node.webhook(receiver.url)
        await node.store_event()
        seen = await node.wait_for_attempt(webhook.id)
        assert seen.next_attempt_at is not None
        ended = seen.attempts[0].started_at + seen.attempts[0].duration_ms
        return (seen.next_attempt_at - ended) / 1000

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            ("60", 60),
            ("1", 5),
            ("3601", 3600),
            ("99999999999999999999", 3600),
            ("-5", 5),
            ("soon", 5),
            ("", 5),
            ("٣٠", 5),
            ("Fri, 99 Foo 2025 00:00:00 GMT", 5),
            ("Mon, 01 Jan 0001 00:00:00 +2359", 5),
            ("Fri, 31 Dec 9999 23:59:59 -2359", 3600),
            ("Fri, 01 Jan 99999999999 00:00:00 GMT", 5),
        ],
    )
    async def test_seconds(
        self, node: DeliveryNode, receiver: Receiver, value: str, seconds: float
    ) -> None:
        assert await self.waited(node, receiver, value) == seconds

    async def test_a_date(self, node: DeliveryNode, receiver: Receiver) -> None:
        date = datetime.fromtimestamp(node.clock() + 90, UTC)
        value = format_datetime(date, usegmt=True)
        assert await self.waited(node, receiver, value) == 90

    async def test_a_date_that_is_past(self, node: DeliveryNode, receiver: Receiver) -> None:
        date = datetime.fromtimestamp(node.clock() - 90, UTC)
        assert await self.waited(node, receiver, format_datetime(date, usegmt=True)) == 5


async def test_410_switches_the_webhook_off(node: DeliveryNode, receiver: Receiver) -> None:
    receiver.respond_with(response(410, "gone"))
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    seen = await node.wait_for_attempt(webhook.id)
    assert (seen.status, seen.next_attempt_at) == ("failed", None)

    (shown,) = await node.subscriptions.list(node.account_id)
    assert shown.active is False
    assert shown.disabled_reason is not None
    assert "410" in shown.disabled_reason
    await node.store_event()
    await receiver.wait_for(1)
    again = await node.subscriptions.set_active(node.account_id, webhook.id, active=True)
    assert (again.active, again.disabled_reason) == (True, None)


async def test_410_switches_the_webhook_off_during_an_outage_too(
    database_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with delivery_nodes(database_url, poll_interval=0.02) as (node,):
        real, outages = node.database.begin, 0

        def begin() -> object:
            nonlocal outages
            if outages:
                outages -= 1
                raise OperationalError("BEGIN", {}, Exception("the server has gone"))
            return real()

        async def gone(_: web.Request) -> web.StreamResponse:
            nonlocal outages
            outages = 1
            return web.Response(status=410)

        monkeypatch.setattr(node.database, "begin", begin)
        receiver.respond_with(gone)
        await node.open()
        webhook = await node.webhook(receiver.url)
        await node.store_event()
        assert (await node.wait_for_attempt(webhook.id)).status == "failed"

        async def disabled() -> bool:
            (shown,) = await node.subscriptions.list(node.account_id)
            return not shown.active and "410" in (shown.disabled_reason or "")

        await eventually(disabled)
        await receiver.wait_for(1)


async def test_what_waits_for_a_webhook_that_is_switched_off_fails(
    node: DeliveryNode, receiver: Receiver
) -> None:
    receiver.respond_with(response(500))
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    await node.subscriptions.set_active(node.account_id, webhook.id, active=False)
    await node.pass_time(6)

    async def over() -> bool:
        return (await node.history(webhook.id))[0].status == "failed"

    await eventually(over)
    (seen,) = await node.history(webhook.id)
    assert seen.error == "The webhook is disabled"
    assert seen.attempt == 1, "it was sent once"
    assert [delivery.attempt for delivery in seen.attempts] == [1, 2]
    await receiver.wait_for(1)


async def test_what_waits_for_a_webhook_that_is_deleted_is_not_delivered(
    node: DeliveryNode, receiver: Receiver
) -> None:
    receiver.respond_with(response(500))
    webhook = await node.webhook(receiver.url)
    other = await node.webhook(receiver.url + "/other")
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    await node.wait_for_attempt(other.id)
    await node.subscriptions.remove(node.account_id, webhook.id)
    await node.pass_time(6)
    await node.wait_for_attempt(other.id, 2)
    assert await node.history(webhook.id) == []
    assert [request.path for request in receiver.requests].count("/hook") == 1


async def test_five_days_of_failures_switch_off(node: DeliveryNode, receiver: Receiver) -> None:
    """Five days of nothing but failures; a success in between begins them anew."""

    async def fails(after: float) -> bool:
        """Fail a delivery for good after some time; return whether the webhook is active."""
        node.clock.passes(after)
        count = len(await node.history(webhook.id))
        await node.store_event()
        for number, delay in enumerate((0.0, 5.1, 25.1, 125.1), start=1):
            await node.pass_time(delay)
            await node.wait_for_attempt(webhook.id, number)
        assert len(await node.history(webhook.id)) == count + 1
        (shown,) = await node.subscriptions.list(node.account_id)
        return shown.active

    day = 86400.0
    receiver.respond_with(response(500))
    webhook = await node.webhook(receiver.url)
    assert await fails(0)
    assert await fails(4.9 * day)
    receiver.respond_with(response(200))
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    receiver.respond_with(response(500))
    assert await fails(0.2 * day)
    assert await fails(4.9 * day)
    await fails(0.2 * day)

    async def disabled() -> bool:  # just after the last outcome is stored
        (shown,) = await node.subscriptions.list(node.account_id)
        return not shown.active and "5 days" in (shown.disabled_reason or "")

    await eventually(disabled)


async def test_unicode_and_a_long_title(node: DeliveryNode, receiver: Receiver) -> None:
    webhook = await node.webhook(receiver.url)
    title = "Grüße 🎉 \u2028 \x7f \\ \" ' 日本語 \U0010ffff"
    long = "é🎉x" * 300
    for wanted in (title, long, "", None):
        event = agent_event(chat_title=wanted)
        await node.store_event(event)
        await node.wait_for_attempt(webhook.id)
        (taken,) = [request for request in receiver.requests if request.json["id"] == event.id]
        assert taken.json["payload"]["chatTitle"] == wanted


async def test_a_secret_of_another_key_stops_nobody_else(
    node: DeliveryNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUTRIDER_SECRET_KEY was changed: the webhook's deliveries fail, saying so."""
    broken = await node.webhook(receiver.url + "/broken")
    sound = await node.webhook(receiver.url + "/sound")
    sealed = Cipher("x" * 32).encrypt(b"whsec_x", "webhook secret")
    await webhooks.change(node.database, node.account_id, broken.id, {"secret": sealed})
    node.subscriptions.invalidate(node.account_id)
    await node.store_event()
    await node.wait_for_attempt(sound.id)

    async def over() -> bool:
        return (await node.history(broken.id))[0].status == "failed"

    await eventually(over)
    (seen,) = await node.history(broken.id)
    assert seen.error is not None
    assert "OUTRIDER_SECRET_KEY" in seen.error
    assert [request.path for request in receiver.requests] == ["/hook/sound"]


async def test_wildcard_and_names(node: DeliveryNode, receiver: Receiver) -> None:
    everything = await node.webhook(receiver.url + "/all", "*")
    errors = await node.webhook(receiver.url + "/errors", "agent:error", "machine:connected")
    await node.store_event()
    await node.store_event(agent_event(EventName.ERROR, message="It broke"))
    await node.wait_for_attempt(errors.id)
    await node.wait_for_attempt(everything.id, index=1)
    taken = await receiver.wait_for(3)
    received = sorted((request.path, request.event) for request in taken)
    assert received == [
        ("/hook/all", "agent:error"),
        ("/hook/all", "agent:generating_started"),
        ("/hook/errors", "agent:error"),
    ]


async def test_prune_keeps_what_is_younger_than_30_days(
    node: DeliveryNode, receiver: Receiver
) -> None:
    webhook = await node.webhook(receiver.url)
    old = await node.store_event()
    await node.wait_for_attempt(webhook.id)
    node.clock.passes(1000)
    young = await node.store_event()
    await node.wait_for_attempt(webhook.id, index=1)
    await node.wait_for_attempt(webhook.id)
    start = node.clock()
    await prune(node.database, start + 30 * 86400 - 1001)
    assert len(await node.history(webhook.id)) == 2
    await prune(node.database, start + 30 * 86400 - 500)
    assert [delivery.event_id for delivery in await node.history(webhook.id)] == [young.id]
    assert old.id != young.id


async def test_prune_and_removal_take_small_batches(node: DeliveryNode, receiver: Receiver) -> None:
    """A long history goes in pieces, and the events that are nobody's with it."""
    webhook = await node.webhook(receiver.url)
    stays = await node.webhook(receiver.url + "/stays")
    count = 2 * deliveries.PRUNE_BATCH + 7
    await node.store(webhook.id, count)
    await node.store(stays.id, 1)

    async def over() -> bool:
        history = [*await node.history(webhook.id), *await node.history(stays.id)]
        return all(delivery.status == "succeeded" for delivery in history)

    node.queue.wake([webhook.id, stays.id])
    await eventually(over)
    await node.subscriptions.remove(node.account_id, webhook.id)
    assert await node.history(webhook.id) == []
    assert len(await node.history(stays.id)) == 1

    async def events() -> int:
        async with node.database.read() as connection:
            counted = await connection.scalar(select(func.count()).select_from(tables.events))
            return counted or 0

    assert await events() == count + 1
    await prune(node.database, node.clock() + 29 * 86400)
    assert await events() == count + 1
    await prune(node.database, node.clock() + 31 * 86400)
    assert await events() == count + 1  # they are in the log
    await prune_log(node.database, node.clock() + 31 * 86400, keep=0)
    assert await events() == 0
    assert await node.history(stays.id) == []
