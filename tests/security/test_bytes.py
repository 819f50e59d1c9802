"""What machines send within the limits of every field costs a bounded number of bytes."""

import asyncio
import contextlib
import json
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed

from outrider.contract.events import EventName
from outrider.contract.frames import Acknowledge
from outrider.contract.ids import new_id
from tests.rig.machine import ScriptedMachine
from tests.rig.samples import as_json, session
from tests.rig.waiting import eventually
from tests.security.target import MB, Account, Target
from tests.security.test_machines import stored_bytes
from tests.service.webhooks.events import agent_event

V1 = "/api/v1"
PAGE = 4 * 2**20 + 64 * 1024
"""The most bytes of a page: what `limits` allows, and what is around its entries."""


def message_event(length: int) -> dict[str, Any]:
    """Return an event with a message of so many characters."""
    message = {
        "id": "msg_1",
        "index": 0,
        "role": "assistant",
        "kind": "text",
        "content": "x" * length,
        "timestamp": 1,
    }
    event: dict[str, Any] = as_json(agent_event(EventName.CHAT_MESSAGE))
    return event | {"chatMessage": message}


async def send_events(machine: ScriptedMachine, events: list[dict[str, Any]]) -> int:
    """Send events one after the other; return how many the service has stored."""
    acknowledged = 0

    def is_stored() -> bool:
        nonlocal acknowledged
        acknowledged = max([f.seq for f in machine.received(Acknowledge)], default=0)
        return acknowledged >= seq or not machine.is_open

    for seq, event in enumerate(events, 1):
        with contextlib.suppress(ConnectionClosed):
            await machine.say_raw(json.dumps({"type": "event", "seq": seq, "event": event}))
        await eventually(is_stored)
        if not machine.is_open:
            break
    return acknowledged


async def fill_log(target: Target, account: Account, count: int = 400) -> None:
    """Store as many events as given, each with a message of the longest content."""
    machine = await target.machine(account=account)
    assert await send_events(machine, [message_event(65_536) for _ in range(count)]) == count


async def all_pages(
    api: httpx.AsyncClient, path: str, name: str, parameter: str, **query: Any
) -> list[dict[str, Any]]:
    """Read pages until the last one; each is within the limit."""
    entries: list[dict[str, Any]] = []
    while True:
        response = (await api.get(f"{V1}{path}", params=query)).raise_for_status()
        assert len(response.content) <= PAGE
        page = response.json()
        entries += page[name]
        if not page[name] or "cursor" not in page:
            return entries
        query[parameter] = page["cursor"]


async def test_events_of_15_mb_are_cut_and_limited(target: Target) -> None:
    """Forty of them took 1.1 GB of memory and 700 MB of database, a page of them 2.7 GB."""
    account = await target.account()
    control = {
        "id": "model",
        "label": "Model",
        "type": "select",
        "options": ["o" * 1024] * 1024,
        "value": None,
    }
    updated = as_json(agent_event(EventName.SESSION_UPDATED)) | {
        "session": as_json(session()),
        "controls": [control] * 14,
    }
    assert len(json.dumps(updated)) > 14 * MB
    stored = stored_bytes(target)
    async with target.grows_at_most(250 * MB):  # a frame is in memory a few times, one at a time
        machine = await target.machine(account=account)
        accepted = await send_events(machine, [updated | {"id": new_id("evt")} for _ in range(40)])
        code, reason = await machine.closed()
        assert (code, reason) == (
            4429,
            "A machine may send 15 MiB of events a minute, and 64 MiB at once",
        )
        assert 0 < accepted < 10
        events = await all_pages(account.api, "/events", "events", "after", limit=500)
    cut = [event for event in events if event["event"] == EventName.SESSION_UPDATED]
    assert len(cut) == accepted
    assert all(len(json.dumps(event)) <= 2**18 + 100 for event in cut)
    assert cut[0]["payload"]["truncated"] is True
    assert cut[0]["payload"]["session"]["type"] == session().type
    assert stored_bytes(target) - stored < 20 * MB


async def test_a_page_of_long_events_has_4_mib(target: Target) -> None:
    """A page of 500 had 33 MB, and more with characters that JSON escapes."""
    account = await target.account()
    await fill_log(target, account)
    async with target.grows_at_most(60 * MB):
        events = await all_pages(account.api, "/events", "events", "after", limit=500)
    assert len([event for event in events if event["event"] == EventName.CHAT_MESSAGE]) == 400
    cursors = [event["cursor"] for event in events]
    assert cursors == sorted(set(cursors))


async def test_streams_that_resume_and_are_not_read(target: Target) -> None:
    """Each held a page of 200 events, and what the connection had taken of it."""
    account = await target.account()
    await fill_log(target, account)
    keys = [await target.key(account=account) for _ in range(3)]
    async with target.grows_at_most(60 * MB):
        for key in keys:
            for _ in range(10):
                _, writer = await target.connect()
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(
                    f"GET {V1}/events HTTP/1.1\r\nHost: localhost\r\n"
                    f"Authorization: Bearer {key}\r\n"
                    "Accept: text/event-stream\r\nLast-Event-ID: 0000000000000000\r\n\r\n".encode()
                )
        assert await target.healthy_meanwhile(asyncio.sleep(2)) > 0


async def test_an_account_that_reads_nothing_does_not_end_the_responses_of_others(
    target: Target,
) -> None:
    """The oldest response of all was dropped, whoever had asked for it."""
    victim, attacker = await target.account(), await target.account()
    for account in (victim, attacker):
        await fill_log(target, account, 60)

    async def unread_page(account: Account) -> tuple[asyncio.StreamReader, int]:
        """Request a page and read its head alone; return the reader and the page's length."""
        key = await target.key(account=account)
        reader, writer = await target.connect(narrow=True)
        writer.write(
            f"GET {V1}/events?limit=500 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {key}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line[16:] for line in head.splitlines() if line.startswith(b"content-length: ")]
        return reader, int(lengths[0])

    reader, length = await unread_page(victim)
    assert length > 3 * MB
    # 32 MiB of an account, and a page that is being built; of all these pages, it is 300 MB.
    async with target.grows_at_most(100 * MB):
        for _ in range(100):
            await unread_page(attacker)
    assert len(await reader.readexactly(length)) == length


async def test_ended_sessions_with_long_texts(target: Target) -> None:
    """A page of 400 had 81 MB."""
    account = await target.account()
    machine = await target.machine(account=account)
    text = "\x01" * 16_000
    events = []
    for number in range(300):
        ended = session(id=f"session_{number}", created_at=number, error=text, not_resumable=text)
        event = agent_event(EventName.SESSION_ENDED, session_id=ended.id)
        events.append(as_json(event) | {"session": as_json(ended)})
    async with target.grows_at_most(100 * MB):
        assert await send_events(machine, events) == 300
        sessions = await all_pages(
            account.api, "/sessions", "sessions", "before", limit=1000, state="ended"
        )
    assert [session["id"] for session in sessions] == [f"session_{n}" for n in reversed(range(300))]


async def test_questions_of_many_agents(target: Target) -> None:
    account = await target.account()
    action = {
        "id": "act_1",
        "message": "\x01" * 16_000,
        "options": [{"id": "1", "label": "Yes", "kind": "allow_once"}],
    }
    for number in range(5):
        asking = [
            as_json(session(id=f"session_{number}_{index}", pending_action=None))
            | {"pendingAction": action}
            for index in range(15)
        ]
        machine = await target.machine(account=account)
        await machine.say_raw(json.dumps({"type": "change", "sessions": asking}))
        await machine.settled()
    approvals = await all_pages(account.api, "/approvals", "approvals", "after")
    assert len({approval["targetId"] for approval in approvals}) == 75
