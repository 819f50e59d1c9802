"""The service's sockets: messages, pings, closes, and what they hold back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from outrider.service.http.http_protocol import http_protocol
from outrider.service.http.websocket import MAX_CONTROL_FRAMES, Keepalive, WebSocket
from tests.rig.patience import PATIENCE, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

MAX_SIZE = 1000

Serve = Callable[[Receive, Send], Awaitable[None]]


class Server:
    """A server whose sockets are served by `serve`, and how they ended."""

    def __init__(self, serve: Serve, keepalive: Keepalive) -> None:
        self._serve = serve
        self.scopes: list[Scope] = []
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http=http_protocol(keepalive),
            ws=WebSocket,
            ws_max_size=MAX_SIZE,
            port=0,
            lifespan="off",
            log_config=None,
        )
        self.uvicorn = uvicorn.Server(config)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await self._serve(receive, send)

    @property
    def url(self) -> str:
        port: int = self.uvicorn.servers[0].sockets[0].getsockname()[1]
        return f"ws://127.0.0.1:{port}/here?a=1"


@asynccontextmanager
async def serving(serve: Serve, keepalive: Keepalive | None = None) -> AsyncIterator[Server]:
    server = Server(serve, keepalive or Keepalive(20, 20))
    task = asyncio.create_task(server.uvicorn._serve())  # past its signal handlers
    try:
        await eventually(lambda: server.uvicorn.started)
        yield server
    finally:
        server.uvicorn.should_exit = True
        await task


@asynccontextmanager
async def raw(
    server: Server,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection and ask for a WebSocket, for bytes of the test's own after that."""
    port = server.uvicorn.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await eventually(lambda: bool(server.scopes))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


class Echo:
    """Says what it hears, and keeps the message that the socket ended with."""

    def __init__(self) -> None:
        self.end: Message | None = None

    async def __call__(self, receive: Receive, send: Send) -> None:
        assert await receive() == {"type": "websocket.connect"}
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        self.end = message

    async def ended(self) -> tuple[int, str]:
        await eventually(lambda: self.end is not None)
        assert self.end is not None
        return self.end["code"], self.end["reason"]


async def closing(socket: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as caught:
        await asyncio.wait_for(socket.recv(), PATIENCE)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


class TestMessages:
    @pytest.mark.parametrize("message", ["text: ä", b"bytes", "", b""], ids=repr)
    async def test_one(self, message: str | bytes) -> None:
        async with serving(Echo()) as server, connect(server.url) as socket:
            await socket.send(message)
            assert await socket.recv() == message

    @pytest.mark.parametrize("parts", [["a", "", "ä"], [b"a", b"", b"b"]], ids=repr)
    async def test_in_fragments(self, parts: list[str] | list[bytes]) -> None:
        async with serving(Echo()) as server, connect(server.url) as socket:
            await socket.send(parts)
            assert await socket.recv() == parts[0][:0].join(parts)  # type: ignore[arg-type]
            await socket.send("next")
            assert await socket.recv() == "next"

    async def test_the_last_words_before_a_close_are_read(self) -> None:
        heard: list[Message] = []

        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            while not heard or heard[-1]["type"] == "websocket.receive":
                heard.append(await receive())

        async with serving(serve) as server:
            async with connect(server.url) as socket:
                for word in "abc":
                    await socket.send(word)
            await eventually(lambda: len(heard) == 4)
            assert [message.get("text") for message in heard] == ["a", "b", "c", None]
            assert heard[-1]["code"] == 1000

    async def test_the_scope_is_that_of_a_websocket(self) -> None:
        async with serving(Echo()) as server, connect(server.url):
            scope = server.scopes[0]
            assert scope["type"] == "websocket"
            assert scope["scheme"] == "ws"
            assert (scope["path"], scope["query_string"]) == ("/here", b"a=1")
            assert (b"upgrade", b"websocket") in scope["headers"]

    async def test_reading_stops_while_the_application_reads_nothing(self) -> None:
        go, sent = asyncio.Event(), 0

        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await go.wait()
            while (message := await receive())["type"] == "websocket.receive":
                await send({**message, "type": "websocket.send"})

        async def flood(socket: ClientConnection) -> None:
            nonlocal sent
            for _ in range(30_000):
                await socket.send("x" * 900)
                sent += 1

        async with serving(serve) as server, connect(server.url, max_queue=None) as socket:
            flooding = asyncio.create_task(flood(socket))
            with pytest.raises(TimeoutError):  # the network's buffers are full
                await asyncio.wait_for(asyncio.shield(flooding), 3)
            assert sent < 30_000
            go.set()
            for _ in range(30_000):
                assert await socket.recv() == "x" * 900
            await flooding

    async def test_sending_waits_for_a_client_that_takes_nothing(self) -> None:
        sent = 0

        async def serve(receive: Receive, send: Send) -> None:
            nonlocal sent
            await receive()
            await send({"type": "websocket.accept"})
            for _ in range(200):
                await send({"type": "websocket.send", "bytes": b"x" * 500_000})
                sent += 1

        async with serving(serve) as server, connect(server.url, max_queue=1) as socket:
            await socket.recv()
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
            assert sent < 200
            for _ in range(199):
                await socket.recv()


class TestHandshake:
    async def test_a_socket_that_is_refused_is_a_403(self) -> None:
        async def refuse(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.close"})

        async with serving(refuse) as server:
            with pytest.raises(InvalidStatus) as caught:
                await connect(server.url)
            assert caught.value.response.status_code == 403

    async def test_a_request_without_a_key_is_a_400(self) -> None:
        async with serving(Echo()) as server:
            port = server.url.split(":")[2].split("/")[0]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(
                b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            )
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert not server.scopes

    async def test_one_that_is_refused_may_have_a_response_of_its_own(self) -> None:
        async def refuse(receive: Receive, send: Send) -> None:
            await receive()
            headers = [(b"content-length", b"4"), (b"retry-after", b"9")]
            await send({"type": "websocket.http.response.start", "status": 429, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b"wait"})
            assert await receive() == {"type": "websocket.disconnect", "code": 1006, "reason": ""}

        async with serving(refuse) as server:
            with pytest.raises(InvalidStatus) as caught:
                await connect(server.url)
            response = caught.value.response
            assert (response.status_code, response.body) == (429, b"wait")
            assert response.headers["retry-after"] == "9"
            assert response.headers["x-request-id"]

    async def test_nothing_is_read_before_it_is_accepted(self) -> None:
        """What a stranger sends waits in the network, however much it is."""
        decided = asyncio.Event()

        async def refuse_later(receive: Receive, send: Send) -> None:
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


class TestBounds:
    async def test_frames_are_parsed_over_many_turns_of_the_loop(self) -> None:
        """Frames of six bytes each: others have their turn after some hundred of them."""
        count, turns = 100_000, 0
        empty = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True, extensions=[])
        end = Frame(Opcode.CONT, b"end").serialize(mask=True, extensions=[])

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with serving(Echo()) as server, connect(server.url) as socket:
            begin = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True, extensions=[])
            counting = asyncio.create_task(count_turns())
            socket.transport.write(begin + empty * count + end)
            assert await asyncio.wait_for(socket.recv(), 2 * PATIENCE) == "end"
            counting.cancel()
            assert turns > count / 800

    @pytest.mark.parametrize("kind", [Opcode.PING, Opcode.PONG])
    async def test_too_many_control_frames_close_it(self, kind: Opcode) -> None:
        echo = Echo()
        frame = Frame(kind, b"").serialize(mask=True, extensions=[])
        async with serving(echo) as server, connect(server.url) as socket:
            # A second may end between them: twice as many never fit.
            socket.transport.write(frame * (2 * MAX_CONTROL_FRAMES + 1))
            code, reason = await closing(socket)
            assert (code, "in a second" in reason) == (1008, True)
            assert (await echo.ended())[0] == 1008

    async def test_pings_are_answered_up_to_there(self) -> None:
        async with serving(Echo()) as server, connect(server.url) as socket:
            pongs = [await socket.ping() for _ in range(MAX_CONTROL_FRAMES // 2)]
            async with asyncio.timeout(PATIENCE):
                for pong in pongs:
                    await pong

    async def test_nothing_is_parsed_after_the_close(self) -> None:
        """Neither what is against the protocol nor a ping gets an answer."""

        async def refuse(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 4401, "reason": "no"})

        ping = Frame(Opcode.PING, b"are you there").serialize(mask=True, extensions=[])
        async with serving(refuse) as server, raw(server) as (reader, writer):
            writer.write(ping * 10_000 + b"\xff" * 1000)
            async with asyncio.timeout(PATIENCE):
                answer = await reader.read()
            _, _, frames = answer.partition(b"\r\n\r\n")
            assert frames == Frame(Opcode.CLOSE, b"\x11\x31no").serialize(mask=False, extensions=[])

    async def test_who_does_not_hear_of_the_close_is_dropped(self) -> None:
        async def refuse(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close"})

        async with serving(refuse, Keepalive(20, 20, 0.2)) as server, raw(server):
            state = server.uvicorn.server_state
            await eventually(lambda: bool(server.scopes) and not state.connections)

    async def test_the_application_says_how_long_a_message_may_be(self) -> None:
        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept", "max_size": 10})
            first = await receive()
            await send({"type": "outrider.max_size", "max_size": 2000})
            await send({**first, "type": "websocket.send"})
            second = await receive()
            await send({**second, "type": "websocket.send"})
            assert (await receive())["code"] == 1009

        async with serving(serve) as server, connect(server.url) as socket:
            await socket.send("x" * 10)
            assert await socket.recv() == "x" * 10
            await socket.send("x" * 2000)
            assert await socket.recv() == "x" * 2000
            await socket.send("x" * 2001)
            assert (await closing(socket))[0] == 1009
        async with serving(serve) as server, connect(server.url) as socket:
            await socket.send("x" * 11)
            assert (await closing(socket))[0] == 1009


class TestCloses:
    @pytest.mark.parametrize(
        ("what", "code"),
        [
            pytest.param(Frame(Opcode.TEXT, b"\xff"), 1007, id="not UTF-8"),
            pytest.param(Frame(Opcode.TEXT, b"x" * (MAX_SIZE + 1)), 1009, id="too long"),
            pytest.param(Frame(Opcode.CONT, b"x"), 1002, id="continues nothing"),
            pytest.param(Frame(Opcode.CLOSE, b"x"), 1002, id="half a close code"),
        ],
    )
    async def test_what_is_against_the_protocol(self, what: Frame, code: int) -> None:
        echo = Echo()
        async with serving(echo) as server, connect(server.url) as socket:
            socket.transport.write(what.serialize(mask=True, extensions=[]))
            assert (await closing(socket))[0] == code
            assert (await echo.ended())[0] == code

    async def test_by_the_application(self) -> None:
        end: list[Message] = []

        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": 4403, "reason": "gone"})
            with pytest.raises(ConnectionError):
                await send({"type": "websocket.send", "text": "too late"})
            end.append(await receive())

        async with serving(serve) as server, connect(server.url) as socket:
            assert await closing(socket) == (4403, "gone")
            assert end[0]["type"] == "websocket.disconnect"

    async def test_by_a_client_that_goes_without_a_word(self) -> None:
        echo = Echo()
        async with serving(echo) as server, connect(server.url) as socket:
            socket.transport.abort()
            assert await echo.ended() == (1006, "")

    async def test_by_an_application_that_breaks(self) -> None:
        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            raise RuntimeError("broken")

        async with serving(serve) as server, connect(server.url) as socket:
            assert (await closing(socket))[0] == 1011

    async def test_by_the_server_that_stops(self) -> None:
        echo = Echo()
        async with serving(echo) as server, connect(server.url) as socket:
            server.uvicorn.should_exit = True
            assert (await closing(socket))[0] == 1012
            assert (await echo.ended())[0] == 1012

    async def test_nothing_is_left_of_it(self) -> None:
        async with serving(Echo()) as server:
            async with connect(server.url):
                assert len(server.uvicorn.server_state.connections) == 1
            state = server.uvicorn.server_state
            await eventually(lambda: not state.connections and not state.tasks)


class TestKeepalive:
    async def test_a_client_that_answers_stays(self) -> None:
        # One that has not answered gets no further ping.
        async with (
            serving(Echo(), Keepalive(0.05, PATIENCE)) as server,
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

    async def test_a_client_that_does_not_answer_is_dropped(self) -> None:
        echo = Echo()
        async with serving(echo, Keepalive(0.05, 0.1)) as server, connect(server.url) as socket:
            socket.transport.pause_reading()
            assert await echo.ended() == (1011, "keepalive ping timeout")
            socket.transport.resume_reading()


class TestPingsOfTheApplication:
    """`outrider.ping` shows that the peer is alive now, whatever it has sent before."""

    async def test_the_pong_ends_the_wait(self) -> None:
        answered = asyncio.Event()

        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "outrider.ping"})
            answered.set()

        async with serving(serve) as server, connect(server.url):
            await asyncio.wait_for(answered.wait(), PATIENCE)

    async def test_so_does_the_end_of_the_socket(self) -> None:
        failed = asyncio.Event()

        async def serve(receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            try:
                await send({"type": "outrider.ping"})
            except ConnectionError:
                failed.set()

        async with serving(serve) as server, raw(server) as (reader, writer):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            assert b" 101 " in head
            await asyncio.wait_for(reader.readexactly(2), PATIENCE)  # the ping, left unanswered
            writer.transport.abort()
            await asyncio.wait_for(failed.wait(), PATIENCE)
