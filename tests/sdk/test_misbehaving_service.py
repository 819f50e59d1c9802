"""The client and a service, or a proxy, that closes, hangs, refuses, or answers with nonsense."""

import asyncio
import json
from contextlib import aclosing

import pytest

from outrider.sdk import (
    ApiError,
    AskTimeout,
    AsyncAgent,
    AsyncOutrider,
    AuthenticationError,
    CommandTimeout,
    Conflict,
    ConnectionFailed,
    Delta,
    MachineOffline,
    Message,
    NotFound,
    Outrider,
    OutriderError,
    RateLimited,
    ResponseTimeout,
    SessionEnded,
    UnexpectedResponse,
)
from tests.rig.waiting import TIMEOUT
from tests.sdk.scripted_api import (
    CLOSES,
    HALF_A_BODY,
    HALF_A_HEAD,
    HANGS,
    NOT_HTTP,
    OK,
    ScriptedApi,
    Step,
    answer,
    stream,
)
from tests.servers.server import reserve_ports

ACCEPTED = (
    b'{"success":true,"messageId":"msg_1","sessionId":"session_1","status":"generating",'
    b'"queued":false,"cursor":"msg_1"}'
)
IN_FLIGHT = b'{"error":"It is in progress","code":"IDEMPOTENCY_IN_FLIGHT"}'
READY = 'event: stream:ready\ndata: {"resume":"%s","cursor":"41"}\n\n'


def event(cursor: int) -> str:
    return (
        f"id: {cursor}\nevent: agent:error\n"
        f'data: {{"id":"evt_{cursor}","event":"agent:error","timestamp":1,"payload":{{}}}}\n\n'
    )


def client_of(api: ScriptedApi, timeout: float = TIMEOUT, retries: int = 2) -> AsyncOutrider:
    return AsyncOutrider(api.url, "ork_x", timeout=timeout, max_retries=retries, retry_delay=0.001)


@pytest.mark.parametrize(
    "failure",
    [CLOSES, HALF_A_BODY, HALF_A_HEAD, NOT_HTTP, answer(503), answer(429, retry_after="0")],
    ids=["closes", "half a body", "half a head", "not HTTP", "503", "429"],
)
async def test_a_failure_that_passes_is_retried_under_the_same_idempotency_key(
    failure: Step,
) -> None:
    async with ScriptedApi([failure, failure, answer(200, ACCEPTED)]) as api:
        async with client_of(api) as client:
            accepted = await client.agent("machine_1:session:session_1").send("Hi")
    assert accepted.message_id == "msg_1"
    assert len(api.requests) == 3
    keys = {request.headers["idempotency-key"] for request in api.requests}
    assert len(keys) == 1
    assert len({request.body for request in api.requests}) == 1


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (CLOSES, ConnectionFailed),
        (HALF_A_BODY, ConnectionFailed),
        (answer(503), MachineOffline),
        (answer(429, retry_after="0"), RateLimited),
        (answer(409, IN_FLIGHT, retry_after="0"), Conflict),
    ],
    ids=["closes", "half a body", "503", "429", "in flight"],
)
async def test_a_failure_that_stays_is_raised_after_two_retries(
    failure: Step, error: type[OutriderError]
) -> None:
    async with ScriptedApi([failure]) as api, client_of(api) as client:
        with pytest.raises(error):
            await client.agent("machine_1:session:session_1").send("Hi")
    assert len(api.requests) == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ApiError),
        (404, NotFound),
        (409, Conflict),
        (500, MachineOffline),
        (502, ApiError),
        (504, CommandTimeout),
    ],
)
@pytest.mark.parametrize("body", [b'{"error":"Sorry","code":"NEW_CODE"}', b"<html>", b""])
async def test_other_errors_are_raised_at_once(
    status: int, error: type[ApiError], body: bytes
) -> None:
    async with ScriptedApi([answer(status, body, x_request_id="r1")]) as api:
        async with client_of(api) as client:
            with pytest.raises(error) as caught:
                await client.machines.list()
    assert len(api.requests) == 1
    assert (caught.value.status, caught.value.request_id) == (status, "r1")
    sorry = body.startswith(b"{")
    assert caught.value.code == ("NEW_CODE" if sorry else None)
    assert str(caught.value) == "Sorry" if sorry else str(status) in str(caught.value)


async def test_a_long_wait_is_left_to_the_caller() -> None:
    async with ScriptedApi([answer(429, b'{"error":"Later"}', retry_after="3600")]) as api:
        async with client_of(api) as client:
            with pytest.raises(RateLimited) as caught:
                await client.machines.list()
    assert caught.value.retry_after == 3600
    assert len(api.requests) == 1


async def test_no_answer_within_the_timeout_is_raised_at_once() -> None:
    async with ScriptedApi([HANGS]) as api, client_of(api, timeout=1) as client:
        with pytest.raises(ResponseTimeout) as caught:
            await client.machines.list()
    assert isinstance(caught.value, TimeoutError)
    assert len(api.requests) == 1


async def test_an_address_where_nobody_listens_is_named() -> None:
    port, release = reserve_ports()
    try:
        address = f"http://127.0.0.1:{port}"
        async with AsyncOutrider(address, "ork_x", retry_delay=0.001) as client:
            with pytest.raises(ConnectionFailed, match=address):
                await client.machines.list()
            with pytest.raises(ConnectionFailed):
                await anext(client.events())
    finally:
        release()


@pytest.mark.parametrize(
    "address",
    [
        "ftp://127.0.0.1",
        "http://",
        "127.0.0.1:1",
        "http://[",
        "http://127.0.0.1:84OO",
        "http://10.0.0.256:8400",
        "http://a..b:8400",
    ],
)
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    async with AsyncOutrider(address, "ork_x", retry_delay=0.001) as client:
        with pytest.raises(OutriderError):
            await client.machines.list()
        with pytest.raises(OutriderError):
            await anext(client.events())
    with Outrider(address, "ork_x", retry_delay=0.001) as synchronous:
        with pytest.raises(OutriderError):
            await asyncio.to_thread(synchronous.machines.list)


async def test_a_key_that_was_not_copied_whole_is_not_sent() -> None:
    async with ScriptedApi([answer(200)]) as api:
        async with AsyncOutrider(api.url, "ork_…") as client:
            with pytest.raises(AuthenticationError, match="copy"):
                await client.machines.list()
            with pytest.raises(AuthenticationError, match="copy"):
                await anext(client.events())
    assert api.requests == []


async def test_a_delete_that_may_have_been_carried_out_is_not_repeated() -> None:
    async with ScriptedApi([CLOSES]) as api, client_of(api) as client:
        with pytest.raises(ConnectionFailed):
            await client.webhooks.delete("webhook_1")
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"<html>Welcome</html>", b"", b"{", b"[]", b'{"daemons":[{"id":7}]}', b"\xff", b'{"ok":1}'],
)
async def test_an_answer_that_is_not_the_apis_is_an_unexpected_response(body: bytes) -> None:
    async with ScriptedApi([answer(200, body)]) as api, client_of(api) as client:
        with pytest.raises(UnexpectedResponse) as caught:
            await client.machines.list()
    assert caught.value.status == 200


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    async with ScriptedApi([answer(302, location="http://127.0.0.1:1/")]) as api:
        async with client_of(api) as client:
            with pytest.raises(UnexpectedResponse):
                await client.machines.list()
    assert len(api.requests) == 1


async def test_fields_of_a_newer_service_are_ignored() -> None:
    async with ScriptedApi([answer(200, OK[:-1] + b',"new":1}')]) as api, client_of(api) as client:
        assert await client.machines.list() == []


async def test_an_ask_that_hangs_ends_with_its_timeout() -> None:
    async with ScriptedApi([answer(200, ACCEPTED), HANGS]) as api, client_of(api) as client:
        with pytest.raises(AskTimeout) as caught:
            await client.agent("machine_1:session:session_1").ask("Hi", timeout=1)
    assert caught.value.cursor == "msg_1"
    assert "after=msg_1" in api.requests[1].path


@pytest.mark.parametrize(
    "lost",
    [
        CLOSES,
        HALF_A_HEAD,
        answer(502, b"<html>"),
        answer(503),
        answer(504, b"<html>"),
        answer(429, b'{"error":"Full","code":"STREAM_LIMIT"}', retry_after="0"),
        stream(READY % "ok", 'id: 43\nevent: agent:error\ndata: {"id":"ev'),
        stream(READY % "ok", 'event: stream:end\ndata: {"reason":"draining","retryAfterMs":1}\n\n'),
    ],
    ids=["closes", "half a head", "502", "503", "504", "429", "half an event", "drains"],
)
async def test_events_resume_after_the_last_one(lost: Step) -> None:
    steps = [
        stream(READY % "fresh", event(42)),
        lost,
        stream(READY % "ok", event(43), stays_open=True),
    ]
    async with ScriptedApi(steps) as api, client_of(api, retries=0) as client:
        async with aclosing(client.events()) as events, asyncio.timeout(TIMEOUT):
            received = [await anext(events), await anext(events)]
    assert [frame.cursor for frame in received] == ["42", "43"]
    assert all("after=42" in request.path for request in api.requests[1:])


async def test_events_end_when_the_key_is_refused() -> None:
    steps = [stream(READY % "fresh", event(42)), answer(401)]
    async with ScriptedApi(steps) as api, client_of(api) as client, asyncio.timeout(TIMEOUT):
        with pytest.raises(AuthenticationError):
            [received async for received in client.events()]
    assert len(api.requests) == 2


def chat_message(message_id: str, index: int, role: str) -> str:
    message = {"id": message_id, "index": index, "role": role, "kind": "text", "timestamp": 1}
    return of_session("chat:message", {"message": message | {"content": message_id}})


def of_session(name: str, payload: dict[str, object]) -> str:
    body = {"id": "evt", "event": name, "timestamp": 1, "payload": payload}
    return f"id: 1\nevent: {name}\ndata: {json.dumps(body)}\n\n"


def delta(message_id: str) -> str:
    body = {"targetId": "t", "messageId": message_id, "revision": 0, "op": "append"}
    body["text"] = message_id
    return f"event: chat:delta\ndata: {json.dumps(body)}\n\n"


def waited(reason: str) -> Step:
    body = {"reason": reason, "cursor": "msg_1", "status": "idle", "messages": []}
    return answer(200, json.dumps(body | {"pendingAction": None}).encode())


async def test_late_events_of_the_turn_before_are_not_part_of_a_stream() -> None:
    """The end of an earlier turn neither ends the stream nor holds up its deltas."""
    ended = of_session("agent:generating_completed", {})
    earlier = [chat_message("msg_0", 0, "assistant"), ended]
    own = [
        chat_message("msg_1", 1, "user"),
        delta("msg_2"),
        chat_message("msg_2", 2, "assistant"),
        ended,
    ]
    streaming = stream(READY % "fresh", *earlier, *own, stays_open=True)
    steps = [streaming, answer(200, ACCEPTED), waited("timeout"), waited("idle")]
    async with ScriptedApi(steps) as api, client_of(api) as client, asyncio.timeout(TIMEOUT):
        agent = client.agent("machine_1:session:session_1")
        parts = [part async for part in agent.stream("Hi")]
    assert [type(part) for part in parts] == [Delta, Message]
    assert isinstance(parts[1], Message)
    assert parts[1].id == "msg_2"
    first, second = (request.path for request in api.requests[2:])
    assert "timeout=0" in first  # the stream reads on at once
    assert "timeout=0" not in second


async def test_a_stream_of_a_session_that_is_gone_ends() -> None:
    """The session is not found as soon as it has ended, before its event is reported."""
    streaming = stream(READY % "fresh", of_session("agent:error", {}), stays_open=True)
    steps = [streaming, answer(200, ACCEPTED), answer(404, b'{"error":"No session"}')]
    async with ScriptedApi(steps) as api, client_of(api) as client, asyncio.timeout(TIMEOUT):
        with pytest.raises(SessionEnded):
            [part async for part in client.agent("machine_1:session:session_1").stream("Hi")]


async def test_a_stream_whose_connection_is_lost_ends_with_its_timeout() -> None:
    steps = [stream(READY % "fresh"), answer(200, ACCEPTED), CLOSES]
    async with ScriptedApi(steps) as api, client_of(api) as client, asyncio.timeout(TIMEOUT):
        agent = client.agent("machine_1:session:session_1")
        with pytest.raises(AskTimeout) as caught:
            [part async for part in agent.stream("Hi", timeout=0.5)]
    assert caught.value.cursor == "msg_1"


async def test_what_a_newer_service_streams_is_ignored() -> None:
    frames = [READY % "fresh", "event: stream:new\ndata: [1]\n\n", ": comment\n\n", event(42)]
    async with ScriptedApi([stream(*frames, stays_open=True)]) as api, client_of(api) as client:
        async with aclosing(client.events()) as events, asyncio.timeout(TIMEOUT):
            assert (await anext(events)).id == "evt_42"


@pytest.mark.parametrize(
    "step", [answer(200), stream(READY % "fresh", "event: agent:error\ndata: nonsense\n\n")]
)
async def test_a_stream_that_is_none_is_an_unexpected_response(step: Step) -> None:
    async with ScriptedApi([step]) as api, client_of(api) as client:
        async with aclosing(client.events()) as events, asyncio.timeout(TIMEOUT):
            with pytest.raises(UnexpectedResponse):
                await anext(events)


async def test_a_stop_that_fails_does_not_hide_what_went_wrong_first() -> None:
    async with ScriptedApi([answer(500, b'{"error":"Offline"}')]) as api:
        async with AsyncOutrider(api.url, "ork_x") as client:
            agent = client.agent("machine_1:session:session_1")
            with pytest.raises(KeyError):
                await leave(agent, KeyError("first"))
            with pytest.raises(MachineOffline):
                await leave(agent, None)


async def leave(agent: AsyncAgent, error: Exception | None) -> None:
    async with agent:
        if error is not None:
            raise error
