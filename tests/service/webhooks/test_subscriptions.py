"""The API of webhooks. Holds docs/webhooks.md."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from outrider.contract.account import PlanName
from outrider.contract.events import EventName
from outrider.contract.frames import Event
from outrider.service.webhooks.store import deliveries
from tests.rig.errors import assert_error, paths
from tests.rig.machine import ScriptedMachine
from tests.rig.people import dashboard, person
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import Receiver, one_after_another, response

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "/api/v1/webhooks"
RECORD = {
    "id",
    "url",
    "events",
    "active",
    "createdAt",
    "updatedAt",
    "lastDelivery",
    "disabledReason",
}
DELIVERY = {
    "id",
    "webhookId",
    "eventId",
    "event",
    "status",
    "statusCode",
    "responseBody",
    "error",
    "attempt",
    "durationMs",
    "createdAt",
    "completedAt",
    "nextAttemptAt",
    "attempts",
}
ATTEMPT = {"attempt", "statusCode", "responseBody", "error", "startedAt", "durationMs"}


class Subscriber:
    """An account with a dashboard session and a machine."""

    def __init__(self, owner: Owner, api: httpx.AsyncClient) -> None:
        self.owner = owner
        self.api = api
        self._seq = 0

    async def create_webhook(self, url: str, *events: str) -> dict[str, Any]:
        """Make a webhook."""
        body = {"url": url, "events": list(events) or ["*"]}
        response = await self.api.post(PATH, json=body)
        assert response.status_code == 201, response.text
        record: dict[str, Any] = response.json()
        return record

    async def report_event(self, machine: ScriptedMachine, **fields: Any) -> str:
        """Take a machine's event; return its id."""
        event = agent_event(**fields)
        self._seq += 1
        await machine.say(Event(seq=self._seq, event=event))
        return event.id

    async def deliveries(self, webhook: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
        """Return a webhook's deliveries."""
        response = await self.api.get(f"{PATH}/{webhook['id']}/deliveries{query}")
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["deliveries"]
        return found

    async def wait_for_deliveries(
        self, webhook: dict[str, Any], count: int = 1
    ) -> list[dict[str, Any]]:
        """Wait until so many deliveries have been tried; return them, newest first."""

        async def tried() -> bool:
            seen = await self.deliveries(webhook)
            return len([delivery for delivery in seen if delivery["attempt"]]) >= count

        await eventually(tried)
        return await self.deliveries(webhook)


async def subscriber(site: Site, plan: PlanName = "enterprise") -> Subscriber:
    owner = await person(site, plan)
    return Subscriber(owner, await dashboard(owner))


@pytest_asyncio.fixture(loop_scope="session")
async def me(site: Site, owner: Owner) -> Subscriber:
    return await subscriber(site)


async def test_create_shows_the_secret_once(me: Subscriber, receiver: Receiver) -> None:
    made = await me.create_webhook(receiver.url + "#part", "agent:error", "agent:error")
    assert made.keys() == RECORD | {"secret"}
    assert made["secret"].startswith("whsec_")
    assert made["id"].startswith("webhook_")
    assert (made["url"], made["events"]) == (receiver.url, ["agent:error"])
    assert (made["active"], made["lastDelivery"], made["disabledReason"]) == (True, None, None)
    key = me.owner.api
    (listed,) = (await key.get(PATH)).json()["webhooks"]
    assert listed == {name: made[name] for name in RECORD}


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"url": "http://127.0.0.1/", "events": []}, "events"),
        ({"url": "http://127.0.0.1/", "events": ["agent:nothing"]}, "events"),
        ({"url": "http://127.0.0.1/"}, "events"),
        ({"events": ["*"]}, "url"),
        ({"url": "ftp://127.0.0.1/", "events": ["*"]}, "url"),
        ({"url": "http://u:p@127.0.0.1/", "events": ["*"]}, "url"),
        ({"url": "http://169.254.169.254/latest", "events": ["*"]}, "url"),
        ({"url": "http://127.0.0.1/" + "x" * 2048, "events": ["*"]}, "url"),
    ],
)
async def test_create_refuses(me: Subscriber, body: dict[str, Any], path: str) -> None:
    assert paths(await me.api.post(PATH, json=body)) == [path]


async def test_private_addresses_need_the_operators_leave(start_site: Any) -> None:
    site = await start_site(webhook_allow_private=False)
    me = await subscriber(site)
    for url in ("http://127.0.0.1:9/", "http://localhost:9/", "http://10.0.0.1/"):
        response = await me.api.post(PATH, json={"url": url, "events": ["*"]})
        assert paths(response) == ["url"]


@pytest.mark.parametrize(("plan", "most"), [("free", 2), ("pro", 10), ("team", 50)])
async def test_plans_hold_with_fifty_at_once(
    site: Site, owner: Owner, plan: PlanName, most: int
) -> None:
    """docs/webhooks.md, Limits: maximum webhooks by plan."""
    me = await subscriber(site, plan)
    body = {"url": "http://127.0.0.1:9/", "events": ["*"]}
    answers = await asyncio.gather(*(me.api.post(PATH, json=body) for _ in range(most + 5)))
    made = [answer for answer in answers if answer.status_code == 201]
    assert len(made) == most
    for refused in (answer for answer in answers if answer.status_code != 201):
        assert str(most) in assert_error(refused, 403, "PLAN_LIMIT_EXCEEDED")["error"]
    assert len((await me.api.get(PATH)).json()["webhooks"]) == most
    removed = await me.api.delete(f"{PATH}/{made[0].json()['id']}")
    assert removed.json() == {"success": True, "id": made[0].json()["id"]}
    assert (await me.api.post(PATH, json=body)).status_code == 201


async def test_mutations_need_a_recent_login(me: Subscriber, receiver: Receiver) -> None:
    webhook = await me.create_webhook(receiver.url)
    own = f"{PATH}/{webhook['id']}"
    stale = await dashboard(me.owner, age=601)
    for client in (me.owner.api, stale):
        for method, path, body in (
            ("POST", PATH, {"url": receiver.url, "events": ["*"]}),
            ("PATCH", own, {"active": False}),
            ("DELETE", own, None),
            ("POST", f"{own}/test", None),
            ("POST", f"{own}/rotate-secret", None),
            ("POST", f"{own}/replay", {"since": 0}),
            ("POST", f"{own}/deliveries/dlv_x/resend", None),
        ):
            response = await client.request(method, path, json=body)
            assert_error(response, 403, "RECENT_LOGIN_REQUIRED")
        for path in (PATH, f"{own}/deliveries"):
            assert (await client.get(path)).status_code == 200
    assert receiver.requests == []


async def test_what_another_account_owns_is_not_there(
    me: Subscriber, site: Site, receiver: Receiver
) -> None:
    webhook = await me.create_webhook(receiver.url)
    (delivery,) = [(await me.api.post(f"{PATH}/{webhook['id']}/test")).json()["delivery"]]
    other = await subscriber(site)
    mine = await other.create_webhook(receiver.url)
    own = f"{PATH}/{webhook['id']}"
    for method, path, body in (
        ("PATCH", own, {"active": False}),
        ("DELETE", own, None),
        ("GET", f"{own}/deliveries", None),
        ("GET", f"{own}/deliveries/{delivery['id']}", None),
        ("POST", f"{own}/test", None),
        ("POST", f"{own}/rotate-secret", None),
        ("POST", f"{own}/replay", {"since": 0}),
        ("POST", f"{own}/deliveries/{delivery['id']}/resend", None),
        ("POST", f"{PATH}/{mine['id']}/deliveries/{delivery['id']}/resend", None),
        ("PATCH", f"{PATH}/webhook_x", {"active": False}),
    ):
        assert_error(await other.api.request(method, path, json=body), 404)
    assert len(receiver.requests) == 1
    assert (await me.api.get(PATH)).json()["webhooks"][0]["active"] is True


async def test_test_reaches_an_inactive_webhook_and_no_other(
    me: Subscriber, receiver: Receiver
) -> None:
    """docs/webhooks.md, Subscribe: also of those that are subscribed to it."""
    webhook = await me.create_webhook(receiver.url + "/this", "agent:error")
    await me.create_webhook(receiver.url + "/wildcard", "*")
    subscribed = await me.create_webhook(receiver.url + "/subscribed", "webhook:test")
    assert subscribed["events"] == ["webhook:test"]
    off = await me.api.patch(f"{PATH}/{webhook['id']}", json={"active": False})
    assert (off.status_code, off.json()["active"]) == (200, False)
    receiver.respond_with(one_after_another(response(200, "thanks"), response(500, "sorry")))
    first = (await me.api.post(f"{PATH}/{webhook['id']}/test")).json()
    second = (await me.api.post(f"{PATH}/{webhook['id']}/test")).json()
    assert (first["success"], second["success"]) == (True, False)
    assert first["delivery"].keys() == DELIVERY
    assert first["delivery"]["attempts"][0].keys() == ATTEMPT
    assert (first["delivery"]["status"], first["delivery"]["responseBody"]) == (
        "succeeded",
        "thanks",
    )
    assert (second["delivery"]["status"], second["delivery"]["statusCode"]) == ("pending", 500)
    taken = await receiver.wait_for(2)
    assert {request.path for request in taken} == {"/hook/this"}
    assert {request.event for request in taken} == {"webhook:test"}
    assert taken[0].verified(webhook["secret"])["id"] == first["delivery"]["eventId"]
    (shown, *others) = (await me.api.get(PATH)).json()["webhooks"]
    assert shown["lastDelivery"]["id"] == second["delivery"]["id"]
    assert [other["lastDelivery"] for other in others] == [None, None]


async def test_an_inactive_webhook_hears_nothing(me: Subscriber, receiver: Receiver) -> None:
    off = await me.create_webhook(receiver.url + "/off")
    await me.create_webhook(receiver.url + "/on")
    await me.api.patch(f"{PATH}/{off['id']}", json={"active": False})
    machine = await me.owner.machine()
    await me.report_event(machine)
    await receiver.wait_for(2)  # machine:connected, and the event
    assert {request.path for request in receiver.requests} == {"/hook/on"}
    assert await me.deliveries(off) == []


async def test_deliveries_are_paged(me: Subscriber, receiver: Receiver) -> None:
    webhook = await me.create_webhook(receiver.url)
    ids = [
        (await me.api.post(f"{PATH}/{webhook['id']}/test")).json()["delivery"]["id"]
        for _ in range(23)
    ]
    ids.reverse()

    async def shown(query: str) -> list[str]:
        return [delivery["id"] for delivery in await me.deliveries(webhook, query)]

    assert await shown("") == ids[:20]
    assert await shown("?limit=1") == ids[:1]
    assert await shown("?limit=100") == ids
    assert await shown(f"?limit=5&before={ids[4]}") == ids[5:10]
    assert await shown(f"?before={ids[-1]}") == []


@pytest.mark.one_store
@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=-1", "limit=x", "before=x"])
async def test_a_bad_page(me: Subscriber, receiver: Receiver, query: str) -> None:
    webhook = await me.create_webhook(receiver.url)
    response = await me.api.get(f"{PATH}/{webhook['id']}/deliveries?{query}")
    assert paths(response) == [query.partition("=")[0]]


def contents(directory: Path) -> bytes:
    """Return all that is in the files of a directory."""
    return b"".join(path.read_bytes() for path in directory.iterdir() if path.is_file())


@pytest.mark.one_store
async def test_secrets_are_sealed_in_the_file(
    me: Subscriber, site: Site, receiver: Receiver
) -> None:
    """SECURITY.md: encrypted at rest, in the write-ahead log too."""
    webhook = await me.create_webhook(receiver.url)
    rotated = (await me.api.post(f"{PATH}/{webhook['id']}/rotate-secret")).json()
    data = contents(site.settings.data_dir)
    assert webhook["id"].encode() in data
    for secret in (webhook["secret"], rotated["secret"]):
        assert secret.encode() not in data


async def test_rotation_signs_with_both_for_a_day(
    me: Subscriber, site: Site, receiver: Receiver
) -> None:
    webhook = await me.create_webhook(receiver.url)
    rotated = (await me.api.post(f"{PATH}/{webhook['id']}/rotate-secret")).json()
    assert rotated.keys() == RECORD | {"secret"}
    assert rotated["secret"] != webhook["secret"]
    assert "secret" not in (await me.api.get(PATH)).json()["webhooks"][0]
    await me.api.post(f"{PATH}/{webhook['id']}/test")
    (taken,) = await receiver.wait_for(1)
    assert taken.headers["X-Service-Signature"].count("v1=") == 2
    for secret in (webhook["secret"], rotated["secret"]):
        assert taken.verified(secret)["event"] == "webhook:test"


async def test_resend(me: Subscriber, receiver: Receiver) -> None:
    """The same event again, as a delivery of its own."""
    webhook = await me.create_webhook(receiver.url)
    first = (await me.api.post(f"{PATH}/{webhook['id']}/test")).json()["delivery"]
    path = f"{PATH}/{webhook['id']}/deliveries/{first['id']}/resend"
    again = (await me.api.post(path)).json()
    assert again["success"] is True
    assert again["delivery"]["id"] != first["id"]
    assert again["delivery"]["eventId"] == first["eventId"]
    sent, resent = await receiver.wait_for(2)
    assert sent.body == resent.body
    unknown = f"{PATH}/{webhook['id']}/deliveries/dlv_unknown/resend"
    assert_error(await me.api.post(unknown), 404)


async def test_a_delivery_has_the_request_that_was_sent(me: Subscriber, receiver: Receiver) -> None:
    webhook = await me.create_webhook(receiver.url)
    sent = (await me.api.post(f"{PATH}/{webhook['id']}/test")).json()["delivery"]
    (taken,) = await receiver.wait_for(1)
    read = await me.owner.api.get(f"{PATH}/{webhook['id']}/deliveries/{sent['id']}")
    assert read.status_code == 200, read.text
    delivery = read.json()
    assert delivery["requestBody"] == taken.body.decode()
    headers = delivery["requestHeaders"]
    assert headers.items() <= dict(taken.headers).items()
    assert headers["X-Service-Delivery"] == sent["id"]
    assert webhook["secret"] not in read.text
    assert "X-Service-Signature" not in headers
    assert {name: delivery[name] for name in sent} == sent
    assert_error(await me.api.get(f"{PATH}/{webhook['id']}/deliveries/dlv_unknown"), 404)


async def test_replay_makes_each_event_once(start_site: Any, receiver: Receiver) -> None:
    """Not those that were delivered after all, and not those before `since`."""
    site = await start_site(webhook_retry_delays=[0.01])
    me = await subscriber(site)
    webhook = await me.create_webhook(receiver.url, "agent:generating_started")
    machine = await me.owner.machine()
    receiver.respond_with(response(500))

    async def failed(count: int) -> bool:
        seen = await me.deliveries(webhook)
        return [delivery["status"] for delivery in seen].count("failed") == count

    old = await me.report_event(machine)
    await eventually(lambda: failed(1))
    since = (await me.deliveries(webhook))[0]["completedAt"] + 1
    made_up = await me.report_event(machine)
    await eventually(lambda: failed(2))
    receiver.respond_with(response(200))
    (delivery, _) = await me.deliveries(webhook)
    await me.api.post(f"{PATH}/{webhook['id']}/deliveries/{delivery['id']}/resend")
    receiver.respond_with(response(500))
    wanted = [await me.report_event(machine) for _ in range(3)]
    await eventually(lambda: failed(5))
    twice = (await me.deliveries(webhook))[0]
    await me.api.post(f"{PATH}/{webhook['id']}/deliveries/{twice['id']}/resend")
    await eventually(lambda: failed(6))
    receiver.respond_with(response(200))
    before = len(receiver.requests)
    replay = f"{PATH}/{webhook['id']}/replay"
    answer = await me.api.post(replay, json={"since": since})
    assert answer.json() == {"success": True, "count": 3}
    await receiver.wait_for(before + 3)
    assert sorted(request.json["id"] for request in receiver.requests[before:]) == sorted(wanted)
    assert {old, made_up}.isdisjoint(request.json["id"] for request in receiver.requests[before:])

    async def quiet() -> bool:
        answer = await me.api.post(replay, json={"since": since})
        return bool(answer.json()["count"] == 0)

    await eventually(quiet)
    assert paths(await me.api.post(replay, json={"since": -1})) == ["since"]


async def test_delete_takes_its_history_along(
    me: Subscriber, site: Site, receiver: Receiver
) -> None:
    webhook = await me.create_webhook(receiver.url)
    await me.api.post(f"{PATH}/{webhook['id']}/test")
    assert (await me.api.delete(f"{PATH}/{webhook['id']}")).status_code == 200
    assert_error(await me.api.delete(f"{PATH}/{webhook['id']}"), 404)
    assert await deliveries.of_webhook(site.database, webhook["id"], limit=1, before=None) == (
        [],
        False,
    )


async def test_the_body_has_both_shapes(me: Subscriber, receiver: Receiver) -> None:
    """docs/webhooks.md, The request: flat and envelope in one object."""
    await me.create_webhook(receiver.url, "agent:generating_completed", "agent:error")
    machine = await me.owner.machine()
    ide = f"{machine.id}:cli:claude-code"
    completed = await me.report_event(machine, name=EventName.GENERATING_COMPLETED, ide_id=ide)
    await me.report_event(
        machine, name=EventName.ERROR, ide_id="machine_other:cli:x", message="Broken"
    )
    taken = {request.event: request for request in await receiver.wait_for(2)}
    assert taken["agent:generating_completed"].json == {
        "id": completed,
        "event": "agent:generating_completed",
        "timestamp": 1_750_000_000_000,
        "daemonId": machine.id,
        "sessionId": "session_1",
        "targetId": f"{machine.id}:session:session_1",
        "ideId": ide,
        "ideType": "claude-code",
        "duration": 2.5,
        "payload": {
            "chatTitle": "Fix the build",
            "ideType": "claude-code",
            "duration": 2.5,
            "timestamp": 1_750_000_000_000,
            "sessionId": "session_1",
        },
    }
    broken = taken["agent:error"].json
    assert "duration" not in broken
    assert broken["payload"]["message"] == "Broken"
    assert broken["ideId"] == f"{machine.id}:session:session_1"  # another machine's: not believed
