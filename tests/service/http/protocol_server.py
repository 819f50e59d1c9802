"""An application behind uvicorn with our protocols, and connections to it that send any bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import pytest
import uvicorn
from starlette.types import ASGIApp

from outrider.service.http.http_protocol import MAX_UNREAD_BYTES, Timeouts, http_protocol
from outrider.service.http.websocket import WebSocket
from tests.rig.waiting import TIMEOUT, eventually

MAX_MESSAGE = 1000
"""The default limit of a message in bytes."""


@dataclass
class Connection:
    """One connection of a client to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> Self:
        """Send each part, and let the server take it."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)
        return self

    async def send_until_dropped(self, part: bytes, most: int, pause: float = 0) -> None:
        """Send a part again and again; fail if the server takes more than `most` bytes."""
        sent = 0
        try:
            while sent < most:
                await self.send(part)
                await asyncio.sleep(pause)
                sent += len(part)
        except ConnectionError:
            return
        pytest.fail("the connection was not dropped")

    async def status(self) -> int:
        """Return the status of the next response, which is read to its end."""
        async with asyncio.timeout(TIMEOUT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await self.reader.readexactly(length)
        return int(head.split()[1])

    async def is_dropped(self) -> bool:
        """Wait until the server has ended the connection; return whether it sent nothing before."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self.reader.read() == b""
        except ConnectionError:
            return True


class ProtocolServer:
    """A running server."""

    def __init__(self, config: uvicorn.Config) -> None:
        self.uvicorn = uvicorn.Server(config)

    @property
    def port(self) -> int:
        port: int = self.uvicorn.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/here?a=1"

    @property
    def connections(self) -> int:
        """How many connections the server has."""
        return len(self.uvicorn.server_state.connections)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(
    app: ASGIApp,
    timeouts: Timeouts | None = None,
    max_unread_bytes: int = MAX_UNREAD_BYTES,
    **settings: Any,
) -> AsyncIterator[ProtocolServer]:
    """Serve an application; `settings` are further ones of uvicorn."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=http_protocol(timeouts, max_unread_bytes),
        ws=WebSocket,
        ws_max_size=MAX_MESSAGE,
        port=0,
        lifespan="off",
        log_config=None,
        **{
            # A connection waits while others send 40 MB, for seconds where the machine is busy.
            "timeout_keep_alive": int(2 * TIMEOUT),
            **settings,
        },
    )
    server = ProtocolServer(config)
    task = asyncio.create_task(server.uvicorn._serve())  # past its signal handlers
    try:
        await eventually(lambda: server.uvicorn.started)
        yield server
    finally:
        server.uvicorn.should_exit = True
        await task
