"""The machines' sockets: who may connect, how they are refused, and what a report changes.

Holds contributing/protocol.md.
"""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.types import Message
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from outrider.contract.events import EventName
from outrider.contract.frames import (
    MAX_HELLO_BYTES,
    Acknowledge,
    Change,
    Event,
    Hello,
    Snapshot,
    encode,
)
from outrider.contract.limits import EVENT_BURST, MAX_SESSIONS, MAX_STATE_BYTES
from outrider.contract.link.service import ServiceLink
from outrider.contract.resources import Session
from outrider.service.accounts import credentials
from outrider.service.app import Service
from outrider.service.machines.connection import Connection
from tests.conftest import StartSite, settings
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine, closing, hello, socket
from tests.rig.samples import MACHINE, PROVIDER, as_json, session
from tests.rig.site import GATEWAY, Owner, Site
from tests.rig.stores import Store
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import agent_event

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


async def refusal(site: Site, token: str | None, *messages: str | bytes) -> tuple[int, str]:
    """Connect, say these messages, and return how the service closes the socket."""
    async with socket(site.gateway, token) as connection:
        try:
            for message in messages:
                await connection.send(message)
            async with asyncio.timeout(TIMEOUT):
                await connection.recv()
        except ConnectionClosed as end:
            return closing(end)
    pytest.fail("the service answered instead of closing the socket")


def text(frame: Hello) -> str:
    """Return a hello as the message that it is sent in."""
    return encode(frame).decode()


def too_much() -> list[Session]:
    """Return sessions that are each within the limits, and together beyond."""
    return [session(error="x" * 16_000) for _ in range(MAX_STATE_BYTES // 16_000 + 1)]


class TestHandshake:
    async def test_welcome(self, owner: Owner) -> None:
        enrolled = await owner.enrolls(nickname="Bench")
        machine = await owner.machine(enrolled=enrolled)
        assert machine.welcome.protocol == 1
        assert machine.welcome.daemon_id == enrolled.daemon_id
        assert machine.welcome.nickname == "Bench"
        assert machine.welcome.acknowledged == 0

    @pytest.mark.parametrize(
        "token",
        [None, "", "nonsense", credentials.new_machine_token(), credentials.new_key()],
        ids=["none", "empty", "nonsense", "unknown", "an API key"],
    )
    async def test_wrong_token(self, site: Site, token: str | None) -> None:
        """contributing/protocol.md, Close codes: a token that is not valid gets 4401."""
        code, reason = await refusal(site, token, text(hello()))
        assert code == 4401
        assert "outrider setup" in reason

    async def test_a_wrong_token_is_closed_without_waiting_for_a_hello(self, site: Site) -> None:
        assert (await refusal(site, credentials.new_machine_token()))[0] == 4401

    async def test_a_hello_has_a_limit_of_its_own(self, owner: Owner, site: Site) -> None:
        """contributing/protocol.md: 1009, well before the 16 MiB of other frames."""
        token = (await owner.enrolls()).token
        assert (await refusal(site, token, " " * (MAX_HELLO_BYTES + 1)))[0] == 1009

    async def test_a_frame_after_the_welcome_may_be_longer(self, owner: Owner) -> None:
        machine = await owner.machine()
        await machine.say_raw('{"type": "from the future"}' + " " * (2 * MAX_HELLO_BYTES))
        await machine.settled()
        assert machine.is_open

    async def test_a_machine_has_one_connection_that_is_not_welcome_yet(
        self, owner: Owner, site: Site
    ) -> None:
        token = (await owner.enrolls()).token
        async with socket(site.gateway, token) as older, socket(site.gateway, token) as newer:
            with pytest.raises(ConnectionClosed) as end:
                async with asyncio.timeout(TIMEOUT):
                    await older.recv()
            assert closing(end.value)[0] == 1013
            await newer.send(text(hello()))
            assert b"welcome" in await newer.recv(decode=False)

    async def test_an_api_key_is_no_connection_token(self, owner: Owner, site: Site) -> None:
        assert (await refusal(site, owner.key, text(hello())))[0] == 4401

    async def test_enrolling_again_replaces_the_token(self, owner: Owner, site: Site) -> None:
        """docs/access.md: the machine keeps its id, the old token is worthless."""
        first = await owner.enrolls()
        second = await owner.enrolls(daemon_id=first.daemon_id)
        assert second.daemon_id == first.daemon_id
        assert (await refusal(site, first.token, text(hello())))[0] == 4401
        assert (await owner.machine(enrolled=second)).id == first.daemon_id

    async def test_a_token_revoked_before_the_hello(self, owner: Owner, site: Site) -> None:
        """A socket that was open when its token was revoked does not outlive that."""
        enrolled = await owner.enrolls()
        async with socket(site.gateway, enrolled.token) as connection:
            await (await connection.ping())
            await owner.enrolls(daemon_id=enrolled.daemon_id)
            await connection.send(text(hello()))
            with pytest.raises(ConnectionClosed) as end:
                async with asyncio.timeout(TIMEOUT):
                    await connection.recv()
        assert closing(end.value)[0] == 4401

    @pytest.mark.parametrize(
        ("version", "updated"), [(2, "service"), (99, "service"), (0, "machine agent")]
    )
    async def test_unsupported_version(
        self, owner: Owner, site: Site, version: int, updated: str
    ) -> None:
        """contributing/protocol.md: 4426, even where the rest of the hello is of that version."""
        token = (await owner.enrolls()).token
        future = json.dumps({"type": "hello", "protocol": version, "machine": ["not", "ours"]})
        code, reason = await refusal(site, token, future)
        assert code == 4426
        assert f"update the {updated}" in reason

    @pytest.mark.parametrize(
        "message",
        [
            "",
            "rubbish",
            '{"type":5}',
            '{"type":"hello","protocol":1,"version":"1","machine":{}}',
            '{"type":"snapshot","machine":{},"providers":[],"sessions":[]}',
            '{"type":"from_the_future"}',
            b"\xff\xfe",
            "[" * 100_000,
        ],
    )
    async def test_what_is_no_hello(self, owner: Owner, site: Site, message: str | bytes) -> None:
        """contributing/protocol.md: 4400, the first frame must be a hello."""
        code, _ = await refusal(site, (await owner.enrolls()).token, message)
        assert code == 4400
        assert (await owner.api.get("/api/v1/daemons")).json() == {"daemons": []}

    @pytest.mark.one_store
    async def test_no_hello_in_time(self) -> None:
        """contributing/protocol.md: 4408."""
        sent: list[Message] = []

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        connection = Connection(receive, send, ServiceLink(hello_timeout=0.05))
        await connection.accept()
        async with asyncio.timeout(TIMEOUT):
            assert await connection.hello() is None
        await connection.close()
        assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
        assert sent[-1]["code"] == 4408

    async def test_going_away_before_the_hello_is_no_error(self, owner: Owner, site: Site) -> None:
        token = (await owner.enrolls()).token
        async with socket(site.gateway, token) as connection:
            await connection.close()
        assert (await owner.api.get("/api/v1/daemons")).json() == {"daemons": []}


class TestReports:
    async def test_a_snapshot_replaces_and_a_change_adds(self, owner: Owner) -> None:
        first, second, third = session(), session(type="codex"), session(type="aider")
        machine = await owner.machine(first)

        async def shown() -> set[str]:
            status = await owner.api.get(f"/api/v1/daemons/{machine.id}/status")
            (listed,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
            ids = {shown_session["id"] for shown_session in status.json()["sessions"]}
            assert {entry["sessionId"] for entry in listed["clis"]} == ids
            return ids

        assert await shown() == {first.id}
        await machine.say(Snapshot(machine=MACHINE, providers=[PROVIDER], sessions=[second]))
        await machine.settled()
        assert await shown() == {second.id}
        await machine.reports(third)
        assert await shown() == {second.id, third.id}
        await machine.reports(removed=[second.id, "session_unknown"])
        assert await shown() == {third.id}

    async def test_a_changed_session_is_shown_changed(self, owner: Owner) -> None:
        running = session(status="idle")
        machine = await owner.machine(running)
        running.status, running.title = "generating", "Renamed"
        await machine.reports(running)
        (daemon,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
        assert (daemon["clis"][0]["status"], daemon["clis"][0]["title"]) == (
            "generating",
            "Renamed",
        )

    async def test_unknown_frames_and_fields_are_ignored(self, owner: Owner) -> None:
        """contributing/protocol.md: a frame of a newer version is ignored."""
        machine = await owner.machine()
        await machine.say_raw('{"type":"from_the_future","payload":{"deep":[1,2]}}')
        await machine.say_raw('{"type":"change","sessions":[],"newField":1}')
        await machine.settled()
        machine.obliges()
        path = f"/api/v1/shortcuts/{machine.id}:cli:x/status"
        assert (await owner.api.get(path)).status_code == 200

    @pytest.mark.parametrize(
        "message", ["rubbish", '{"type":"result"}', '{"type":"change","sessions":[{}]}', b"\xff"]
    )
    async def test_rubbish_ends_the_connection(self, owner: Owner, message: str | bytes) -> None:
        """contributing/protocol.md: 4400; what was asked of the machine is answered at once."""
        machine = await owner.machine()
        request = owner.sends("GET", f"/api/v1/shortcuts/{machine.id}:cli:x/status")
        await machine.takes("agent_status")
        await machine.say_raw(message)
        assert (await machine.closed())[0] == 4400
        assert_error(await request, 503)

    async def test_too_many_sessions_one_by_one(self, owner: Owner) -> None:
        """contributing/protocol.md: 4413; what was reported within the limits is known."""
        machine = await owner.machine(*(session() for _ in range(MAX_SESSIONS)))
        await machine.reports(session())
        assert await machine.closed() == (4413, "A machine may report 1000 sessions at the most")
        status = (await owner.api.get(f"/api/v1/daemons/{machine.id}/status")).json()
        assert len(status["sessions"]) == MAX_SESSIONS

    async def test_too_many_bytes_in_sessions_that_are_each_within_the_limits(
        self, owner: Owner
    ) -> None:
        machine = await owner.machine()
        for reported in too_much():
            if not machine.is_open:
                break
            await machine.say(Change(sessions=[reported]))
        assert await machine.closed() == (4413, "A machine may report 2097152 bytes at the most")

    async def test_sessions_that_come_and_go_are_no_more_than_those_that_are_there(
        self, owner: Owner
    ) -> None:
        machine = await owner.machine()
        for reported in too_much():
            await machine.say(Change(sessions=[reported]), Change(removed=[reported.id]))
        await machine.settled()
        assert machine.is_open

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("title", "x" * 1025),
            ("title", "\x1b]0;owned\x07"),
            ("createdAt", 2**63),
            ("lastActivityAt", -1),
            ("workspace", {"path": "/" + "x" * 4096, "name": "x"}),
            ("agents", [{"type": "a", "name": "a", "status": "idle"}] * 65),
        ],
    )
    async def test_a_field_outside_its_limits(self, owner: Owner, field: str, value: Any) -> None:
        """contributing/protocol.md: 4400, and the reason names the field."""
        machine = await owner.machine()
        await machine.say_raw(
            json.dumps({"type": "change", "sessions": [as_json(session()) | {field: value}]})
        )
        code, reason = await machine.closed()
        assert code == 4400
        assert field in reason

    @pytest.mark.parametrize(
        ("field", "value"),
        [("hostname", "a\x1b[2J"), ("platform", "x" * 41), ("release", "\u202e"), ("cpus", -1)],
    )
    async def test_a_hello_with_a_name_that_a_terminal_would_act_on(
        self, owner: Owner, site: Site, field: str, value: Any
    ) -> None:
        token = (await owner.enrolls()).token
        greeting = as_json(hello())
        greeting["machine"][field] = value
        code, reason = await refusal(site, token, json.dumps(greeting))
        assert code == 4400
        assert field in reason

    async def test_too_many_sessions(self, owner: Owner) -> None:
        machine = await owner.machine()
        await machine.say(
            Snapshot(
                machine=MACHINE,
                providers=[],
                sessions=[session() for _ in range(MAX_SESSIONS + 1)],
            )
        )
        assert (await machine.closed())[0] == 4400


@pytest.mark.one_store
async def test_a_flood_of_events_ends_the_connection_and_loses_none(owner: Owner) -> None:
    """contributing/protocol.md: 4429; the next welcome tells from where the machine is to go on."""
    enrolled = await owner.enrolls()
    machine = await owner.machine(enrolled=enrolled)
    with contextlib.suppress(ConnectionClosed):
        for seq in range(1, 10 * EVENT_BURST):
            await machine.say(Event(seq=seq, event=agent_event()))
    assert await machine.closed() == (
        4429,
        "A machine may send 100 events a second, and 10000 at once",
    )
    again = await owner.machine(enrolled=enrolled)
    acknowledged = max(frame.seq for frame in machine.received(Acknowledge))
    assert 0 < acknowledged <= again.welcome.acknowledged


async def test_a_flood_of_bytes_ends_the_connection(owner: Owner) -> None:
    machine = await owner.machine()
    message = {"id": "m", "index": 0, "role": "user", "kind": "text", "timestamp": 1}
    event = as_json(agent_event(EventName.CHAT_MESSAGE))
    event["chatMessage"] = message | {"content": "\x01" * 65_536}
    with contextlib.suppress(ConnectionClosed):
        for seq in range(1, 1000):
            await machine.say_raw(json.dumps({"type": "event", "seq": seq, "event": event}))
    assert await machine.closed() == (
        4429,
        "A machine may send 15 MiB of events a minute, and 64 MiB at once",
    )


class TestReplaced:
    async def test_a_newer_socket_takes_over(self, owner: Owner) -> None:
        """contributing/protocol.md: the older one is closed with 4409, its commands get a 503."""
        enrolled = await owner.enrolls()
        older = await owner.machine(enrolled=enrolled)
        request = owner.sends("GET", f"/api/v1/shortcuts/{older.id}:cli:x/status")
        await older.takes("agent_status")
        newer = await owner.machine(session(), enrolled=enrolled)
        assert (await older.closed())[0] == 4409
        assert_error(await request, 503)
        newer.obliges()
        response = await owner.api.get(f"/api/v1/shortcuts/{newer.id}:cli:x/status")
        assert response.status_code == 200
        (daemon,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
        assert len(daemon["clis"]) == 1

    async def test_a_refused_newcomer_leaves_the_machine_in_its_grace_period(
        self, start_site: StartSite
    ) -> None:
        """A machine whose sockets are all gone does not count as connected for ever."""
        site = await start_site(grace_period=0.1)
        owner = await site.account()
        enrolled = await owner.enrolls()
        older = await owner.machine(enrolled=enrolled)
        code, _ = await refusal(site, enrolled.token, text(hello(*too_much())))
        assert code == 4413
        assert (await older.closed())[0] == 4409

        async def offline() -> bool:
            return not (await owner.api.get("/api/v1/daemons")).json()["daemons"]

        await eventually(offline)


async def test_a_machine_that_goes_away_during_its_welcome(tmp_path: Path, store: Store) -> None:
    """It is in its grace period then, not connected for ever: 503 is not its last word.

    No real socket breaks at just that moment, so this one is played to the application.
    """
    chosen = settings(tmp_path / "data", store, grace_period=0)
    elsewhere = Site(chosen)
    owner = await elsewhere.account()
    token = (await owner.enrolls()).token
    coming: list[Message] = [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": text(hello())},
    ]

    async def receive() -> Message:
        return coming.pop(0)

    welcomes = 0

    async def send(message: Message) -> None:
        nonlocal welcomes
        if message["type"] == "websocket.send":
            welcomes += 1
            raise ConnectionResetError

    scope = {
        "type": "websocket",
        "path": GATEWAY,
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
        "client": ("127.0.0.1", 1),
    }
    service = Service(chosen)
    async with (
        service.running(),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(service.app),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {owner.key}"},
        ) as client,
    ):
        await service.app(scope, receive, send)
        assert welcomes == 1

        async def offline() -> bool:
            return not (await client.get("/api/v1/daemons")).json()["daemons"]

        await eventually(offline)
    await elsewhere.close()


@pytest.mark.one_store
class TestLimits:
    """Handshakes count: refused ones by address, accepted ones by machine."""

    async def test_refused_handshakes_of_an_address(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=5, trusted_proxies="127.0.0.1")
        wrong = credentials.new_machine_token()
        assert [await status(site, wrong, "192.0.2.1") for _ in range(7)] == [101] * 5 + [429] * 2
        assert await status(site, wrong, "192.0.2.2") == 101
        assert await status(site, None, "192.0.2.1") == 429
        token = (await (await site.account()).enrolls()).token
        assert await status(site, token, "192.0.2.1") == 429
        assert await status(site, token, "192.0.2.2") == 101

    async def test_an_ipv6_network_counts_as_one_address(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=3, trusted_proxies="127.0.0.1")
        tries = [await status(site, "no", f"2001:db8::{n}") for n in range(5)]
        assert tries == [101] * 3 + [429] * 2

    async def test_it_is_told_when_to_try_again(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=1)
        assert await status(site, "no") == 101
        with pytest.raises(InvalidStatus) as caught:
            await connect(site.gateway, proxy=None)
        response = caught.value.response
        assert 1 <= int(response.headers["retry-after"]) <= 61
        assert json.loads(response.body)["code"] == "RATE_LIMITED"

    async def test_machines_of_one_address_do_not_count_against_it(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(rate_limit_ip=2)
        owner = await site.account()
        for _ in range(5):
            await owner.machine()

    async def test_connections_of_one_machine(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=3)
        owner = await site.account()
        flapping, other = await owner.enrolls(), await owner.enrolls()
        assert [await status(site, flapping.token) for _ in range(4)] == [101] * 3 + [429]
        await owner.machine(enrolled=other)

    async def test_requests_of_the_api_have_a_count_of_their_own(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(rate_limit_ip=2)
        assert [await status(site, "no") for _ in range(3)] == [101, 101, 429]
        assert (await site.client().get("/api/v1/daemons")).status_code == 401


async def status(site: Site, token: str | None, address: str = "") -> int:
    """Ask for a machine's WebSocket from this address; return the status of the answer."""
    headers = {"X-Forwarded-For": address} if address else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with connect(site.gateway, additional_headers=headers, proxy=None) as connection:
            connection.transport.abort()
    except InvalidStatus as error:
        return error.response.status_code
    return 101


async def test_frames_from_the_service_are_text(owner: Owner, site: Site) -> None:
    """contributing/protocol.md: a frame is a JSON object in one text message."""
    enrolled = await owner.enrolls()
    async with socket(site.gateway, enrolled.token) as connection:
        await connection.send(text(hello()))
        welcome = await connection.recv()
    assert isinstance(welcome, str)
    assert msgspec.json.decode(welcome)["type"] == "welcome"


async def test_a_binary_frame_is_read_too(owner: Owner) -> None:
    """Be liberal in what is taken: the bytes of a frame, whatever the kind of message."""
    machine = ScriptedMachine(owner.site.gateway, (await owner.enrolls()).token, hello())
    async with machine:
        await machine.say_raw(encode(Snapshot(machine=MACHINE, providers=[], sessions=[])))
        await machine.settled()
        response = await owner.api.get(f"/api/v1/daemons/{machine.id}/status")
        assert response.json()["availableProviders"] == []


async def test_two_accounts_do_not_see_each_other(owner: Owner, site: Site) -> None:
    """docs/access.md: routes act only on machines that the account owns."""
    other = await site.account()
    mine, theirs = await owner.machine(), await other.machine()
    for account, own in ((owner, mine), (other, theirs)):
        listed = (await account.api.get("/api/v1/daemons")).json()["daemons"]
        assert [daemon["id"] for daemon in listed] == [own.id]
