"""This node's end of a machine's WebSocket."""

import asyncio
from typing import Final

import structlog
from starlette.types import Message, Receive, Send

from outrider.contract.errors import ApiError
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    FromService,
    Hello,
    close_reason,
    encode,
)
from outrider.contract.link.service import ServiceLink
from outrider.service.http.error_response import respond
from outrider.service.terminals.streams import MachineTerminals

_PONG_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class Connection:
    """Carries out on one socket what its `ServiceLink` decides."""

    def __init__(self, receive: Receive, send: Send, link: ServiceLink | None = None) -> None:
        self._receive = receive
        self._send = send
        self._is_accepted = False
        self.is_gone = False
        """The socket is lost, or its close frame is sent."""
        self._sending: asyncio.Task[None] | None = None
        self.link = link or ServiceLink()
        self.terminals: MachineTerminals | None = None

    async def accept(self) -> None:
        """Accept the upgrade, and a hello from then on.

        Raises:
            ConnectionError: the socket is lost.
        """
        self._is_accepted = True
        await self._send({"type": "websocket.accept", "max_size": MAX_HELLO_BYTES})
        self.link.accepted(_now())

    async def deny(self, error: ApiError) -> None:
        """Answer the request for the upgrade with an error."""
        self.is_gone = True
        self.link.lost()
        await respond(self._send, error, kind="websocket.http")

    async def hello(self) -> Hello | None:
        """Return the machine's hello; None if the connection has ended or is to be closed."""
        link = self.link
        try:
            async with asyncio.timeout_at(link.deadline):
                message = await self.receive()
        except TimeoutError:
            link.tick(max(_now(), link.deadline or 0.0))  # timers may fire a moment early
            return None
        if message is not None:
            link.receive(message, _now())
        for event in link.events():
            if isinstance(event, Hello):
                return event
        return None

    async def is_alive(self) -> bool:
        """Return whether the machine answers a ping: it has not given this connection up."""
        try:
            async with asyncio.timeout(_PONG_SECONDS):
                await self._send({"type": "outrider.ping"})
        except (ConnectionError, TimeoutError):
            return False
        return not self.link.is_closed

    async def expect_frames(self) -> None:
        """Accept frames of the full size from now on: the machine is welcome.

        Raises:
            ConnectionError: the socket is lost.
        """
        await self._send({"type": "outrider.max_size", "max_size": MAX_FRAME_BYTES})

    async def receive(self) -> str | bytes | None:
        """Return the next message, None once the socket is lost."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.is_gone = True
            self.link.lost()
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes", b"")

    async def send(self, frame: FromService) -> None:
        """Send a frame; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        if self.link.is_closed:
            raise ConnectionResetError("The socket is closed")
        await self._write_frame(frame)

    async def flush(self) -> None:
        """Send the frames of the link. If it is cancelled, frames may be lost.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        for frame in self.link.frames():
            await self._write_frame(frame)

    def event_stored(self, seq: int) -> None:
        """Acknowledge the events up to `seq` soon; one frame may acknowledge many."""
        self.link.event_stored(seq)
        self._send_soon()

    def watch_deltas(self, sessions: list[str] | None) -> None:
        """Ask the machine for deltas soon; see `ServiceLink.watch_deltas`."""
        self.link.watch_deltas(sessions)
        self._send_soon()

    async def close(self) -> None:
        """Send the last frames and close the socket as the link says. Idempotent.

        The upgrade is accepted first if it is not yet: the response to a handshake has no room for
        a code, and could be that of a proxy.
        """
        closing = self.link.closing
        if closing is None or self.is_gone:
            return
        try:
            async with asyncio.timeout(5):
                if not self._is_accepted:
                    await self.accept()
                await self.flush()
                # Before the close frame: nothing may follow it, whoever else is about to send.
                self.is_gone = True
                reason = close_reason(closing.reason)
                await self._send(
                    {"type": "websocket.close", "code": closing.code, "reason": reason}
                )
        except (OSError, TimeoutError):
            _log.debug("socket lost before its close", code=closing.code)
        finally:
            self.is_gone = True

    def end(self) -> None:
        """Cancel the task that sends frames."""
        if self._sending is not None:
            self._sending.cancel()

    async def send_terminal(self, message: bytes) -> None:
        """Send a binary message of a terminal; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        await self._write({"type": "websocket.send", "bytes": message})

    def _send_soon(self) -> None:
        """Send the frames of the link without waiting for a machine that does not read."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_frames(), name="send frames")

    async def _send_frames(self) -> None:
        try:
            while frames := self.link.frames():
                for frame in frames:
                    await self._write_frame(frame)
        except ConnectionError:
            pass  # the next welcome has the number; a new connection is asked for deltas again

    async def _write_frame(self, frame: FromService) -> None:
        await self._write({"type": "websocket.send", "text": encode(frame).decode()})

    async def _write(self, message: Message) -> None:
        if self.is_gone:
            raise ConnectionResetError("The socket is lost")
        try:
            await self._send(message)
        except OSError as error:  # uvicorn's ClientDisconnected is one
            self.is_gone = True
            self.link.lost()
            raise ConnectionResetError("The socket is lost") from error


def _now() -> float:
    return asyncio.get_running_loop().time()
