"""What is read of a receiver's answer, and for how long. Holds docs/webhooks.md."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from outrider.service.webhooks.addresses import AddressPolicy
from outrider.service.webhooks.http_client import KEPT_BYTES
from outrider.service.webhooks.retry_policy import Outcome
from outrider.service.webhooks.sender import Sender
from tests.rig.spans import RecordedTracing
from tests.rig.waiting import TIMEOUT
from tests.service.webhooks.receiver import SIGNATURE, receiving, response

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A receiver that speaks raw bytes: `sent` counts those of its answer that were taken."""

    def __init__(self) -> None:
        self.url = ""
        self.sent = 0
        self.gone = asyncio.Event()


@asynccontextmanager
async def peer(head: bytes, talk: Talk) -> AsyncIterator[Peer]:
    """Give a receiver that answers with `head`, then talks until its client has gone."""
    self = Peer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            await talk(writer)
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.gone.set()
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield self
    finally:
        server.close()
        await server.wait_closed()


async def attempt(url: str, seconds: float = 10.0) -> Outcome:
    sender = Sender(AddressPolicy(allow_private=True), seconds)
    try:
        return await sender.attempt(
            url=url, secrets=["s"], event="e", delivery="d", number=1, body=b"{}"
        )
    finally:
        await sender.close()


def sends(data: bytes) -> Talk:
    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return talk


async def forever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def drips(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def hangs(writer: asyncio.StreamWriter) -> None:
    return


async def test_the_first_16_kib_of_an_endless_body() -> None:
    """The rest is not read: the connection is closed, and the attempt ends at once."""
    async with peer(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", forever) as server:
        outcome = await attempt(server.url)
        async with asyncio.timeout(TIMEOUT):
            await server.gone.wait()
    assert outcome.delivered
    assert outcome.response_body == "x" * KEPT_BYTES


async def test_a_body_without_a_length() -> None:
    async with peer(b"HTTP/1.1 500 No\r\n\r\n", forever) as server:
        outcome = await attempt(server.url)
    assert (outcome.status, outcome.response_body) == (500, "x" * KEPT_BYTES)


async def test_a_gzip_bomb() -> None:
    """16 KiB of it are read, and 16 KiB of what is in them kept."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with peer(head, sends(bomb)) as server:
        outcome = await attempt(server.url)
    assert outcome.delivered
    assert outcome.response_body is not None
    assert len(outcome.response_body) == KEPT_BYTES
    assert "\0" not in outcome.response_body


@pytest.mark.parametrize(
    ("encoding", "data", "kept"),
    [
        (b"gzip", gzip.compress("schön".encode(), mtime=0), "schön"),
        (b"deflate", zlib.compress(b"plain"), "plain"),
        (b"gzip", b"not gzip", "(8 bytes that are not gzip)"),
        (b"br", b"abc", "abc"),
        (b"identity", b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
async def test_a_packed_body(encoding: bytes, data: bytes, kept: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n"
    async with peer(head % (encoding, len(data)), sends(data)) as server:
        outcome = await attempt(server.url)
    assert (outcome.delivered, outcome.response_body) == (True, kept)


@pytest.mark.parametrize(
    ("head", "talk", "status"),
    [
        (b"", hangs, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", hangs, 200),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", drips, 200),
        (b"HTTP/1.1 200 OK\r\n", hangs, None),
    ],
    ids=["silent", "no body", "dripping body", "half a head"],
)
async def test_the_time_is_for_all_of_it(head: bytes, talk: Talk, status: int | None) -> None:
    """Ten seconds in all, body included: here half a second."""
    async with peer(head, talk) as server:
        outcome = await attempt(server.url, seconds=0.5)
    assert (outcome.status, outcome.delivered) == (status, False)
    assert outcome.error is not None
    assert "0.5 seconds" in outcome.error


@pytest.mark.parametrize(
    "head",
    [
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_not_http(head: bytes) -> None:
    async def ends(writer: asyncio.StreamWriter) -> None:
        writer.write_eof()

    async with peer(head, ends) as server:
        outcome = await attempt(server.url, seconds=TIMEOUT)
    assert not outcome.delivered
    assert outcome.error


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2p1 planted\r\n",
        b"220 planted ESMTP Postfix\r\n",
        b"-ERR unknown command planted\r\n",
        b"planted",
        b"HTTP/1.1 planted OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nplanted planted\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: planted\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"planted" * 2000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nplanted\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nplanted",
    ],
)
async def test_a_failure_tells_nothing_of_what_the_peer_is(scheme: str, answer: bytes) -> None:
    """Else a webhook would show what programs there are inside the operator's network."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await attempt(f"{scheme}://127.0.0.1:{port}/", seconds=TIMEOUT)
    assert not outcome.delivered
    assert outcome.error is not None
    assert outcome.error.startswith("The receiver could not be reached: ")
    assert len(outcome.error) < 120
    assert "planted" not in outcome.error


async def test_interim_responses_without_end() -> None:
    """The attempt is over at once, not at the end of its time."""

    async def again(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
            await writer.drain()

    async with peer(b"", again) as server:
        outcome = await attempt(server.url, seconds=60)
        async with asyncio.timeout(TIMEOUT):
            await server.gone.wait()
    assert outcome.error is not None
    assert "interim" in outcome.error


async def test_a_few_interim_responses() -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 5
    async with peer(head + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", hangs) as server:
        outcome = await attempt(server.url)
    assert (outcome.delivered, outcome.response_body) == (True, "ok")


async def test_nobody_listens() -> None:
    async with peer(b"", hangs) as server:
        url = server.url
    outcome = await attempt(url)
    assert (outcome.status, outcome.delivered) == (None, False)
    assert outcome.error is not None
    assert "could not be reached" in outcome.error


async def test_an_attempt_has_a_span_that_its_receiver_may_continue() -> None:
    """Of the URL it has the host only: of some receivers the path is a secret."""
    tracing = RecordedTracing()
    sender = Sender(AddressPolicy(allow_private=True), TIMEOUT, tracing=tracing)
    async with receiving() as receiver:
        for status in (200, 503):
            receiver.respond_with(response(status))
            await sender.attempt(
                url=f"{receiver.url}/path-secret?query-secret",
                secrets=["s"],
                event="webhook:test",
                delivery="d",
                number=1,
                body=b"{}",
            )
        await sender.close()
        delivered, failed = tracing.spans
        for span, taken in zip(tracing.spans, receiver.requests, strict=True):
            assert taken.headers["traceparent"] == span.traceparent
            assert taken.headers[SIGNATURE]
    assert delivered.attributes == {
        "http.request.method": "POST",
        "outrider.event": "webhook:test",
        "outrider.delivery.id": "d",
        "outrider.delivery.attempt": 1,
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
    }
    assert (delivered.name, delivered.parent, delivered.has_ended()) == ("POST webhook", "", True)
    assert (delivered.failure, failed.failure) == (None, "503")


async def test_without_tracing_a_receiver_gets_no_trace() -> None:
    sender = Sender(AddressPolicy(allow_private=True), TIMEOUT)
    async with receiving() as receiver:
        await sender.attempt(
            url=receiver.url, secrets=["s"], event="e", delivery="d", number=1, body=b"{}"
        )
        await sender.close()
        assert "traceparent" not in receiver.requests[0].headers
