"""WebSockets between a client and an application: the limits that uvicorn's own lack."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from outrider.service.http.http_protocol import Timeouts
from outrider.service.http.websocket import MAX_CONTROL_FRAMES
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.http.protocol_server import MAX_MESSAGE, ProtocolServer, serving

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

CLOSE = {"type": "websocket.close", "code": 4401, "reason": "no"}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Echo:
    """Sends back what it receives, and keeps its scope and the message that ended it."""

    def __init__(self) -> None:
        self.scope: Scope = {}
        self.end: Message | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        assert await receive() == {"type": "websocket.connect"}
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        self.end = message

    async def end_code(self) -> int:
        await eventually(lambda: self.end is not None)
        assert self.end is not None
        return int(self.end["code"])


def accepting(serve: Callable[[Receive, Send], Awaitable[None]], **accept: int) -> ASGIApp:
    """Return an application that accepts a WebSocket and then serves it."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept", **accept})
        await serve(receive, send)

    return app


@asynccontextmanager
async def connected(app: ASGIApp) -> AsyncIterator[ClientConnection]:
    async with serving(app) as server, connect(server.url) as socket:
        yield socket


@asynccontextmanager
async def raw(
    server: ProtocolServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection and ask for a WebSocket, for bytes of the test's own after that."""
    async with server.connection() as connection:
        await connection.send(UPGRADE)
        yield connection.reader, connection.writer


def masked(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """Return a frame as a client sends it."""
    return Frame(opcode, data, fin).serialize(mask=True, extensions=[])


async def close_of(socket: ClientConnection) -> tuple[int, str]:
    """Return the code and reason with which the server closes."""
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(socket.recv(), TIMEOUT)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


class TestMessages:
    @pytest.mark.parametrize(
        ("sent", "received"),
        [
            ("text: ä", "text: ä"),
            (b"bytes", b"bytes"),
            ("", ""),
            (b"", b""),
            (["a", "", "ä"], "aä"),
            ([b"a", b"", b"b"], b"ab"),
        ],
        ids=repr,
    )
    async def test_a_message_arrives_whole(
        self, sent: str | bytes | list[str], received: str | bytes
    ) -> None:
        async with connected(Echo()) as socket:
            await socket.send(sent)
            assert await socket.recv() == received

    async def test_messages_before_a_close_are_received(self) -> None:
        texts: list[str | None] = []

        async def serve(receive: Receive, _: Send) -> None:
            while not texts or texts[-1] is not None:
                texts.append((await receive()).get("text"))

        async with serving(accepting(serve)) as server:
            async with connect(server.url) as socket:
                for text in "abc":
                    await socket.send(text)
            await eventually(lambda: texts == ["a", "b", "c", None])

    async def test_reading_stops_while_the_application_reads_nothing(self) -> None:
        go, sent = asyncio.Event(), 0

        async def serve(receive: Receive, send: Send) -> None:
            await go.wait()
            while (message := await receive())["type"] == "websocket.receive":
                await send({**message, "type": "websocket.send"})

        async def flood(socket: ClientConnection) -> None:
            nonlocal sent
            for _ in range(30_000):
                await socket.send("x" * 900)
                sent += 1

        async with (
            serving(accepting(serve)) as server,
            connect(server.url, max_queue=None) as socket,
        ):
            flooding = asyncio.create_task(flood(socket))
            with pytest.raises(TimeoutError):  # the network's buffers are full
                await asyncio.wait_for(asyncio.shield(flooding), 3)
            assert sent < 30_000
            go.set()
            for _ in range(30_000):
                assert await socket.recv() == "x" * 900
            await flooding

    async def test_sending_waits_for_a_client_that_reads_nothing(self) -> None:
        sent = 0

        async def serve(_receive: Receive, send: Send) -> None:
            nonlocal sent
            for _ in range(200):
                await send({"type": "websocket.send", "bytes": b"x" * 500_000})
                sent += 1

        async with serving(accepting(serve)) as server, connect(server.url, max_queue=1) as socket:
            await socket.recv()
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 200
            for _ in range(199):
                await socket.recv()


class TestHandshake:
    async def test_the_scope_has_the_path_and_headers(self) -> None:
        echo = Echo()
        cookie = "x" * 10_000  # longer than the library's own limit
        headers = {"Cookie": cookie}
        async with serving(echo) as server, connect(server.url, additional_headers=headers):
            assert (echo.scope["type"], echo.scope["scheme"]) == ("websocket", "ws")
            assert (echo.scope["path"], echo.scope["query_string"]) == ("/here", b"a=1")
            assert (b"cookie", cookie.encode()) in echo.scope["headers"]

    @pytest.mark.parametrize(
        ("request_head", "status"),
        [
            (UPGRADE.replace(b"Sec-WebSocket-Key", b"X"), 400),
            (UPGRADE.replace(b"GET / ", b"GET /\xe4 "), 400),
            (UPGRADE.replace(b"GET", b"POST"), 405),
        ],
        ids=["no key", "path not ASCII", "POST"],
    )
    async def test_a_bad_handshake_is_refused(self, request_head: bytes, status: int) -> None:
        echo = Echo()
        async with serving(echo) as server, server.connection() as connection:
            await connection.send(request_head)
            assert await connection.status() == status
        assert not echo.scope

    @pytest.mark.parametrize(
        ("messages", "status", "retry_after"),
        [
            ([CLOSE], 403, None),
            (
                [
                    {
                        "type": "websocket.http.response.start",
                        "status": 429,
                        "headers": [(b"retry-after", b"9")],
                    },
                    {"type": "websocket.http.response.body", "body": b"wait"},
                ],
                429,
                "9",
            ),
        ],
        ids=["close", "response"],
    )
    async def test_an_application_may_refuse_it(
        self, messages: list[Message], status: int, retry_after: str | None
    ) -> None:
        async def refuse(_: Scope, receive: Receive, send: Send) -> None:
            await receive()
            for message in messages:
                await send(message)
            assert (await receive())["type"] == "websocket.disconnect"

        async with serving(refuse) as server:
            with pytest.raises(InvalidStatus) as refused:
                await connect(server.url)
        response = refused.value.response
        assert response.status_code == status
        assert response.headers.get("retry-after") == retry_after
        assert response.headers["x-request-id"]
        assert response.headers["x-content-type-options"] == "nosniff"

    async def test_nothing_is_read_before_it_is_accepted(self) -> None:
        """What a stranger sends waits in the network, however much it is."""
        decided = asyncio.Event()

        async def refuse_later(_: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await decided.wait()
            await send({"type": "websocket.close"})

        async with serving(refuse_later) as server, raw(server) as (reader, writer):
            flood = b"\0" * 64_000_000
            writer.write(flood)
            before = -1
            while before != (left := writer.transport.get_write_buffer_size()):
                before = left
                await asyncio.sleep(0.2)
            assert left > len(flood) / 2
            decided.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")


class TestLimits:
    @pytest.mark.parametrize("kind", [Opcode.CONT, Opcode.TEXT])
    async def test_small_frames_are_parsed_over_many_turns_of_the_loop(self, kind: Opcode) -> None:
        """Frames of six bytes each: other connections have their turn after 64 of them."""
        count, turns = 50_000, 0
        frame = masked(kind, b"", fin=kind is Opcode.TEXT)
        begin = masked(Opcode.TEXT, b"", fin=False) if kind is Opcode.CONT else b""

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def serve(receive: Receive, send: Send) -> None:
            while (message := await receive())["type"] == "websocket.receive":
                if message["text"] == "end":
                    await send({**message, "type": "websocket.send"})

        async with connected(accepting(serve)) as socket:
            counting = asyncio.create_task(count_turns())
            end = masked(Opcode.CONT if begin else Opcode.TEXT, b"end")
            socket.transport.write(begin + frame * count + end)
            assert await asyncio.wait_for(socket.recv(), 2 * TIMEOUT) == "end"
            counting.cancel()
        assert turns > count / 80

    @pytest.mark.parametrize("kind", [Opcode.PING, Opcode.PONG])
    async def test_too_many_control_frames_close_it(self, kind: Opcode) -> None:
        echo = Echo()
        async with connected(echo) as socket:
            # A second may end between them: twice as many never fit.
            socket.transport.write(masked(kind, b"") * (2 * MAX_CONTROL_FRAMES + 1))
            code, reason = await close_of(socket)
            assert (code, "in a second" in reason) == (1008, True)
            assert await echo.end_code() == 1008

    async def test_pings_below_the_limit_are_answered(self) -> None:
        async with connected(Echo()) as socket:
            pongs = [await socket.ping() for _ in range(MAX_CONTROL_FRAMES // 2)]
            async with asyncio.timeout(TIMEOUT):
                for pong in pongs:
                    await pong

    async def test_nothing_is_parsed_after_the_close(self) -> None:
        """Neither invalid frames nor pings get an answer."""

        async def refuse(_: Receive, send: Send) -> None:
            await send(CLOSE)

        async with serving(accepting(refuse)) as server, raw(server) as (reader, writer):
            writer.write(masked(Opcode.PING, b"are you there") * 10_000 + b"\xff" * 1000)
            async with asyncio.timeout(TIMEOUT):
                answer = await reader.read()
            _, _, frames = answer.partition(b"\r\n\r\n")
            assert frames == Frame(Opcode.CLOSE, b"\x11\x31no").serialize(mask=False, extensions=[])

    async def test_a_client_that_ignores_the_close_is_dropped(self) -> None:
        async def refuse(_: Receive, send: Send) -> None:
            await send(CLOSE)

        app, timeouts = accepting(refuse), Timeouts(close=0.2)
        async with serving(app, timeouts) as server, raw(server) as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            await eventually(lambda: server.connections == 0)

    @pytest.mark.parametrize("too_long", [11, 2001])
    async def test_the_application_sets_the_limit_of_a_message(self, too_long: int) -> None:
        async def serve(receive: Receive, send: Send) -> None:
            message = await receive()
            if message["type"] == "websocket.receive":
                await send({"type": "outrider.max_size", "max_size": 2000})
                await send({**message, "type": "websocket.send"})
                assert len((await receive()).get("text", "")) in {0, 2000}
                message = await receive()
            assert message["code"] == 1009

        async with connected(accepting(serve, max_size=10)) as socket:
            if too_long > 11:
                await socket.send("x" * 10)
                assert await socket.recv() == "x" * 10
                await socket.send("x" * 2000)
            await socket.send("x" * too_long)
            assert (await close_of(socket))[0] == 1009


class TestCloses:
    @pytest.mark.parametrize(
        ("frame", "code"),
        [
            pytest.param((Opcode.TEXT, b"\xff"), 1007, id="not UTF-8"),
            pytest.param((Opcode.TEXT, b"x" * (MAX_MESSAGE + 1)), 1009, id="too long"),
            pytest.param((Opcode.CONT, b"x"), 1002, id="continues nothing"),
            pytest.param((Opcode.CLOSE, b"x"), 1002, id="half a close code"),
        ],
    )
    async def test_an_invalid_frame_closes_it(self, frame: tuple[Opcode, bytes], code: int) -> None:
        echo = Echo()
        async with connected(echo) as socket:
            socket.transport.write(masked(*frame))
            assert (await close_of(socket))[0] == code
            assert await echo.end_code() == code

    async def test_sending_after_the_close_raises_a_connection_error(self) -> None:
        ended = asyncio.Event()

        async def serve(receive: Receive, send: Send) -> None:
            await send(CLOSE)
            with pytest.raises(ConnectionError):
                await send({"type": "websocket.send", "text": "too late"})
            assert (await receive())["type"] == "websocket.disconnect"
            ended.set()

        async with connected(accepting(serve)) as socket:
            assert await close_of(socket) == (4401, "no")
            await asyncio.wait_for(ended.wait(), TIMEOUT)

    async def test_a_lost_connection_ends_it(self) -> None:
        echo = Echo()
        async with connected(echo) as socket:
            socket.transport.abort()
            await echo.end_code()

    async def test_a_server_that_stops_closes_it(self) -> None:
        echo = Echo()
        async with serving(echo) as server, connect(server.url) as socket:
            server.uvicorn.should_exit = True
            assert (await close_of(socket))[0] == 1012
            assert await echo.end_code() == 1012

    async def test_nothing_is_left_of_it(self) -> None:
        async with serving(Echo()) as server:
            async with connect(server.url):
                assert server.connections == 1
            state = server.uvicorn.server_state
            await eventually(lambda: not state.connections and not state.tasks)


class TestPings:
    async def test_a_client_that_answers_pings_stays(self) -> None:
        async with (
            serving(Echo(), ws_ping_interval=0.05, ws_ping_timeout=TIMEOUT) as server,
            connect(server.url) as socket,
        ):
            pings = 0
            answer = socket.protocol.recv_frame

            def count(frame: Frame) -> None:
                nonlocal pings
                pings += frame.opcode is Opcode.PING
                answer(frame)

            socket.protocol.recv_frame = count  # type: ignore[method-assign]
            await eventually(lambda: pings >= 10)
            await socket.send("still here")
            assert await socket.recv() == "still here"

    async def test_a_client_that_answers_no_ping_is_closed_at_once(self) -> None:
        echo = Echo()
        async with (
            serving(echo, ws_ping_interval=0.05, ws_ping_timeout=0.1) as server,
            connect(server.url) as socket,
        ):
            socket.transport.pause_reading()
            assert await echo.end_code() == 1011
            socket.transport.resume_reading()

    @pytest.mark.parametrize("answers", [True, False])
    async def test_a_ping_of_the_application_waits_for_its_pong(self, answers: bool) -> None:
        """Whatever the client has sent before: it shows that the client is alive now."""
        pinged: list[bool] = []

        async def serve(receive: Receive, send: Send) -> None:
            try:
                async with asyncio.timeout(TIMEOUT if answers else 0.5):
                    await send({"type": "outrider.ping"})
            except TimeoutError:
                pinged.append(False)
            else:
                pinged.append(True)

        async with serving(accepting(serve)) as server:
            if answers:
                async with connect(server.url):
                    await eventually(lambda: pinged == [True])
            else:
                async with raw(server) as (_, writer):
                    writer.write(masked(Opcode.PONG, b"another"))
                    await eventually(lambda: pinged == [False])
