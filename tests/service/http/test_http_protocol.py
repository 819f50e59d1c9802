"""The limits of a connection that uvicorn does not have: in bytes, in number and in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from outrider.service.http import http_protocol as limits
from outrider.service.http.error_response import WHOLE_RESPONSE
from outrider.service.http.http_protocol import CLOSE, Patience, http_protocol
from outrider.service.http.websocket import Keepalive, WebSocket
from tests.rig.patience import PATIENCE, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SOON = Patience(head=0.3, body=0.3, body_bytes=1000, response=0.3)
WHOLE_HEAD = replace(SOON, head=PATIENCE)
"""For a head that must arrive in time, however busy the machine is."""


class Application:
    """Answers each request with the length of its body, and keeps what it was asked."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.lengths: list[int] = []
        self.go = asyncio.Event()
        self.go.set()
        self.response = b""
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await self.go.wait()
        length, more = 0, not scope["path"].startswith("/early")
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length += len(message["body"])
            more = message.get("more_body", False)
        self.lengths.append(length)
        body = self.response or str(length).encode()
        headers = [(b"content-length", str(len(body)).encode()), *self.headers]
        if scope["path"].endswith("/whole"):
            assert WHOLE_RESPONSE in scope["extensions"]
            await send({"type": WHOLE_RESPONSE, "status": 200, "headers": headers, "body": body})
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Connection:
    """One connection of a client to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def sends(self, *parts: bytes) -> Self:
        """Send each part, and let the server take it."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)
        return self

    async def sends_on(self, part: bytes, most: int, pause: float = 0) -> int:
        """Send a part again and again until the server drops the connection.

        Returns the bytes sent until then; fails after `most` of them.
        """
        sent = 0
        try:
            while sent < most:
                await self.sends(part)
                await asyncio.sleep(pause)
                sent += len(part)
        except ConnectionError:
            return sent
        pytest.fail("the connection was not dropped")

    async def status(self) -> int:
        """Return the status of the next response, which is read to its end."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await self.reader.readexactly(length)
        return int(head.split()[1])

    async def is_dropped(self) -> bool:
        """Wait until the server has ended the connection; tell whether it did so unanswered."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.reader.read() == b""
        except ConnectionError:
            return True


class Server:
    """A server with these limits."""

    def __init__(self, patience: Patience, max_unread_bytes: int) -> None:
        self.app = Application()
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            http=http_protocol(Keepalive(20, 20), patience, max_unread_bytes),
            ws=WebSocket,
            port=0,
            lifespan="off",
            log_config=None,
            # A connection waits while others send 40 MB, for seconds where the machine is busy.
            timeout_keep_alive=int(2 * PATIENCE),
        )
        self.uvicorn = uvicorn.Server(config)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        port = self.uvicorn.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()

    @property
    def connections(self) -> int:
        """How many connections the server has."""
        return len(self.uvicorn.server_state.connections)


@asynccontextmanager
async def serving(
    patience: Patience | None = None, max_unread_bytes: int = limits.MAX_UNREAD_BYTES
) -> AsyncIterator[Server]:
    server = Server(patience or Patience(), max_unread_bytes)
    task = asyncio.create_task(server.uvicorn._serve())  # past its signal handlers
    try:
        await eventually(lambda: server.uvicorn.started)
        yield server
    finally:
        server.app.go.set()
        server.uvicorn.should_exit = True
        await task


class TestBytes:
    @pytest.mark.parametrize(
        "endless",
        [
            pytest.param([POST + b"X: ", b"x" * 4000], id="header value"),
            pytest.param([POST, b"X-Y: z\r\n" * 500], id="headers"),
            pytest.param([b"GET /", b"x" * 4000], id="path"),
            pytest.param([CHUNKED + b"1;", b"x" * 4000], id="chunk extension"),
            pytest.param([CHUNKED + b"0\r\n", b"X-Y: z\r\n" * 500], id="trailers"),
            pytest.param([CHUNKED + b"0\r\nX: ", b"x" * 4000], id="trailer value"),
            pytest.param([b"\r\n", b"\r\n" * 2000], id="blank lines"),
            pytest.param([GET + b"\r\n", b"\r\n" * 2000], id="blank lines after a request"),
        ],
    )
    async def test_what_is_no_body_has_an_end(self, endless: list[bytes]) -> None:
        first, more = endless
        async with serving() as server, server.connection() as connection:
            await connection.sends(first)
            await connection.sends_on(more, 10_000_000)
            await eventually(lambda: server.connections == 0)

    async def test_trailers_do_not_become_headers(self) -> None:
        async with serving() as server, server.connection() as connection:
            await connection.sends(CHUNKED, b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
            assert await connection.status() == 200
            (scope,) = server.app.scopes
            assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]

    async def test_a_body_in_small_chunks_is_taken(self) -> None:
        """Each of a byte, as some clients write: six times as much as the body."""
        count = 100_000
        async with serving() as server, server.connection() as connection:
            await connection.sends(CHUNKED, *[b"1\r\nx\r\n" * 1000] * (count // 1000))
            await connection.sends(b"0\r\n\r\n")
            assert await connection.status() == 200
            assert server.app.lengths == [count]

    async def test_many_requests_on_one_connection_are_no_flood(self) -> None:
        """What is counted begins anew with each, also where the response came before the end."""
        early = POST.replace(b" / ", b" /early ") + b"Content-Length: 3\r\nX: " + b"x" * 2000
        async with serving() as server, server.connection() as connection:
            for _ in range(100):
                await connection.sends(early + b"\r\n\r\n")
                assert await connection.status() == 200
                await connection.sends(b"abc")
                await connection.sends(GET)
                assert await connection.status() == 200
            assert len(server.app.scopes) == 200

    async def test_a_body_that_was_answered_goes_on_for_a_while(self) -> None:
        early = POST.replace(b" / ", b" /early ") + b"Content-Length: 1000000000\r\n\r\n"
        async with serving() as server, server.connection() as connection:
            await connection.sends(early)
            assert await connection.status() == 200
            sent = await connection.sends_on(b"x" * 1_000_000, 2 * limits.MAX_BODY_BYTES)
            assert sent >= limits.MAX_BODY_BYTES

    @pytest.mark.parametrize("path", [b" /early ", b" /early/whole "])
    async def test_a_client_that_reads_its_response_after_sending(self, path: bytes) -> None:
        """As nginx does, with a connection for each request: a reset would cost the response."""
        early = POST.replace(b" / ", path) + b"Connection: close\r\nContent-Length: 5000000\r\n\r\n"
        async with serving() as server, server.connection() as connection:
            await connection.sends(early)
            await eventually(lambda: bool(server.app.lengths))
            await connection.sends(*[b"x" * 100_000] * 50)
            assert await connection.status() == 200
            async with asyncio.timeout(PATIENCE):
                assert await connection.reader.read() == b""

    async def test_nothing_is_answered_after_a_connection_s_last_request(self) -> None:
        early = (
            POST.replace(b" / ", b" /early ") + b"Connection: close\r\nContent-Length: 3\r\n\r\n"
        )
        async with serving() as server, server.connection() as connection:
            await connection.sends(early)
            assert await connection.status() == 200
            await connection.sends(b"abc" + GET)
            async with asyncio.timeout(PATIENCE):
                assert await connection.reader.read() == b""
            assert len(server.app.scopes) == 1

    @pytest.mark.parametrize("more", [0, 1])
    async def test_the_number_of_headers(self, more: int) -> None:
        async with serving() as server, server.connection() as connection:
            lines = b"X: y\r\n" * (limits.MAX_HEADERS - 1 + more)  # and Host
            await connection.sends(GET[:-2] + lines + b"\r\n")
            assert await connection.status() == (400 if more else 200)

    @pytest.mark.parametrize("more", [0, 1])
    async def test_requests_that_wait_for_the_response_to_an_earlier_one(self, more: int) -> None:
        count = 1 + limits.MAX_PIPELINED + more
        async with serving() as server, server.connection() as connection:
            server.app.go.clear()
            await connection.sends(GET * count)
            if more:
                assert await connection.is_dropped()
                return
            await eventually(lambda: bool(server.app.scopes))
            server.app.go.set()
            assert [await connection.status() for _ in range(count)] == [200] * count

    @pytest.mark.parametrize("then", [b"rubbish\r\n\r\n", GET[:-2] + b"Upgrade: websocket\r\n"])
    async def test_no_response_is_written_into_another_one(self, then: bytes) -> None:
        """What is wrong with the second request does not take the place of the first response."""
        upgrade = b"Connection: Upgrade\r\n\r\n" if then.startswith(b"GET") else b""
        async with serving() as server, server.connection() as connection:
            server.app.go.clear()
            await connection.sends(GET)
            await eventually(lambda: bool(server.app.scopes))
            await connection.sends(then + upgrade)
            assert await connection.is_dropped()


class TestWholeResponse:
    """A response in one message is the same as in two."""

    @pytest.mark.parametrize(
        "request_head",
        [
            b"GET / HTTP/1.1\r\n",
            b"HEAD / HTTP/1.1\r\n",
            b"GET / HTTP/1.0\r\n",
            b"GET / HTTP/1.1\r\nConnection: close\r\n",
        ],
    )
    @pytest.mark.parametrize("is_draining", [False, True])
    async def test_bytes(self, request_head: bytes, is_draining: bool) -> None:
        responses = []
        async with serving() as server:
            server.app.headers = [(b"x-name", b"value")]
            if is_draining:
                server.uvicorn.config.encoded_headers.append(CLOSE)
                server.uvicorn.server_state.default_headers = [CLOSE]
            for path in (b" / ", b" /whole "):
                async with server.connection() as connection:
                    await connection.sends(request_head.replace(b" / ", path) + b"Host: x\r\n\r\n")
                    # The second request is answered if the connection goes on.
                    await connection.sends(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
                    async with asyncio.timeout(PATIENCE):
                        responses.append(await connection.reader.read())
        in_two, whole = (
            [line for line in one.splitlines() if not line.startswith(b"date")] for one in responses
        )
        assert sorted(in_two) == sorted(whole)

    async def test_pipelined(self) -> None:
        async with serving() as server, server.connection() as connection:
            server.app.go.clear()
            await connection.sends(GET.replace(b" / ", b" /whole ") * 3)
            server.app.go.set()
            assert [await connection.status() for _ in range(3)] == [200] * 3

    async def test_a_header_with_a_line_break_is_not_sent(self) -> None:
        async with serving() as server, server.connection() as connection:
            server.app.headers = [(b"x-name", b"value\r\nset-cookie: a=b")]
            await connection.sends(GET.replace(b" / ", b" /whole "))
            assert await connection.status() == 500


class TestTime:
    @pytest.mark.parametrize("begun", [b"G", GET[:-2], b"GET / HTTP/1.1\r\nX-A"])
    async def test_a_head_that_does_not_end(self, begun: bytes) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends(begun)
            assert await connection.status() == 408
            assert await connection.is_dropped()
            await eventually(lambda: server.connections == 0)
            assert server.app.scopes == []

    async def test_a_head_that_comes_byte_by_byte(self) -> None:
        """It is the whole of it that has a limit, not each byte."""
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends_on(b"G", 1000, pause=0.02)
            assert server.app.scopes == []

    @pytest.mark.parametrize("sent", [b"", b"\r\n"])
    async def test_a_connection_on_which_nothing_comes(self, sent: bytes) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends(sent)
            assert await connection.is_dropped()

    async def test_blank_lines_do_not_keep_a_connection(self) -> None:
        async with serving(replace(SOON, head=2)) as server, server.connection() as connection:
            await connection.sends(GET)
            assert await connection.status() == 200
            await connection.sends(b"\r\n")
            assert await connection.is_dropped()

    async def test_a_body_that_stands_still(self) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends(POST + b"Content-Length: 9000\r\n\r\n" + b"x" * 2000)
            assert await connection.status() == 408
            assert server.app.lengths == []

    async def test_a_body_that_only_drips(self) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends(POST + b"Content-Length: 9000\r\n\r\n")
            await connection.sends_on(b"x", 8999, pause=0.02)
            assert server.app.lengths == []

    async def test_trailers_that_only_drip(self) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            await connection.sends(CHUNKED, b"0\r\n")
            await connection.sends_on(b"X: y\r\n", 9000, pause=0.02)
            assert server.app.lengths == []

    async def test_a_body_that_makes_progress_may_take_longer(self) -> None:
        parts = 30
        async with (
            serving(Patience(body=1, body_bytes=1)) as server,
            server.connection() as connection,
        ):
            await connection.sends(POST + b"Content-Length: %d\r\n\r\n" % (1000 * parts))
            for _ in range(parts):
                await connection.sends(b"x" * 1000)
                await asyncio.sleep(0.1)
            assert await connection.status() == 200
            assert server.app.lengths == [1000 * parts]

    async def test_the_rest_of_a_body_that_was_answered(self) -> None:
        """However fast it comes, it is of no use to anybody."""
        early = POST.replace(b" / ", b" /early ") + b"Content-Length: 100000000\r\n\r\n"
        async with serving(replace(SOON, head=2)) as server, server.connection() as connection:
            await connection.sends(early)
            assert await connection.status() == 200
            await connection.sends_on(b"x" * 2000, 2_000_000, pause=0.02)

    async def test_an_application_that_is_slow_is_nobodys_fault(self) -> None:
        async with serving(SOON) as server, server.connection() as connection:
            server.app.go.clear()
            await connection.sends(GET)
            await eventually(lambda: bool(server.app.scopes))
            async with server.connection() as silent:
                await silent.is_dropped()  # at the end of the time that a client would have
            server.app.go.set()
            assert await connection.status() == 200

    async def test_a_client_that_does_not_take_its_response(self) -> None:
        async with serving(WHOLE_HEAD) as server, server.connection() as connection:
            server.app.response = b"x" * 50_000_000
            await connection.sends(GET)  # and nothing is read, beyond what asyncio reads ahead
            await eventually(lambda: bool(server.app.lengths))
            await eventually(lambda: server.connections == 0)

    async def test_a_client_that_takes_too_little_of_it(self) -> None:
        patience = Patience(response=0.5, response_bytes=20_000_000)
        async with serving(patience) as server, server.connection() as connection:
            server.app.response = b"x" * 50_000_000
            await connection.sends(GET)
            await eventually(lambda: bool(server.app.lengths))

            async def is_dropped() -> bool:
                await connection.reader.read(10_000)
                return server.connections == 0

            await eventually(is_dropped)

    async def test_what_is_unread_is_bounded(self) -> None:
        """The newest responses go on, however many were requested before and not read."""
        async with serving(max_unread_bytes=100_000_000) as server, AsyncExitStack() as held:
            server.app.response = b"x" * 40_000_000
            for number in range(1, 7):
                connection = await held.enter_async_context(server.connection())
                await connection.sends(GET)

                async def is_answered(number: int = number) -> bool:
                    left = min(number, 2)
                    return len(server.app.lengths) == number and server.connections == left

                await eventually(is_answered)
            assert await connection.status() == 200

    async def test_the_next_request_waits_until_a_response_is_read(self) -> None:
        async with serving(Patience()) as server, server.connection() as connection:
            server.app.response = b"x" * 40_000_000
            await connection.sends(GET, GET + GET)
            await eventually(lambda: len(server.app.lengths) == 1)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(server.app.scopes) == 1
            for _ in range(3):
                assert await connection.status() == 200

    async def test_a_response_that_was_read_is_not_counted(self) -> None:
        async with (
            serving(Patience(head=2 * PATIENCE), max_unread_bytes=100_000_000) as server,
            server.connection() as first,
            server.connection() as second,
        ):
            server.app.response = b"x" * 40_000_000
            for connection in (first, second) * 4:
                await connection.sends(GET)
                assert await connection.status() == 200
            assert server.connections == 2

    async def test_a_client_that_takes_it_slowly(self) -> None:
        async with (
            serving(Patience(response=1)) as server,
            server.connection() as connection,
        ):
            server.app.response = b"x" * 20_000_000
            await connection.sends(GET)
            await connection.reader.readuntil(b"\r\n\r\n")
            left = 20_000_000
            while left:
                left -= len(await connection.reader.read(1_000_000))
                await asyncio.sleep(0.05)
