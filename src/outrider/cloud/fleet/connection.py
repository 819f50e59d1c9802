"""The service's end of one machine's WebSocket."""

import asyncio

import structlog
from starlette.types import Receive, Send

from outrider.cloud.refusal import respond
from outrider.contract.errors import ApiError
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    Acknowledge,
    CloseCode,
    FromService,
    close_reason,
    encode,
)

_log = structlog.get_logger(__name__)


class Connection:
    """The service's end of one machine's WebSocket."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_accepted = False
        self.closed = False
        self.number = 0
        """Higher than those of the machine's connections before it; 0 until it is known."""
        self.is_moving = False
        """Whether the machine was told to connect to another node: its answers come there."""
        self._stored = 0
        self._acknowledging: asyncio.Task[None] | None = None

    async def accept(self) -> None:
        """Take the upgrade, and a hello from then on.

        Raises:
            ConnectionError: the socket has gone.
        """
        self._is_accepted = True
        await self._send({"type": "websocket.accept", "max_size": MAX_HELLO_BYTES})

    async def deny(self, error: ApiError) -> None:
        """Answer the request for the upgrade with an error."""
        self.closed = True
        await respond(self._send, error, kind="websocket.http")

    async def expect_frames(self) -> None:
        """Take frames of the full size from here on: the machine is welcome.

        Raises:
            ConnectionError: the socket has gone.
        """
        await self._send({"type": "outrider.max_size", "max_size": MAX_FRAME_BYTES})

    async def send(self, frame: FromService) -> None:
        """Send a frame; waits while the machine takes none.

        Raises:
            ConnectionError: the socket has gone.
        """
        if self.closed:
            raise ConnectionResetError("The socket is closed")
        try:
            await self._send({"type": "websocket.send", "text": encode(frame).decode()})
        except OSError as error:  # uvicorn's ClientDisconnected is one
            self.closed = True
            raise ConnectionResetError("The socket has gone") from error

    async def receive(self) -> str | bytes | None:
        """Return the next message, None once the socket has gone."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.closed = True
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes", b"")

    def acknowledge(self, seq: int) -> None:
        """Tell the machine that its events up to `seq` are stored; one frame may tell of many."""
        self._stored = max(self._stored, seq)
        if self._acknowledging is None or self._acknowledging.done():
            self._acknowledging = asyncio.create_task(self._acknowledge(), name="acknowledge")

    async def _acknowledge(self) -> None:
        told = 0
        while told < self._stored and not self.closed:
            told = self._stored
            try:
                await self.send(Acknowledge(seq=told))
            except ConnectionError:
                return  # the next welcome tells it

    def end(self) -> None:
        """Stop what goes on beside the connection."""
        if self._acknowledging is not None:
            self._acknowledging.cancel()

    async def close(self, code: CloseCode, reason: str) -> None:
        """Close the socket, telling why. Harmless if it has gone already.

        The upgrade is taken first where that has not been done: the response to a handshake has
        no room for a code, and could be that of a proxy in the way.
        """
        if not self.closed:
            self.closed = True
            try:
                async with asyncio.timeout(5):
                    if not self._is_accepted:
                        await self.accept()
                    await self._send(
                        {"type": "websocket.close", "code": code, "reason": close_reason(reason)}
                    )
            except (OSError, TimeoutError):
                _log.debug("socket gone before its close", code=code)
