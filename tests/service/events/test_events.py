"""GET /api/v1/events over real connections. Holds docs/events.md."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.contract.events import REPORTED_EVENTS, ChatMessage, EventName
from outrider.contract.frames import Delta, Event, WatchDeltas
from outrider.contract.ids import new_id
from outrider.contract.resources import ActionOption, PendingAction
from outrider.service.accounts import credentials
from outrider.service.accounts.store import api_keys
from outrider.service.events import log as event_log
from outrider.service.events.log import Event as StoredEvent
from outrider.service.events.streams import StreamTimes
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.event_stream import PATH, STREAM, EventStreamClient, event_stream
from tests.rig.machine import ScriptedMachine
from tests.rig.people import dashboard, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import agent_event

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUICK = StreamTimes(heartbeat=0.05, check=0.05, poll=0.05)
OLDEST = "0"


async def report(machine: ScriptedMachine, first: int, count: int) -> list[str]:
    """Have a machine report events; return their ids."""
    events = [agent_event(session_id=f"session_{number % 2}") for number in range(count)]
    await machine.say(*(Event(seq=first + i, event=event) for i, event in enumerate(events)))
    return [event.id for event in events]


async def logged(owner: Owner, **query: Any) -> list[dict[str, Any]]:
    """Return the events of the account's log."""
    response = await owner.api.get(PATH, params={"limit": 500, **query})
    assert response.status_code == 200, response.text
    events: list[dict[str, Any]] = response.json()["events"]
    return events


async def store(owner: Owner, count: int, text: str = "") -> list[str]:
    """Put events into the account's log that cause no wake-up; return their ids."""
    body = json.dumps({"daemonId": "machine_1", "text": text}).encode()
    events = [StoredEvent(new_id("evt"), owner.id, "agent:error", body, 0) for _ in range(count)]
    async with owner.site.database.begin() as transaction:
        await event_log.append(transaction, events)
    return [event.id for event in events]


async def test_a_stream_has_what_happens_from_now_on(owner: Owner) -> None:
    await owner.machine()
    async with event_stream(owner.api) as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        ready = await stream.next()
        assert (ready.event, ready.id) == ("stream:ready", None)
        assert ready.data["resume"] == "fresh"
        machine = await owner.machine()
        connected = await stream.next()
        assert connected.event == "machine:connected"
        assert connected.data["daemonId"] == machine.id
        ids = await report(machine, 1, 3)
        events = await stream.events(3)
        assert [event.data["id"] for event in events] == ids
        assert {event.event for event in events} == {"agent:generating_started"}
        cursors = [str(event.id) for event in (connected, *events)]
        assert cursors == sorted(set(cursors))
        assert ready.data["cursor"] < cursors[0]


async def test_an_event_is_the_same_in_a_stream_and_on_a_page(owner: Owner) -> None:
    machine = await owner.machine()
    await report(machine, 1, 1)
    async with event_stream(owner.api, OLDEST) as stream:
        frames = (await stream.next(), await stream.next(), await stream.next())[1:]
    page = await logged(owner)
    assert [{"cursor": frame.id, **frame.data} for frame in frames] == page
    body = page[1]
    assert body["targetId"] == f"{machine.id}:session:{body['sessionId']}"


async def test_resuming_gives_everything_once_and_in_order(owner: Owner) -> None:
    """While machines and another node write, and the client connects again and again."""
    machines = [await owner.machine() for _ in range(3)]

    async def writes(machine: ScriptedMachine) -> None:
        for batch in range(10):
            await report(machine, 1 + 10 * batch, 10)

    async def other_node() -> None:
        for _ in range(20):
            await store(owner, 5)

    total = 3 + 300 + 100
    seen: list[str] = []
    cursor = OLDEST
    async with asyncio.timeout(2 * TIMEOUT), asyncio.TaskGroup() as tasks:
        for machine in machines:
            tasks.create_task(writes(machine))
        tasks.create_task(other_node())
        while len(seen) < total:
            async with event_stream(owner.api, cursor) as stream:
                assert (await stream.next()).data["resume"] == "ok"
                for _ in range(min(57, total - len(seen))):
                    frame = await stream.next()
                    assert frame.id is not None
                    cursor = frame.id
                    seen.append(cursor)
    page = await logged(owner)
    assert [event["cursor"] for event in page] == seen
    assert len(set(seen)) == total


@pytest.mark.parametrize("cursor", ["evt_nonsense", "9" * 16, "-1", "x" * 1000])
async def test_an_unknown_cursor_is_a_gap(owner: Owner, cursor: str) -> None:
    await store(owner, 2)
    newest = (await logged(owner))[-1]["cursor"]
    async with event_stream(owner.api, after=cursor) as stream:
        assert (await stream.next()).data == {"resume": "gap", "cursor": newest}
    async with event_stream(owner.api, cursor) as stream:
        assert (await stream.next()).data == {"resume": "gap", "cursor": newest}
        machine = await owner.machine()
        assert (await stream.next()).data["daemonId"] == machine.id
    page = await owner.api.get(PATH, params={"after": cursor, "wait": 60})
    assert page.status_code == 200
    assert page.json()["resume"] == "gap"
    assert page.json()["events"] == []


async def test_a_cursor_older_than_the_log_is_a_gap(owner: Owner) -> None:
    await store(owner, 10)
    known = [event["cursor"] for event in await logged(owner)]
    await event_log.raise_floor(owner.site.database, owner.id, before=1, keep=5)
    await event_log.prune(owner.site.database, owner.id)
    for cursor, resume in ((known[3], "gap"), (known[4], "ok")):
        async with event_stream(owner.api, cursor) as stream:
            assert (await stream.next()).data["resume"] == resume
    assert [event["cursor"] for event in await logged(owner)] == known[5:]


async def test_last_event_id_takes_precedence_over_the_query(owner: Owner) -> None:
    """An EventSource connects again with the address that it began with."""
    await store(owner, 3)
    cursors = [event["cursor"] for event in await logged(owner)]
    async with event_stream(owner.api, after=cursors[1]) as stream:
        await stream.next()
        assert (await stream.next()).id == cursors[2]
    async with owner.api.stream("GET", PATH, headers=STREAM, params={"after": cursors[0]}) as got:
        client = EventStreamClient(got)
        assert (await client.next()).data == {"resume": "ok", "cursor": cursors[0]}
        assert (await client.next()).id == cursors[1]


async def test_pages(owner: Owner) -> None:
    await store(owner, 7)
    everything = [event["cursor"] for event in await logged(owner)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = (await owner.api.get(PATH, params=query)).json()
        assert page["resume"] == ("ok" if seen else "fresh")
        if not page["events"]:
            break
        assert page["cursor"] == page["events"][-1]["cursor"]
        seen += [event["cursor"] for event in page["events"]]
        query["after"] = page["cursor"]
    assert seen == everything
    assert page["cursor"] == everything[-1]


async def test_a_page_waits_for_the_first_event(owner: Owner) -> None:
    machine = await owner.machine()
    cursor = (await logged(owner))[-1]["cursor"]
    waiting = owner.sends("GET", f"{PATH}?wait=60&after={cursor}&events=agent:*")
    assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
    ids = await report(machine, 1, 1)
    async with asyncio.timeout(TIMEOUT):
        page = (await waiting).json()
    assert [event["id"] for event in page["events"]] == ids
    empty = await owner.api.get(PATH, params={"after": page["cursor"]})
    assert empty.json() == {"events": [], "cursor": page["cursor"], "resume": "ok"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "501"),
        ("wait", "61"),
        ("deltas", "yes"),
        ("events", "agent:nothing"),
        ("events", "agent"),
        ("target", "nonsense"),
    ],
)
async def test_a_wrong_query(owner: Owner, name: str, value: str) -> None:
    response = await owner.api.get(PATH, params={name: value}, headers=STREAM)
    (detail,) = assert_error(response, 400)["details"]
    assert detail["path"] == name


async def test_another_account_s_machine_is_as_one_that_does_not_exist(
    owner: Owner, site: Site
) -> None:
    theirs = (await (await site.account()).machine()).id
    for machine in (theirs, "machine_none"):
        for query in ({"daemonId": machine}, {"target": f"{machine}:session:session_1"}):
            assert_error(await owner.api.get(PATH, params=query), 404)
            assert_error(await owner.api.get(PATH, params=query, headers=STREAM), 404)


async def test_a_credential_without_both_scopes(owner: Owner) -> None:
    client = await owner.may("terminal:exec", "webhook:manage")
    for headers in ({}, STREAM):
        assert_error(await client.get(PATH, headers=headers), 403, "AUTH_FORBIDDEN")


async def test_at_most_ten_streams_of_a_credential(owner: Owner) -> None:
    other = await owner.may("agent:read")
    async with AsyncExitStack() as streams:
        # Kept: httpx closes a response whose lines nobody can read any more.
        clients = [await streams.enter_async_context(event_stream(owner.api)) for _ in range(10)]
        for client in clients:
            await client.next()
        refused = await owner.api.get(PATH, headers=STREAM)
        assert_error(refused, 429, "STREAM_LIMIT")
        assert int(refused.headers["retry-after"]) > 0
        assert (await owner.api.get(PATH)).status_code == 200
        async with event_stream(other) as stream:
            await stream.next()

    async def has_room() -> bool:
        async with event_stream(owner.api) as stream:
            return stream.response.status_code == 200

    await eventually(has_room)


@pytest_asyncio.fixture(loop_scope="session")
async def quick(start_site: StartSite) -> AsyncIterator[Owner]:
    """An account of a service whose streams have short intervals."""
    site = await start_site(stream_times=QUICK)
    async with site.visit():
        yield await person(site)


async def test_heartbeats_have_the_cursor_up_to_which_everything_was_sent(quick: Owner) -> None:
    async with event_stream(quick.api, events="machine:*") as stream:
        ready = await stream.next()
        heartbeat = await stream.until("stream:heartbeat")
        assert (heartbeat.id, heartbeat.data) == (None, {"cursor": ready.data["cursor"]})
        await store(quick, 3)  # not selected
        newest = (await logged(quick))[-1]["cursor"]
        while heartbeat.data["cursor"] != newest:
            assert heartbeat.data["cursor"] < newest
            heartbeat = await stream.until("stream:heartbeat")
    assert not [frame for frame in stream.frames if frame.id]


async def test_an_event_without_a_wake_up_arrives(quick: Owner) -> None:
    """Redis may fail: the database is read again from time to time."""
    async with event_stream(quick.api) as stream:
        await stream.next()
        await store(quick, 1)
        assert (await stream.next()).event == "agent:error"
        cursor = (await logged(quick))[-1]["cursor"]
        waiting = quick.sends("GET", f"{PATH}?wait=60&after={cursor}")
        await store(quick, 1)
        async with asyncio.timeout(TIMEOUT):
            assert len((await waiting).json()["events"]) == 1


async def test_revoking_a_key_ends_its_streams_only(quick: Owner) -> None:
    key = await quick.site.key(quick.id)
    async with event_stream(quick.site.client(key)) as mine, event_stream(quick.api) as other:
        await mine.next()
        known = await api_keys.by_hash(quick.site.database, credentials.digest(key))
        assert known is not None
        await api_keys.revoke(quick.site.database, known.id, 1)
        end = await mine.next()
        assert end.event == "stream:end"
        assert end.data["reason"] == "unauthorized"
        assert end.data["retryAfterMs"] > 0
        assert await mine.ended()
        await other.next()
        await other.until("stream:heartbeat")


async def test_the_end_of_a_session_ends_its_streams(quick: Owner) -> None:
    page = await dashboard(quick)
    async with event_stream(page) as stream:
        await stream.next()
        assert (
            await (await dashboard(quick)).delete("/api/v1/account/sessions")
        ).status_code == 200
        assert (await stream.next()).data["reason"] == "unauthorized"
        assert await stream.ended()


@pytest.mark.one_store
async def test_a_stream_ends_at_its_greatest_age(start_site: StartSite) -> None:
    owner = await (await start_site(stream_times=StreamTimes(max_age=0.2))).account()
    async with event_stream(owner.api) as stream:
        await stream.next()
        assert (await stream.next()).data["reason"] == "max_age"
        assert await stream.ended()


async def test_a_node_that_drains_hands_its_streams_on(start_site: StartSite) -> None:
    site = await start_site()
    owner = await site.account()
    await owner.machine()
    async with event_stream(owner.api, OLDEST) as stream:
        (_, event) = await stream.events(2)
        stop = asyncio.create_task(site.stop())
        end = await stream.until("stream:end")
        assert end.data["reason"] == "draining"
        assert await stream.ended()
        async with asyncio.timeout(TIMEOUT):
            await stop
    await site.start()
    await store(owner, 1)
    owner = Owner(site, owner.id, owner.email, owner.key, site.client(owner.key))
    async with event_stream(owner.api, event.id) as stream:
        assert (await stream.next()).data["resume"] == "ok"
        names = []
        while "agent:error" not in names:
            names.append((await stream.next()).event)


class Account:
    """An account with a log in which every event is, of two machines."""

    def __init__(
        self, owner: Owner, connected: list[ScriptedMachine], events: list[dict[str, Any]]
    ) -> None:
        self.owner = owner
        self.connected = connected
        self.machines = [machine.id for machine in connected]
        self.events = events


@pytest_asyncio.fixture(loop_scope="session")
async def accounts(start_site: StartSite) -> list[Account]:
    """Two accounts of one service."""
    site = await start_site(stream_times=QUICK)
    return [await _account(await site.account()) for _ in range(2)]


async def _account(owner: Owner) -> Account:
    connected = [await owner.machine() for _ in range(2)]
    for machine in connected:
        await machine.say(*every_event(first=1))

    async def complete() -> bool:
        return len(await logged(owner)) == 2 * (1 + len(REPORTED_EVENTS))

    await eventually(complete)
    return Account(owner, connected, await logged(owner))


def every_event(first: int) -> list[Event]:
    """Return an event with each name, of two sessions."""
    return [
        Event(seq=seq, event=agent_event(name, session_id=f"session_{seq % 2}", **CONTENT))
        for seq, name in enumerate(sorted(REPORTED_EVENTS), first)
    ]


CONTENT: dict[str, Any] = {
    "session": session(),
    "chat_message": ChatMessage(
        id="msg_1", index=0, role="user", kind="text", content="Hello", timestamp=3
    ),
    "action": PendingAction(
        id="act_1",
        message="Edit it?",
        options=[ActionOption(id="yes", label="Yes", kind="allow_once")],
    ),
    "queue": [],
}
"""What some of the events have to have."""


AGENT_KINDS = {event.partition(":")[0] for event in REPORTED_EVENTS}
KINDS = {"agent:read": AGENT_KINDS, "ide:read": {"machine"}}
PATTERNS = [
    *(set(EventName) - {EventName.WEBHOOK_TEST}),  # that one is only its webhook's
    *(f"{kind}:*" for kind in ("machine", *AGENT_KINDS)),
    "chat:delta",
    "*",
]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_nobody_sees_another_account_s_events(
    accounts: list[Account], data: st.DataObject
) -> None:
    """Each scope and filter gives exactly what it selects of the account's own events."""
    mine, theirs = data.draw(st.permutations(accounts))
    scopes = data.draw(st.sets(st.sampled_from(sorted(KINDS)), min_size=1))
    query: dict[str, str] = {}
    patterns = data.draw(st.lists(st.sampled_from(sorted(PATTERNS)), max_size=3))
    if patterns:
        query["events"] = ",".join(patterns)
    daemon = data.draw(st.sampled_from([None, *mine.machines, *theirs.machines]))
    if daemon is not None:
        query["daemonId"] = daemon
    target = data.draw(st.sampled_from([None, *mine.machines, *theirs.machines]))
    if target is not None:
        query["target"] = target = f"{target}:session:session_1"
    client = await mine.owner.may(*scopes)
    page = await client.get(PATH, params=query)
    if any(named.partition(":")[0] in theirs.machines for named in (daemon, target) if named):
        assert_error(page, 404)
        assert_error(await client.get(PATH, params=query, headers=STREAM), 404)
        return
    expected = [
        event
        for event in mine.events
        if any(event["event"].partition(":")[0] in KINDS[scope] for scope in scopes)
        and (not patterns or any(_matches(event["event"], pattern) for pattern in patterns))
        and (daemon is None or event["daemonId"] == daemon)
        and (target is None or event.get("targetId") == target)
    ]
    assert page.json()["events"] == expected
    async with event_stream(client, OLDEST, **query) as stream:
        await stream.until("stream:heartbeat")
    frames = [{"cursor": frame.id, **frame.data} for frame in stream.frames if frame.id is not None]
    assert frames == expected


async def test_nobody_gets_another_account_s_events_live(accounts: list[Account]) -> None:
    """Each scope has its own events and deltas, whatever the other account does at that moment."""
    opened: list[tuple[Account, set[str], EventStreamClient]] = []
    async with AsyncExitStack() as streams:
        for account in accounts:
            for scopes in ({"agent:read"}, {"ide:read"}, {"agent:read", "ide:read"}):
                client = await account.owner.may(*scopes)
                stream = await streams.enter_async_context(event_stream(client, deltas="true"))
                await stream.next()
                opened.append((account, scopes, stream))
        everybody = [machine for account in accounts for machine in account.connected]
        await eventually(lambda: all(machine.received(WatchDeltas) for machine in everybody))
        delta = Delta(session_id="session_1", message_id="m", revision=0, op="append", text="Hi")
        for machine in everybody:
            await machine.say(delta, *every_event(first=1 + len(REPORTED_EVENTS)))
        ends = {}
        for account in accounts:
            await account.owner.machine()
            await eventually(partial(_has_reported_twice, account))
            ends[account] = (await logged(account.owner))[-1]["cursor"]
        for account, scopes, stream in opened:
            while (await stream.until("stream:heartbeat")).data["cursor"] < ends[account]:
                pass
            expected = [
                event
                for event in await logged(account.owner)
                if event["cursor"] > account.events[-1]["cursor"]
                and any(event["event"].partition(":")[0] in KINDS[scope] for scope in scopes)
            ]
            assert [
                {"cursor": frame.id, **frame.data} for frame in stream.frames if frame.id
            ] == expected
            deltas = [
                frame.data["targetId"] for frame in stream.frames if frame.event == "chat:delta"
            ]
            own = [f"{machine}:session:session_1" for machine in account.machines]
            assert sorted(deltas) == (sorted(own) if "agent:read" in scopes else [])


async def _has_reported_twice(account: Account) -> bool:
    """Whether the log has every event of both machines twice, and of three that they connected."""
    return len(await logged(account.owner)) == 2 * 2 * len(REPORTED_EVENTS) + 3


def _matches(name: str, pattern: str) -> bool:
    return pattern in {"*", name} or (pattern.endswith(":*") and name.startswith(pattern[:-1]))


@pytest.mark.one_store
async def test_a_client_that_does_not_read_loses_its_stream_and_holds_up_nobody(
    quick: Owner,
) -> None:
    """It gets what is in the buffers of both sockets, and then the reason."""
    async with event_stream(quick.api) as slow, event_stream(quick.api) as other:
        first = await slow.next()
        await other.next()
        count = 0
        while count < 300:
            count += len(await store(quick, 20, "x" * 100_000))
            await other.events(20)
        assert (await slow.until("stream:end")).data["reason"] == "slow_consumer"
        got = [frame.id for frame in slow.frames if frame.id]
        assert 0 < len(got) < count
        assert await slow.ended()
    async with event_stream(quick.api, got[-1]) as again:
        assert (await again.next()).data["resume"] == "ok"
        rest = await again.events(count - len(got))
    everything = [frame.id for frame in other.frames if frame.id]
    assert [*got, *(frame.id for frame in rest)] == everything
    assert first.data["cursor"] < str(everything[0])


async def test_deltas_reach_the_streams_that_ask_for_them(owner: Owner) -> None:
    machine = await owner.machine()
    async with (
        event_stream(owner.api, deltas="true") as stream,
        event_stream(owner.api) as without,
    ):
        await stream.next()
        await without.next()
        await eventually(
            lambda: any(request.sessions is None for request in machine.received(WatchDeltas))
        )
        first = Delta(session_id="session_1", message_id="m", revision=1, op="replace", text="Hi")
        await machine.say(first, msgspec.structs.replace(first, revision=2, op="append"))
        delta = await stream.next()
        assert (delta.event, delta.id) == ("chat:delta", None)
        assert delta.data == {
            "targetId": f"{machine.id}:session:session_1",
            "messageId": "m",
            "revision": 1,
            "op": "replace",
            "text": "Hi",
        }
        assert (await stream.next()).data["op"] == "append"
        ids = await report(machine, 1, 1)
        assert (await without.next()).data["id"] == ids[0]


async def test_deltas_of_a_session_that_is_named_by_its_type(owner: Owner) -> None:
    machine = await owner.machine()
    await machine.reports(session(id="session_1"), session(type="codex", id="session_2"))
    target = f"{machine.id}:cli:codex"
    async with event_stream(owner.api, deltas="true", target=target) as stream:
        await stream.next()
        await eventually(
            lambda: any(request.sessions is None for request in machine.received(WatchDeltas))
        )
        other = Delta(session_id="session_1", message_id="m", revision=0, op="append", text="Hi")
        await machine.say(other, msgspec.structs.replace(other, session_id="session_2"))
        assert (await stream.next()).data["targetId"] == f"{machine.id}:session:session_2"


async def test_a_client_that_goes_away_leaves_nothing_behind(owner: Owner) -> None:
    async def count() -> float:
        text = (await owner.site.client().get("/metrics")).text
        (line,) = [line for line in text.splitlines() if line.startswith("outrider_event_streams ")]
        return float(line.split()[1])

    async def is_closed() -> bool:
        return await count() == 0

    await eventually(is_closed)  # the streams of other tests
    async with event_stream(owner.api) as stream:
        await stream.next()
        assert await count() == 1
    leaving = httpx.Timeout(TIMEOUT, read=0.05)
    with pytest.raises(httpx.ReadTimeout):
        await owner.api.get(PATH, params={"after": OLDEST, "wait": 60}, timeout=leaving)
    await eventually(is_closed)
