"""Server side of WebSockets: uvicorn's protocol (`--ws websockets-sansio`) with limits.

uvicorn parses all input at once, also before the application accepts a connection and after it is
closed: with 180,000 empty pings a second, a client without a credential blocked all others. What
SECURITY.md promises instead ("Floods"), and this module adds:

- Nothing is read before the application accepts, and nothing is parsed after the close.
- A turn of the event loop parses `_FRAMES_PER_TURN` frames, and none while messages wait for the
  application.
- More than `MAX_CONTROL_FRAMES` pings and pongs in a second close the connection.
- An unfinished message is in one buffer of at most `max_size`, and is freed at the close.

`max_size` in `websocket.accept`, or in a message of the type `outrider.max_size`, is the maximum
size of a message in bytes. A message of the type `outrider.ping` pings the peer; sending it
returns when the pong has come. Its sender must bound that wait.
"""

import asyncio
import secrets
from collections.abc import Generator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
import uuid_utils
from starlette.types import Message
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Response
from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.streams import StreamReader
from websockets.typing import StatusLike, Subprotocol

from outrider.contract.errors import ApiError
from outrider.service.http.error_response import SECURITY_HEADERS
from outrider.service.http.lingering_transport import LingeringTransport

PAGE_PROTOCOL: Final = Subprotocol("outrider.page")
"""The subprotocol of the dashboard's pages."""

MAX_CONTROL_FRAMES: Final = 256
"""Pings and pongs that the peer may send in a second; more of them close the connection."""

_FRAMES_PER_TURN: Final = 64


class Disconnected(ClientDisconnected, ConnectionResetError):
    """The application sends on a WebSocket that is closed or lost."""


class WebSocket(WebSocketsSansIOProtocol):
    """One connection, from a handshake request on, which the HTTP protocol passes to it."""

    conn: "_Connection"
    transport: LingeringTransport  # type: ignore[assignment]
    frames: list[bytes | bytearray]  # type: ignore[assignment]

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.conn = _Connection(max_size=config.ws_max_size)
        self._control_frames = 0
        self._control_second = 0
        self._pong: tuple[bytes, asyncio.Event] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve a connection; its input waits in the network until it is accepted."""
        assert isinstance(transport, LingeringTransport), "the HTTP protocol passes its own"
        transport.expects_input = True
        transport.pause_reading()
        super().connection_made(transport)

    def shutdown(self) -> None:
        """Close the connection because the server stops."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        super().connection_lost(exc)
        self._release_frames()

    def _release_frames(self) -> None:
        """Free what is received, but not what the application has to read.

        The peer decides how long a closed connection stays, and the parser is a reference cycle.
        """
        self.conn.parser.close()
        self.conn.reader.discard()
        self.frames = []

    # Receiving

    def data_received(self, data: bytes) -> None:
        """Parse received data; discard it after the close."""
        if self._is_closed():
            self.transport.discard(data)
        else:
            self.conn.reader.feed_data(data)
            if not self.read_paused:
                self._parse()

    async def receive(self) -> Any:
        """Return the next message for the application."""
        message = await self.queue.get()
        self._resume_soon()
        return message

    def _parse(self) -> None:
        """Parse some frames; a message pauses reading until the application has received it."""
        self.conn.reader.frames = _FRAMES_PER_TURN
        super().data_received(b"")
        if self._is_closed():
            self._release_frames()
        elif not (self.conn.reader.frames or self.read_paused):
            self.read_paused = True
            self.transport.pause_reading()
            self._resume_soon()

    def _resume_soon(self) -> None:
        """Parse further frames in the next turn: `receive` does not wait while messages do."""
        if self.read_paused and self.queue.empty():
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self.read_paused and self.queue.empty() and not self._is_closed():
            self.read_paused = False
            self._parse()
            # Otherwise received bytes would grow: a turn reads more of them than it parses.
            if not (self.read_paused or self._is_closed()):
                self.transport.resume_reading()

    def handle_cont(self, event: Frame) -> None:
        """Append to the message; uvicorn's list of parts has no limit if they are empty."""
        if not isinstance(self.frames[0], bytearray):
            self.frames[0] = bytearray(self.frames[0])
        self.frames[0] += event.data
        if event.fin:
            self.frames[0] = bytes(self.frames[0])
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping."""
        super().handle_ping()
        self._count_control_frame()

    def handle_pong(self, event: Frame) -> None:
        """Match a pong to the ping of the application, or of the keepalive."""
        super().handle_pong(event)
        if self._pong is not None and self._pong[0] == event.data:
            self._pong[1].set()
        self._count_control_frame()

    def keepalive_timeout(self) -> None:
        """Close the connection; the application learns of it at once, however long that takes."""
        self._fail(CloseCode.INTERNAL_ERROR, "keepalive ping timeout")
        self._release_frames()

    def _count_control_frame(self) -> None:
        second = int(self.loop.time())
        if second != self._control_second:
            self._control_second, self._control_frames = second, 0
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            reason = f"over {MAX_CONTROL_FRAMES} pings and pongs in a second"
            self._fail(CloseCode.POLICY_VIOLATION, reason)

    def _fail(self, code: CloseCode, reason: str) -> None:
        if not self._is_closed():
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def _is_closed(self) -> bool:
        return self.close_sent or self.transport.is_closing()

    # Sending

    async def send(self, message: Message) -> None:  # type: ignore[override]
        """Send a message of the application; waits while the write buffer is full.

        Raises:
            Disconnected: the connection is closed or lost.
        """
        await self.writable.wait()
        if self._is_closed():
            raise Disconnected
        kind = message["type"]
        if "max_size" in message:
            self.conn.max_message_size = message["max_size"]
        if kind == "outrider.ping":
            await self._ping()
        elif kind != "outrider.max_size":
            try:
                await super().send(message)  # type: ignore[arg-type]
            except ClientDisconnected as error:
                raise Disconnected from error
        if kind == "websocket.accept":
            self.transport.resume_reading()
        elif kind == "websocket.close" and self.close_timer is not None:
            # uvicorn would parse what comes until the peer's close frame.
            self.close_timer.cancel()
            self.close_timer = None
            self.transport.close()
            self._release_frames()

    async def _ping(self) -> None:
        self._pong = secrets.token_bytes(12), asyncio.Event()
        payload, answered = self._pong
        self.conn.send_ping(payload)
        self.transport.write(b"".join(self.conn.data_to_send()))
        await answered.wait()


class _PacedReader(StreamReader):
    """Lets the parser read `frames` frames, then makes it wait until there are more to read."""

    frames = 0

    def at_eof(self) -> Generator[None, None, bool]:
        """Wait before a frame; the parser calls it once for each."""
        while not self.frames:
            yield
        self.frames -= 1
        return (yield from super().at_eof())

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        """Read so many bytes; without a copy where they are all that came: it may be 16 MiB."""
        while len(self.buffer) < n:
            yield
        if len(self.buffer) > n:
            return (yield from super().read_exact(n))
        data, self.buffer = self.buffer, bytearray()
        return data


class _Connection(ServerProtocol):
    """The protocol's state; refusals have the format of the API's errors."""

    reader: _PacedReader

    def parse(self) -> Generator[None]:
        """Parse frames only: the HTTP protocol has parsed the handshake."""
        self.reader = _PacedReader()
        yield from Protocol.parse(self)

    def recv_frame(self, frame: Frame) -> None:
        """Take a frame; `parse` keeps it until the next one, but not its data."""
        super().recv_frame(Frame(frame.opcode, frame.data, frame.fin))
        frame.data = b""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Select the dashboard's protocol: browsers fail if none of those offered is selected.

        The other one that it offers has its page secret (`session_cookie`), and is not repeated.
        """
        return PAGE_PROTOCOL if PAGE_PROTOCOL in subprotocols else None

    def reject(self, status: StatusLike, text: str) -> Response:
        """Return the response that refuses a handshake."""
        text = text.strip() or "No WebSocket is opened at this path now"
        body = msgspec.json.encode(ApiError(int(status), text).body())
        response = super().reject(status, body.decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    def send_response(self, response: Response) -> None:
        """Send the response to the handshake."""
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            for name, value in SECURITY_HEADERS:
                response.headers[name.decode()] = value.decode()
            response.headers.setdefault("X-Request-Id", str(uuid_utils.uuid7()))
        super().send_response(response)
