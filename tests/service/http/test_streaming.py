"""Streaming responses, on endpoints of the tests' own behind a running service."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from html import escape
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.types import Message

from outrider.contract.outcomes import Done
from outrider.contract.structs import Wire
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.docs import page
from outrider.service.http.endpoint import Call, Endpoint, StreamKind, bind, never
from outrider.service.http.openapi import describe
from outrider.service.http.streaming import Stream, StreamingResponses
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

PATH = "/api/v1/ticks"
BULK = "/api/v1/bulk"
KIND = StreamKind(
    media_type="text/event-stream",
    description="Ticks, until the client disconnects.",
    example="data: 1\n\n",
)
LAST = b"event: end\n\n"
CHUNK_BYTES = 64 * 1024
CHUNKS = 1024


class Source:
    """What the endpoint streams: the chunks that the test puts into `chunks`."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.started = asyncio.Event()
        self.closed = asyncio.Event()
        self.bulk_chunks = 0

    async def ticks(self, _services: Any, call: Call) -> Wire | Stream:
        """Send ticks."""
        if (b"accept", b"application/json") in call.asgi_scope["headers"]:
            return Done()
        return Stream(self._generate(), LAST)

    async def bulk(self, _services: Any, _call: Call) -> Stream:
        """Send many bytes."""
        return Stream(self._generate_bulk())

    async def _generate(self) -> AsyncGenerator[bytes, None]:
        self.started.set()
        try:
            while (chunk := await self.chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed.set()

    async def _generate_bulk(self) -> AsyncGenerator[bytes, None]:
        for _ in range(CHUNKS):
            self.bulk_chunks += 1
            yield b"x" * CHUNK_BYTES

    def endpoints(self) -> list[Endpoint[Any]]:
        return [
            Endpoint(
                method="GET",
                path=PATH,
                who="principal",
                summary="Ticks",
                handler=self.ticks,
                response=Done,
                stream=KIND,
                tag="Daemons",
            ),
            Endpoint(
                method="GET",
                path=BULK,
                who="principal",
                summary="Many bytes",
                handler=self.bulk,
                response=(),
                stream=KIND,
                tag="Daemons",
            ),
        ]


class Client:
    """An open stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._chunks = response.aiter_raw()

    async def next(self) -> bytes:
        async with asyncio.timeout(TIMEOUT):
            return await anext(self._chunks)

    async def rest(self) -> bytes:
        async with asyncio.timeout(TIMEOUT):
            return b"".join([chunk async for chunk in self._chunks])


class Setting:
    """A service with the endpoints of `source`, and an account of it."""

    def __init__(self, source: Source, owner: Owner) -> None:
        self.source = source
        self.owner = owner

    async def open(self) -> Client:
        request = self.owner.api.build_request("GET", PATH)
        return Client(await self.owner.api.send(request, stream=True))


@pytest_asyncio.fixture(loop_scope="session")
async def setting(start_site: StartSite) -> AsyncIterator[Setting]:
    source = Source()
    site = await start_site(more_endpoints=bind(source.endpoints(), None))
    yield Setting(source, await site.account())


async def test_a_chunk_arrives_before_the_next_one_exists(setting: Setting) -> None:
    stream = await setting.open()
    assert stream.response.status_code == 200
    headers = stream.response.headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-store"
    assert headers["x-accel-buffering"] == "no"
    assert '"key"' in headers["ratelimit-policy"]
    for chunk in (b"data: 1\n\n", b"data: 2\n\n"):
        setting.source.chunks.put_nowait(chunk)
        assert await stream.next() == chunk
    setting.source.chunks.put_nowait(None)
    assert await stream.rest() == b""
    await eventually(setting.source.closed.is_set)


async def test_it_is_authorized_as_every_request(setting: Setting) -> None:
    assert_error(await setting.owner.site.client().get(PATH), 401, "AUTH_REQUIRED")
    assert not setting.source.started.is_set()


async def test_the_handler_may_answer_with_json(setting: Setting) -> None:
    response = await setting.owner.api.get(PATH, headers={"Accept": "application/json"})
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"success": True}


async def test_the_generator_is_closed_when_the_client_disconnects(setting: Setting) -> None:
    stream = await setting.open()
    setting.source.chunks.put_nowait(b"data: 1\n\n")
    await stream.next()
    await stream.response.aclose()
    await eventually(setting.source.closed.is_set)


async def test_a_node_that_drains_ends_its_streams(setting: Setting) -> None:
    stream = await setting.open()
    setting.source.chunks.put_nowait(b"data: 1\n\n")
    await stream.next()
    stop = asyncio.create_task(setting.owner.site.stop())
    assert await stream.rest() == LAST, "the response is complete"
    await eventually(setting.source.closed.is_set)
    async with asyncio.timeout(TIMEOUT):
        await stop


async def test_a_stream_that_fails_is_incomplete(setting: Setting) -> None:
    stream = await setting.open()
    setting.source.chunks.put_nowait(b"data: 1\n\n")
    await stream.next()
    setting.source.chunks.put_nowait(RuntimeError("a defect"))
    with pytest.raises(httpx.RemoteProtocolError):
        await stream.rest()


async def test_a_client_that_does_not_read_stops_the_generator(setting: Setting) -> None:
    """The generator is ahead of the client by no more than the buffers of both sockets."""
    site = setting.owner.site
    port = int(site.url.rpartition(":")[2])
    ahead = 48 * 1024 * 1024
    assert ahead < CHUNKS * CHUNK_BYTES
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(2 * TIMEOUT):
        await loop.sock_connect(connection, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES)
        head = f"GET {BULK} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        writer.write(f"{head}{setting.owner.key}\r\nConnection: close\r\n\r\n".encode())
        await eventually(lambda: setting.source.bulk_chunks > 0)
        received = 0
        while data := await reader.read(CHUNK_BYTES):
            received += len(data)
            assert setting.source.bulk_chunks * CHUNK_BYTES - received < ahead
        assert received > CHUNKS * CHUNK_BYTES
        writer.close()


async def test_a_stream_that_begins_while_the_node_drains_ends_at_once() -> None:
    streams, source, sent = StreamingResponses(), Source(), []

    async def send(message: Message) -> None:
        sent.append(message)

    streams.drain()
    call = Call({"headers": []}, None, "127.0.0.1", None, b"", None, never)
    stream = await source.ticks(None, call)
    assert isinstance(stream, Stream)
    async with asyncio.timeout(TIMEOUT):
        await streams.send(stream, send, never)
    assert sent == [{"type": "http.response.body", "body": LAST}]


async def test_openapi_describes_it() -> None:
    paths = describe([*ENDPOINTS, *Source().endpoints()])["paths"]
    both = paths[PATH]["get"]["responses"]["200"]["content"]
    assert both.keys() == {"application/json", "text/event-stream"}
    assert both["text/event-stream"]["example"] == KIND.example
    alone = paths[BULK]["get"]["responses"]["200"]
    assert alone["content"].keys() == {"text/event-stream"}
    assert alone["description"] == KIND.description


async def test_the_reference_shows_its_media_type_and_example() -> None:
    reference = page(describe([*ENDPOINTS, *Source().endpoints()]))
    assert "text/event-stream" in reference
    assert f"<pre>{escape(KIND.example)}</pre>" in reference


async def test_a_stream_is_never_stored_under_an_idempotency_key() -> None:
    with pytest.raises(ValueError, match="Idempotency-Key"):
        Endpoint(
            method="POST",
            path=PATH,
            who="principal",
            summary="Ticks",
            handler=Source().ticks,
            response=(),
            stream=KIND,
            tag="Daemons",
        )
