"""The limits of a connection that uvicorn does not have: in bytes, in number and in time."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from starlette.types import Receive, Scope, Send

from outrider.service.http import http_protocol as limits
from outrider.service.http.http_protocol import Timeouts
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.http.protocol_server import serving

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
EARLY = POST.replace(b" / ", b" /early ")
"""A request that is answered before its body is read."""
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SOON = Timeouts(request=0.3, body_bytes=1000, response=0.3)
SLOW_REQUEST = replace(SOON, request=TIMEOUT)
"""For a request that must arrive in time, however busy the machine is."""
PATIENT = replace(Timeouts(), request=2 * TIMEOUT)


class Application:
    """Answers each request with the length of its body, and keeps what it was asked."""

    def __init__(self, response: bytes = b"") -> None:
        self.scopes: list[Scope] = []
        self.lengths: list[int] = []
        self.go = asyncio.Event()
        self.go.set()
        self.response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await self.go.wait()
        length, more = 0, scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length += len(message["body"])
            more = message.get("more_body", False)
        self.lengths.append(length)
        body = self.response or str(length).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class TestBytes:
    @pytest.mark.parametrize(
        ("begin", "endless"),
        [
            pytest.param(POST + b"X: ", b"x" * 4000, id="header value"),
            pytest.param(POST, b"X-Y: z\r\n" * 500, id="headers"),
            pytest.param(b"GET /", b"x" * 4000, id="path"),
            pytest.param(CHUNKED + b"1;", b"x" * 4000, id="chunk extension"),
            pytest.param(CHUNKED + b"0\r\n", b"X-Y: z\r\n" * 500, id="trailers"),
            pytest.param(CHUNKED + b"0\r\nX: ", b"x" * 4000, id="trailer value"),
            pytest.param(b"\r\n", b"\r\n" * 2000, id="blank lines"),
            pytest.param(GET + b"\r\n", b"\r\n" * 2000, id="blank lines after a request"),
        ],
    )
    async def test_endless_bytes_outside_a_body_end_the_connection(
        self, begin: bytes, endless: bytes
    ) -> None:
        async with serving(Application()) as server, server.connection() as connection:
            await connection.send(begin)
            await connection.send_until_dropped(endless, 10_000_000)
            await eventually(lambda: server.connections == 0)

    async def test_trailers_do_not_become_headers(self) -> None:
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            await connection.send(CHUNKED, b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
            assert await connection.status() == 200
        (scope,) = app.scopes
        assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]

    async def test_a_body_in_chunks_of_a_byte_is_read(self) -> None:
        """Some clients write so: six times as much as the body."""
        count = 100_000
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            await connection.send(CHUNKED, *[b"1\r\nx\r\n" * 1000] * (count // 1000))
            await connection.send(b"0\r\n\r\n")
            assert await connection.status() == 200
        assert app.lengths == [count]

    async def test_each_request_of_a_connection_is_counted_anew(self) -> None:
        """Also where the response comes before the end of the body."""
        early = EARLY + b"Content-Length: 3\r\nX: " + b"x" * 2000
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            for _ in range(100):
                await connection.send(early + b"\r\n\r\n")
                assert await connection.status() == 200
                await connection.send(b"abc" + GET)
                assert await connection.status() == 200
        assert len(app.scopes) == 200

    async def test_a_client_that_reads_its_response_after_sending_gets_it(self) -> None:
        """As nginx does, with a connection for each request: a reset would cost the response."""
        head = EARLY + b"Connection: close\r\nContent-Length: 5000000\r\n\r\n"
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            await connection.send(head)
            await eventually(lambda: bool(app.lengths))
            await connection.send(*[b"x" * 100_000] * 50)
            assert await connection.status() == 200
            assert await connection.is_dropped()

    async def test_nothing_is_answered_after_a_connection_s_last_request(self) -> None:
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            await connection.send(EARLY + b"Connection: close\r\nContent-Length: 3\r\n\r\n")
            assert await connection.status() == 200
            await connection.send(b"abc" + GET)
            assert await connection.is_dropped()
        assert len(app.scopes) == 1

    @pytest.mark.parametrize("more", [0, 1])
    async def test_more_headers_than_the_limit_get_a_400(self, more: int) -> None:
        async with serving(Application()) as server, server.connection() as connection:
            lines = b"X: y\r\n" * (limits.MAX_HEADERS - 1 + more)  # and Host
            await connection.send(GET[:-2] + lines + b"\r\n")
            assert await connection.status() == (400 if more else 200)

    @pytest.mark.parametrize("more", [0, 1])
    async def test_more_pipelined_requests_than_the_limit_end_the_connection(
        self, more: int
    ) -> None:
        count = 1 + limits.MAX_PIPELINED + more
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            app.go.clear()
            await connection.send(GET * count)
            if more:
                assert await connection.is_dropped()
            else:
                await eventually(lambda: bool(app.scopes))
            app.go.set()
            if not more:
                assert [await connection.status() for _ in range(count)] == [200] * count

    @pytest.mark.parametrize(
        "second",
        [b"rubbish\r\n\r\n", GET[:-2] + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"],
    )
    async def test_a_bad_second_request_is_not_answered_in_place_of_the_first(
        self, second: bytes
    ) -> None:
        app = Application()
        async with serving(app) as server, server.connection() as connection:
            app.go.clear()
            await connection.send(GET)
            await eventually(lambda: bool(app.scopes))
            await connection.send(second)
            assert await connection.is_dropped()
            app.go.set()


class TestTime:
    @pytest.mark.parametrize("begin", [b"G", GET[:-2], b"GET / HTTP/1.1\r\nX-A"])
    async def test_a_head_that_does_not_end_gets_a_408(self, begin: bytes) -> None:
        app = Application()
        async with serving(app, SOON) as server, server.connection() as connection:
            await connection.send(begin)
            assert await connection.status() == 408
            assert await connection.is_dropped()
            connection.writer.close()
            await eventually(lambda: server.connections == 0)
        assert app.scopes == []

    @pytest.mark.parametrize(
        ("begin", "rest"),
        [
            pytest.param(b"", b"G", id="head"),
            pytest.param(POST + b"Content-Length: 9000\r\n\r\n", b"x", id="body"),
            pytest.param(CHUNKED + b"0\r\n", b"X: y\r\n", id="trailers"),
        ],
    )
    async def test_a_request_that_comes_byte_by_byte_ends_the_connection(
        self, begin: bytes, rest: bytes
    ) -> None:
        """A head and a body have a limit as a whole, not each byte."""
        app = Application()
        async with (
            serving(app, replace(SOON, response=0.1)) as server,
            server.connection() as connection,
        ):
            await connection.send(begin)
            await connection.send_until_dropped(rest, 8000, pause=0.02)
        assert app.lengths == []

    @pytest.mark.parametrize("before", [b"", GET])
    @pytest.mark.parametrize("sent", [b"", b"\r\n"])
    async def test_a_connection_without_a_request_is_closed(
        self, before: bytes, sent: bytes
    ) -> None:
        timeouts = replace(SOON, request=1)
        async with (
            serving(Application(), timeouts, timeout_keep_alive=2) as server,
            server.connection() as connection,
        ):
            await connection.send(before)
            if before:
                assert await connection.status() == 200
            await connection.send(sent)
            assert await connection.is_dropped()

    async def test_a_body_without_progress_gets_a_408(self) -> None:
        app = Application()
        async with serving(app, SOON) as server, server.connection() as connection:
            await connection.send(POST + b"Content-Length: 9000\r\n\r\n" + b"x" * 2000)
            assert await connection.status() == 408
        assert app.lengths == []

    async def test_a_body_that_makes_progress_may_take_longer(self) -> None:
        parts = 30
        app = Application()
        async with (
            serving(app, Timeouts(request=1, body_bytes=1)) as server,
            server.connection() as connection,
        ):
            await connection.send(POST + b"Content-Length: %d\r\n\r\n" % (1000 * parts))
            for _ in range(parts):
                await connection.send(b"x" * 1000)
                await asyncio.sleep(0.1)
            assert await connection.status() == 200
        assert app.lengths == [1000 * parts]

    async def test_the_rest_of_a_body_that_was_answered_has_a_time_limit(self) -> None:
        """However fast it comes, it is of no use to anybody."""
        async with (
            serving(Application(), replace(SOON, request=1)) as server,
            server.connection() as connection,
        ):
            await connection.send(EARLY + b"Content-Length: 100000000\r\n\r\n")
            assert await connection.status() == 200
            await connection.send_until_dropped(b"x" * 2000, 2_000_000, pause=0.02)

    async def test_a_client_may_wait_for_a_slow_application(self) -> None:
        app = Application()
        async with serving(app, SOON) as server, server.connection() as connection:
            app.go.clear()
            await connection.send(GET)
            await eventually(lambda: bool(app.scopes))
            async with server.connection() as silent:
                await silent.is_dropped()  # at the end of the time that a client would have
            app.go.set()
            assert await connection.status() == 200

    async def test_a_client_that_does_not_read_its_response_is_dropped(self) -> None:
        app = Application(b"x" * 50_000_000)
        async with serving(app, SLOW_REQUEST) as server, server.connection() as connection:
            await connection.send(GET)  # and nothing is read, beyond what asyncio reads ahead
            await eventually(lambda: bool(app.lengths))
            await eventually(lambda: server.connections == 0)

    async def test_a_client_that_reads_too_little_of_its_response_is_dropped(self) -> None:
        app = Application(b"x" * 50_000_000)
        timeouts = Timeouts(response=0.5, response_bytes=20_000_000)
        async with serving(app, timeouts) as server, server.connection() as connection:
            await connection.send(GET)
            await eventually(lambda: bool(app.lengths))

            async def is_dropped() -> bool:
                await connection.reader.read(10_000)
                return server.connections == 0

            await eventually(is_dropped)

    async def test_a_client_that_reads_slowly_gets_its_response(self) -> None:
        app = Application(b"x" * 20_000_000)
        async with serving(app, Timeouts(response=1)) as server, server.connection() as connection:
            await connection.send(GET)
            await connection.reader.readuntil(b"\r\n\r\n")
            left = 20_000_000
            while left:
                left -= len(await connection.reader.read(1_000_000))
                await asyncio.sleep(0.05)


class TestMemory:
    async def test_the_oldest_unread_responses_are_dropped_for_newer_ones(self) -> None:
        app = Application(b"x" * 40_000_000)
        async with serving(app, max_unread_bytes=100_000_000) as server, AsyncExitStack() as stack:
            for number in range(1, 7):
                connection = await stack.enter_async_context(server.connection())
                await connection.send(GET)

                async def is_answered(number: int = number) -> bool:
                    return len(app.lengths) == number and server.connections == min(number, 2)

                await eventually(is_answered)
            assert await connection.status() == 200

    async def test_the_next_request_waits_until_a_response_is_read(self) -> None:
        app = Application(b"x" * 40_000_000)
        async with serving(app) as server, server.connection() as connection:
            await connection.send(GET, GET + GET)
            await eventually(lambda: len(app.lengths) == 1)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(app.scopes) == 1
            for _ in range(3):
                assert await connection.status() == 200

    async def test_a_response_that_was_read_is_not_counted(self) -> None:
        app = Application(b"x" * 40_000_000)
        async with (
            serving(app, PATIENT, 100_000_000) as server,
            server.connection() as first,
            server.connection() as second,
        ):
            for connection in (first, second) * 4:
                await connection.send(GET)
                assert await connection.status() == 200
            assert server.connections == 2
