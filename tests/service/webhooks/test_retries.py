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
from tests.rig.patience import eventually
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.office import Office, offices
from tests.service.webhooks.receiver import Receiver, one_after_another, says

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_retry_at_its_time_and_not_before(office: Office, receiver: Receiver) -> None:
    """Three retries with the chance at its ends; then the delivery has failed."""
    receiver.answers(says(500, "no"))
    webhook = await office.webhook(receiver.url)
    office.chance = 1.0
    await office.happens()
    for number, delay in enumerate((6.0, 30.0, 150.0), start=1):
        seen = await office.settles(webhook.id, number)
        assert seen.status == "pending"
        assert seen.next_attempt_at is not None
        ended = seen.attempts[-1].started_at + seen.attempts[-1].duration_ms
        assert seen.next_attempt_at == ended + delay * 1000
        before = (seen.next_attempt_at / 1000) - office.clock() - 0.001
        await office.waits(before)
        await office.queue.claim()
        assert len(receiver.taken) == number
        await office.waits(0.002)
    seen = await office.settles(webhook.id, 4)
    assert (seen.status, seen.status_code, seen.response_body) == ("failed", 500, "no")
    assert seen.next_attempt_at is None
    assert [one.attempt for one in seen.attempts] == [1, 2, 3, 4]
    taken = await receiver.takes(4)
    assert [one.headers["X-Service-Attempt"] for one in taken] == ["1", "2", "3", "4"]
    assert {one.headers["X-Service-Delivery"] for one in taken} == {seen.id}
    assert len({one.json["id"] for one in taken}) == 1


async def test_a_retry_that_succeeds(office: Office, receiver: Receiver) -> None:
    receiver.answers(one_after_another(says(503), says(204)))
    webhook = await office.webhook(receiver.url)
    await office.happens()
    await office.settles(webhook.id, 1)
    await office.waits(5.1)
    seen = await office.settles(webhook.id, 2)
    assert (seen.status, seen.status_code, seen.error) == ("succeeded", 204, None)
    assert [one.status_code for one in seen.attempts] == [503, 204]
    (shown,) = await office.subscriptions.list(office.account_id)
    assert shown.last_delivery is not None
    assert (shown.last_delivery.id, shown.last_delivery.status) == (seen.id, "succeeded")
    assert shown.last_delivery.status_code == 204
    metrics = generate_latest(office.registry).decode()
    assert 'outrider_webhook_attempts_total{outcome="failed"} 1.0' in metrics
    assert 'outrider_webhook_attempts_total{outcome="delivered"} 1.0' in metrics
    assert "outrider_webhook_attempt_seconds_count 2.0" in metrics


@pytest.mark.one_store
@pytest.mark.parametrize("status", [199 + 1, 201, 299])
async def test_any_2xx_is_a_success(office: Office, receiver: Receiver, status: int) -> None:
    receiver.answers(says(status))
    webhook = await office.webhook(receiver.url)
    await office.happens()
    assert (await office.settles(webhook.id)).status == "succeeded"


@pytest.mark.one_store
@pytest.mark.parametrize("status", [304, 400, 404, 429, 599])
async def test_anything_else_is_a_failure(office: Office, receiver: Receiver, status: int) -> None:
    receiver.answers(says(status))
    webhook = await office.webhook(receiver.url)
    await office.happens()
    seen = await office.settles(webhook.id)
    assert (seen.status, seen.status_code) == ("pending", status)
    assert seen.error is not None
    assert str(status) in seen.error


class TestRetryAfter:
    async def waited(self, office: Office, receiver: Receiver, value: str) -> float:
        """Return after how many seconds a delivery is tried again that was answered so."""
        receiver.answers(says(503, Retry_After=value))
        webhook = await office.webhook(receiver.url)
        await office.happens()
        seen = await office.settles(webhook.id)
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
        self, office: Office, receiver: Receiver, value: str, seconds: float
    ) -> None:
        assert await self.waited(office, receiver, value) == seconds

    async def test_a_date(self, office: Office, receiver: Receiver) -> None:
        date = datetime.fromtimestamp(office.clock() + 90, UTC)
        value = format_datetime(date, usegmt=True)
        assert await self.waited(office, receiver, value) == 90

    async def test_a_date_that_is_past(self, office: Office, receiver: Receiver) -> None:
        date = datetime.fromtimestamp(office.clock() - 90, UTC)
        assert await self.waited(office, receiver, format_datetime(date, usegmt=True)) == 5


async def test_410_switches_the_webhook_off(office: Office, receiver: Receiver) -> None:
    receiver.answers(says(410, "gone"))
    webhook = await office.webhook(receiver.url)
    await office.happens()
    seen = await office.settles(webhook.id)
    assert (seen.status, seen.next_attempt_at) == ("failed", None)

    (shown,) = await office.subscriptions.list(office.account_id)
    assert shown.active is False
    assert shown.disabled_reason is not None
    assert "410" in shown.disabled_reason
    await office.happens()
    await receiver.takes(1)
    again = await office.subscriptions.set_active(office.account_id, webhook.id, active=True)
    assert (again.active, again.disabled_reason) == (True, None)


async def test_410_switches_the_webhook_off_during_an_outage_too(
    database_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with offices(database_url, poll_interval=0.02) as (office,):
        real, outages = office.database.begin, 0

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

        monkeypatch.setattr(office.database, "begin", begin)
        receiver.answers(gone)
        await office.open()
        webhook = await office.webhook(receiver.url)
        await office.happens()
        assert (await office.settles(webhook.id)).status == "failed"

        async def disabled() -> bool:
            (shown,) = await office.subscriptions.list(office.account_id)
            return not shown.active and "410" in (shown.disabled_reason or "")

        await eventually(disabled)
        await receiver.takes(1)


async def test_what_waits_for_a_webhook_that_is_switched_off_fails(
    office: Office, receiver: Receiver
) -> None:
    receiver.answers(says(500))
    webhook = await office.webhook(receiver.url)
    await office.happens()
    await office.settles(webhook.id)
    await office.subscriptions.set_active(office.account_id, webhook.id, active=False)
    await office.waits(6)

    async def over() -> bool:
        return (await office.history(webhook.id))[0].status == "failed"

    await eventually(over)
    (seen,) = await office.history(webhook.id)
    assert seen.error == "The webhook is disabled"
    assert seen.attempt == 1, "it was sent once"
    assert [one.attempt for one in seen.attempts] == [1, 2]
    await receiver.takes(1)


async def test_what_waits_for_a_webhook_that_is_deleted_is_not_delivered(
    office: Office, receiver: Receiver
) -> None:
    receiver.answers(says(500))
    webhook = await office.webhook(receiver.url)
    other = await office.webhook(receiver.url + "/other")
    await office.happens()
    await office.settles(webhook.id)
    await office.settles(other.id)
    await office.subscriptions.remove(office.account_id, webhook.id)
    await office.waits(6)
    await office.settles(other.id, 2)
    assert await office.history(webhook.id) == []
    assert [one.path for one in receiver.taken].count("/hook") == 1


async def test_five_days_of_failures_switch_off(office: Office, receiver: Receiver) -> None:
    """Five days of nothing but failures; a success in between begins them anew."""

    async def fails(after: float) -> bool:
        """Fail a delivery for good after some time; return whether the webhook is active."""
        office.clock.passes(after)
        count = len(await office.history(webhook.id))
        await office.happens()
        for number, delay in enumerate((0.0, 5.1, 25.1, 125.1), start=1):
            await office.waits(delay)
            await office.settles(webhook.id, number)
        assert len(await office.history(webhook.id)) == count + 1
        (shown,) = await office.subscriptions.list(office.account_id)
        return shown.active

    day = 86400.0
    receiver.answers(says(500))
    webhook = await office.webhook(receiver.url)
    assert await fails(0)
    assert await fails(4.9 * day)
    receiver.answers(says(200))
    await office.happens()
    await office.settles(webhook.id)
    receiver.answers(says(500))
    assert await fails(0.2 * day)
    assert await fails(4.9 * day)
    await fails(0.2 * day)

    async def disabled() -> bool:  # just after the last outcome is stored
        (shown,) = await office.subscriptions.list(office.account_id)
        return not shown.active and "5 days" in (shown.disabled_reason or "")

    await eventually(disabled)


async def test_unicode_and_a_long_title(office: Office, receiver: Receiver) -> None:
    webhook = await office.webhook(receiver.url)
    title = "Grüße 🎉 \u2028 \x7f \\ \" ' 日本語 \U0010ffff"
    long = "é🎉x" * 300
    for wanted in (title, long, "", None):
        event = agent_event(chat_title=wanted)
        await office.happens(event)
        await office.settles(webhook.id)
        (taken,) = [one for one in receiver.taken if one.json["id"] == event.id]
        assert taken.json["payload"]["chatTitle"] == wanted


async def test_a_secret_of_another_key_stops_nobody_else(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUTRIDER_SECRET_KEY was changed: the webhook's deliveries fail, saying so."""
    broken = await office.webhook(receiver.url + "/broken")
    sound = await office.webhook(receiver.url + "/sound")
    sealed = Cipher("x" * 32).encrypt(b"whsec_x", "webhook secret")
    await webhooks.change(office.database, office.account_id, broken.id, {"secret": sealed})
    office.subscriptions.invalidate(office.account_id)
    await office.happens()
    await office.settles(sound.id)

    async def over() -> bool:
        return (await office.history(broken.id))[0].status == "failed"

    await eventually(over)
    (seen,) = await office.history(broken.id)
    assert seen.error is not None
    assert "OUTRIDER_SECRET_KEY" in seen.error
    assert [one.path for one in receiver.taken] == ["/hook/sound"]


async def test_wildcard_and_names(office: Office, receiver: Receiver) -> None:
    everything = await office.webhook(receiver.url + "/all", "*")
    errors = await office.webhook(receiver.url + "/errors", "agent:error", "machine:connected")
    await office.happens()
    await office.happens(agent_event(EventName.ERROR, message="It broke"))
    await office.settles(errors.id)
    await office.settles(everything.id, index=1)
    taken = await receiver.takes(3)
    received = sorted((one.path, one.event) for one in taken)
    assert received == [
        ("/hook/all", "agent:error"),
        ("/hook/all", "agent:generating_started"),
        ("/hook/errors", "agent:error"),
    ]


async def test_prune_keeps_what_is_younger_than_30_days(office: Office, receiver: Receiver) -> None:
    webhook = await office.webhook(receiver.url)
    old = await office.happens()
    await office.settles(webhook.id)
    office.clock.passes(1000)
    young = await office.happens()
    await office.settles(webhook.id, index=1)
    await office.settles(webhook.id)
    start = office.clock()
    await prune(office.database, start + 30 * 86400 - 1001)
    assert len(await office.history(webhook.id)) == 2
    await prune(office.database, start + 30 * 86400 - 500)
    assert [one.event_id for one in await office.history(webhook.id)] == [young.id]
    assert old.id != young.id


async def test_prune_and_removal_take_small_batches(office: Office, receiver: Receiver) -> None:
    """A long history goes in pieces, and the events that are nobody's with it."""
    webhook = await office.webhook(receiver.url)
    stays = await office.webhook(receiver.url + "/stays")
    count = 2 * deliveries.PRUNE_BATCH + 7
    await office.store(webhook.id, count)
    await office.store(stays.id, 1)

    async def over() -> bool:
        history = [*await office.history(webhook.id), *await office.history(stays.id)]
        return all(one.status == "succeeded" for one in history)

    office.queue.wake()
    await eventually(over)
    await office.subscriptions.remove(office.account_id, webhook.id)
    assert await office.history(webhook.id) == []
    assert len(await office.history(stays.id)) == 1

    async def events() -> int:
        async with office.database.read() as connection:
            counted = await connection.scalar(select(func.count()).select_from(tables.events))
            return counted or 0

    assert await events() == count + 1
    await prune(office.database, office.clock() + 29 * 86400)
    assert await events() == count + 1
    await prune(office.database, office.clock() + 31 * 86400)
    assert await events() == count + 1  # they are in the log
    await prune_log(office.database, office.clock() + 31 * 86400, keep=0)
    assert await events() == 0
    assert await office.history(stays.id) == []
