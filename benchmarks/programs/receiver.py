"""A receiver that answers 200 at once and counts what comes, with the least work possible.

Run as `python -m benchmarks.programs.receiver PORT`. `GET /count` tells how many deliveries
have come, `GET /last` the monotonic time in nanoseconds of the newest one's first byte. To
`/flaky` one delivery in 100 is answered with
500 and one in 100 after 3 s.
"""

import asyncio
import sys
import time
from typing import Final, cast

import httptools
import uvloop

_LATE_SECONDS: Final = 3.0
_ERROR: Final = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Counts:
    """What has come so far."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.last = 0


class Receiving(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._url = b""
        self._first_byte = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to parse."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        if not self._first_byte:
            self._first_byte = time.monotonic_ns()
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Take the request's path."""
        self._url = url

    def on_message_complete(self) -> None:
        """Answer a request."""
        counts = self._counts
        if self._parser.get_method() == b"POST":
            counts.deliveries += 1
            counts.last = self._first_byte
            self._answer(counts.deliveries % 100 if self._url.startswith(b"/flaky") else -1)
        else:
            number = counts.last if self._url == b"/last" else counts.deliveries
            body = str(number).encode()
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
        self._first_byte = 0

    def _answer(self, number: int) -> None:
        if number == 50:
            loop = asyncio.get_running_loop()
            loop.call_later(_LATE_SECONDS, self._transport.write, _OK)
        else:
            self._transport.write(_ERROR if number == 0 else _OK)


async def run(port: int) -> None:
    """Receive until a signal comes."""
    counts = Counts()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiving(counts), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1])))
