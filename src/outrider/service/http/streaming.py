"""Streaming responses: the chunks of a handler, sent while the client reads them.

    generator ──one chunk at a time──> `send` ──> the connection's write buffer ──> client
                                           │
                                           └─ ends with the generator, when the client disconnects,
                                              or when the node drains

The next chunk is taken from the generator only once the write buffer has room, so a client that
does not read stops its generator and costs no memory. The connection itself ends when such a client
has read nothing for a minute (`http_protocol.Timeouts`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from starlette.types import Send

_END_SECONDS: Final = 1.0
"""How long cancelled work has to clean up, and the client to read the last chunk."""


class Stream(NamedTuple):
    """The body of a streaming response.

    `chunks` is closed when the stream ends, for whatever reason. A client may disconnect before the
    generator has started; its `finally` then does not run. So the `finally` may release only what
    the generator itself has acquired; `ended`, which is always called, releases what the handler
    has acquired. `last_on_drain` is sent instead of the remaining chunks when the node drains.
    """

    chunks: AsyncGenerator[bytes, None]
    last_on_drain: bytes = b""
    ended: Callable[[], None] = lambda: None


class StreamingResponses:
    """Sends the streaming responses of this node, and ends them when it drains."""

    def __init__(self) -> None:
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End all streams; those that begin from now on end at once."""
        self._draining.set()

    async def send(
        self, stream: Stream, send: Send, disconnected: Callable[[], Awaitable[None]]
    ) -> None:
        """Send a response's body, until one side ends it.

        Args:
            disconnected: returns when the client has disconnected.

        Raises:
            Exception: the generator failed. The response is left incomplete, so that the server
                closes the connection and the client notices.
        """
        sender = asyncio.create_task(_send_chunks(stream.chunks, send), name="send a stream")
        leaving = asyncio.ensure_future(disconnected())
        draining = asyncio.create_task(self._draining.wait(), name="wait for the node to drain")
        try:
            # The generator is suspended in its next chunk or in `send`: stop it before closing it.
            first = await first_to_end(sender, leaving, draining)
        finally:
            if sender.done():
                await stream.chunks.aclose()
        if first is leaving:
            return
        if first is sender:
            sender.result()
        last = b"" if first is sender else stream.last_on_drain
        with suppress(TimeoutError):  # the client does not read: the server ends the connection
            async with asyncio.timeout(_END_SECONDS):
                await send({"type": "http.response.body", "body": last})


async def _send_chunks(chunks: AsyncGenerator[bytes, None], send: Send) -> None:
    async for chunk in chunks:
        # Waits while the client's connection has no room.
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def first_to_end(*futures: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """Return the first of these to end, once the others are cancelled; also if this is cancelled.

    Of several that have ended, it is the one that comes first in the arguments. Those that take
    long to end after their cancellation are not waited for.
    """
    try:
        ended, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in futures:
            future.cancel()
        await asyncio.wait(futures, timeout=_END_SECONDS)
    return next(future for future in futures if future in ended)
