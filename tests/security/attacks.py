"""What attackers send."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from websockets.frames import Frame, Opcode

POST: Final = "POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED: Final = (POST + "Transfer-Encoding: chunked\r\n\r\n").encode()

TRAILER_LINES: Final = (CHUNKED + b"0\r\n", (b"X-Y: " + b"z" * 995 + b"\r\n") * 64)
"""A request, and a block of trailer lines that may follow it without end."""

TRAILER_VALUE: Final = (CHUNKED + b"0\r\nX: ", b"z" * 64_000)

_UPGRADE: Final = (
    "GET /api/v1/daemon/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

PINGS: Final = Frame(Opcode.PING, b"").serialize(mask=True, extensions=[]) * 10_000


def upgrade(token: str | None = None) -> bytes:
    """Return the request for a machine's WebSocket, with a token or without one."""
    credential = "" if token is None else f"Authorization: Bearer {token}\r\n"
    return f"{_UPGRADE}{credential}\r\n".encode()


async def _at_once(_: int) -> None:
    pass


async def send_repeatedly(
    writer: asyncio.StreamWriter,
    block: bytes,
    most: float,
    before: Callable[[int], Awaitable[None]] = _at_once,
) -> int:
    """Send a block again and again, until `most` bytes are sent or the connection is dropped.

    Args:
        before: is awaited before each block, with its length.

    Returns:
        How many bytes were sent.
    """
    sent = 0
    with suppress(ConnectionError):
        while sent < most:
            await before(len(block))
            writer.write(block)
            await writer.drain()
            sent += len(block)
    return sent
