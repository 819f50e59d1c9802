"""Server side of WebSockets: ASGI messages on the frames of `websocket_frames`.

It replaces uvicorn's class (`--ws websockets-sansio`) for three reasons:

- Memory. uvicorn keeps the handshake, the library's protocol, a queue, two events and two timers
  for each socket: 19 KB for an idle one, against 6.4 KB here (5,000 sockets on uvloop, one
  process). Thousands of machines are idle most of the time.
- Processor time, most of which a fleet at rest spends on frames: see `websocket_frames`.
- Bounds. uvicorn parses all input at once, even before the application accepts and after the close:
  180,000 empty pings a second blocked all other connections for seconds. Here nothing is read
  before the application accepts, a turn of the event loop parses some hundred frames at most,
  control frames have a rate limit, and input after the close is discarded unparsed.

An application may set `max_size` in `websocket.accept`, and change it later with a message of the
type `outrider.max_size`. Both are the maximum size of a message in bytes.
"""

import asyncio
import secrets
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from outrider.service.http.error_response import raw_error_response, raw_head
from outrider.service.http.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NOT_TEXT,
    PING,
    PONG,
    TEXT,
    Frame,
    FrameError,
    FrameReader,
    close_payload,
    frame_bytes,
    parse_close,
)

PAGE_PROTOCOL: Final = Subprotocol("outrider.page")
"""The subprotocol of the dashboard's pages."""

MAX_UNREAD: Final = 32
"""Messages that may wait for the application before reading from the network is paused."""

MAX_UNREAD_BYTES: Final = 64 * 1024
"""The same in bytes; a single message may be longer."""

MAX_CONTROL_FRAMES: Final = 256
"""Pings and pongs that the peer may send in a second; more of them close the socket."""

MAX_DISCARDED: Final = 256 * 1024
"""Bytes that are read and discarded after the close, so that the peer receives the close frame."""

_FRAMES_PER_TURN: Final = 64

_GOING_AWAY: Final = 1012
_ABNORMAL: Final = 1006
_BROKEN: Final = 1011
_POLICY: Final = 1008
_SHORTEST_TICK: Final = 0.05

_log = structlog.get_logger(__name__)


class Keepalive:
    """Pings sockets, and drops those that do not answer. All of them share one timer.

    Args:
        interval: seconds between the pings of a socket.
        patience: seconds that a socket has to answer a ping.
        close_patience: seconds that the peer has to close the connection after our close.
    """

    def __init__(self, interval: float, patience: float, close_patience: float = 10.0) -> None:
        self.close_patience = close_patience
        self._interval = interval
        self._patience = patience
        self._due: OrderedDict[WebSocket, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, socket: "WebSocket") -> None:
        """Start to ping a socket."""
        loop = asyncio.get_running_loop()
        self._due[socket] = loop.time() + self._interval
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._tick)

    def remove(self, socket: "WebSocket") -> None:
        """Stop pinging a socket."""
        self._due.pop(socket, None)

    def _tick(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due:
            socket, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_later(max(due - now, _SHORTEST_TICK), self._tick)
                return
            del self._due[socket]
            if socket.ping(now, self._patience):
                self._due[socket] = now + self._interval


class WebSocket(asyncio.Protocol):
    """One WebSocket connection, from a valid handshake request on.

    ```
    connecting ──accept──> open ──close, failure, or the peer's close──> closed
        └──close or an HTTP response────────────────────────────────────────^
    ```
    `_accepted` is set while it is connecting, `_disconnect` once it is closed. Reading is paused
    while it is connecting, while `MAX_UNREAD` messages or `MAX_UNREAD_BYTES` wait for the
    application, and while received bytes wait for the next turn of the event loop.

    Args:
        accepted: the handshake response, sent when the application accepts.
        max_size: the default maximum of a message in bytes; a longer one closes the socket with
            1009.
    """

    __slots__ = (
        "_accepted",
        "_closing",
        "_control_frames",
        "_control_second",
        "_denial",
        "_discarded",
        "_disconnect",
        "_drained",
        "_frames",
        "_is_full",
        "_is_paused",
        "_is_text",
        "_keepalive",
        "_loop",
        "_parts",
        "_pinged_at",
        "_pong",
        "_reader",
        "_server",
        "_started",
        "_transport",
        "_unread",
        "_unread_size",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        server: ServerState,
        keepalive: Keepalive,
        accepted: bytes,
        max_size: int,
    ) -> None:
        self._transport = transport
        # Kept, because each message needs it, and Python 3.11 makes a system call for each
        # `get_running_loop`.
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._keepalive = keepalive
        self._accepted: bytes | None = accepted
        self._denial: bytes | None = None
        self._frames = FrameReader(max_size)
        self._started = False
        self._is_text = False
        self._parts: bytearray | None = None  # the fragments received so far of a message
        self._unread: list[Message] = []
        self._unread_size = 0
        self._is_full = False
        """Whether `MAX_UNREAD` or `MAX_UNREAD_BYTES` is reached; reset when all have been read."""
        self._discarded = 0
        self._is_paused = True
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Event | None = None
        self._disconnect: Message | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        self._pong: tuple[bytes, asyncio.Future[None]] | None = None
        """The payload of the application's ping, and what waits for its pong."""
        self._control_frames = 0
        self._control_second = 0
        server.connections.add(self)  # type: ignore[arg-type]  # uvicorn only calls `shutdown`
        transport.pause_reading()

    # Methods for the application

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the application on the socket, then make sure that the connection is closed."""
        serving = app(scope, self.receive, self.send)
        del scope  # so that the application can free it
        try:
            await serving
        except ConnectionError:
            pass  # raised by `send`: the peer has disconnected
        except Exception:  # noqa: BLE001  # logged; the socket is closed
            _log.exception("websocket application failed")
            self._close(_BROKEN, "")
        finally:
            if self._closing is None:
                self._transport.close()

    async def receive(self) -> Message:
        """Return the next ASGI message; after the end, `websocket.disconnect` at every call."""
        if not self._started:
            self._started = True
            return {"type": "websocket.connect"}
        while not self._unread:
            if self._disconnect is not None:
                return self._disconnect
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._unread.pop(0)
        if not self._unread:
            self._unread_size = 0
            self._is_full = False
            if self._is_paused:
                self._parse()
        return message

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the application; waits while the write buffer is full.

        Raises:
            ConnectionError: the socket is closed.
        """
        while self._drained is not None:
            await self._drained.wait()
        if self._disconnect is not None:
            raise ConnectionResetError("The socket has gone")
        kind = message["type"]
        if kind == "websocket.send":
            self._send(message.get("text"), message.get("bytes"))
        elif kind == "websocket.accept":
            self._accept(message.get("max_size"))
        elif kind == "websocket.close":
            self._close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "outrider.max_size":
            self._frames.max_size = message["max_size"]
        elif kind == "outrider.ping":
            await self._wait_for_pong()
        elif kind == "websocket.http.response.start" and self._accepted is not None:
            self._denial = raw_head(message["status"], message["headers"])
        elif kind == "websocket.http.response.body" and self._denial is not None:
            self._deny(self._denial + message.get("body", b""))
        else:
            raise RuntimeError(f"{kind} is not for a WebSocket, or not for its present state")

    async def _wait_for_pong(self) -> None:
        """Send a ping and wait for its pong; one caller at a time, which bounds the wait.

        Raises:
            ConnectionError: the socket is closed.
        """
        payload = secrets.token_bytes(12)
        answered: asyncio.Future[None] = self._loop.create_future()
        self._pong = payload, answered
        self._write(PING, payload)
        try:
            await answered
        finally:
            self._pong = None
        if self._disconnect is not None:
            raise ConnectionResetError("The socket has gone")

    def ping(self, now: float, patience: float) -> bool:
        """Send a ping, or fail the socket if the last one timed out; return whether it is open."""
        if self._disconnect is not None:
            return False
        if self._pinged_at is None:
            self._pinged_at = now
            self._write(PING, struct.pack("!d", now))
        elif now - self._pinged_at >= patience:
            self._close_open(_BROKEN, "keepalive ping timeout")
            return False
        return True

    def shutdown(self) -> None:
        """Close the socket because the server stops."""
        self._close(_GOING_AWAY, "")
        self._transport.close()

    # Methods for the transport

    def data_received(self, data: bytes) -> None:
        """Parse received data; after the close, discard a bounded amount of it."""
        if self._disconnect is None:
            self._frames.feed(data)
            self._parse()
            return
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED and not self._transport.is_closing():
            self._transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """Release the socket after its connection has ended."""
        self._server.connections.discard(self)
        self._set_ended(_ABNORMAL, "")
        if self._closing is not None:
            self._closing.cancel()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Make `send` wait: the write buffer is full."""
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        """Let `send` continue."""
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    def _parse(self) -> None:
        """Parse received bytes, up to the limits of a turn and of the application's queue."""
        parsed = 0
        try:
            while self._disconnect is None and not self._is_full:
                if parsed == _FRAMES_PER_TURN:
                    self._loop.call_soon(self._parse)
                    break
                frame = self._frames.read()
                if frame is None:
                    self._pause(is_paused=False)
                    return
                parsed += 1
                self._receive(frame)
        except FrameError as error:
            self._close_open(error.code, str(error))
        if self._disconnect is None:
            self._pause(is_paused=True)

    def _receive(self, frame: Frame) -> None:
        """Act on a frame; queue the message that it completes.

        Raises:
            FrameError: it is a close frame that is not valid.
        """
        opcode, is_final, data = frame
        if opcode == PING:
            self._write(PONG, data)
            self._count_control_frame()
        elif opcode == PONG:
            self._receive_pong(data)
            self._count_control_frame()
        elif opcode == CLOSE:
            code, reason = parse_close(data)
            self._write(CLOSE, data)
            self._set_ended(code, reason)
            self._linger()
        elif opcode != CONTINUATION:
            self._is_text = opcode == TEXT
            if is_final:
                self._queue_message(data)
            else:
                self._parts = bytearray(data)
        else:
            assert self._parts is not None  # the reader refuses a continuation without a start
            self._parts += data
            if is_final:
                message, self._parts = bytes(self._parts), None
                self._queue_message(message)

    def _queue_message(self, data: bytes) -> None:
        message: dict[str, Any] = {"type": "websocket.receive"}
        if self._is_text:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError:
                self._close_open(NOT_TEXT, "not UTF-8")
                return
        else:
            message["bytes"] = data
        self._unread.append(message)
        self._unread_size += len(data)
        self._is_full = len(self._unread) >= MAX_UNREAD or self._unread_size >= MAX_UNREAD_BYTES
        self._wake()

    def _count_control_frame(self) -> None:
        """Count a ping or pong; too many of them close the socket."""
        second = int(self._loop.time())
        if second != self._control_second:
            self._control_second, self._control_frames = second, 0
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            self._close_open(_POLICY, f"over {MAX_CONTROL_FRAMES} pings and pongs in a second")

    def _receive_pong(self, data: bytes) -> None:
        """Match a pong to our pings."""
        if self._pong is not None:
            payload, answered = self._pong
            if data == payload and not answered.done():
                answered.set_result(None)
        if self._pinged_at is not None and data == struct.pack("!d", self._pinged_at):
            self._pinged_at = None

    def _pause(self, *, is_paused: bool) -> None:
        if is_paused != self._is_paused and not self._transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _write(self, opcode: int, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame_bytes(opcode, data))

    # Opening and closing

    def _accept(self, max_size: int | None) -> None:
        if self._accepted is None:
            raise RuntimeError("The socket is accepted already")
        if max_size is not None:
            self._frames.max_size = max_size
        accepted, self._accepted = self._accepted, None
        self._transport.write(accepted)
        self._pause(is_paused=False)
        self._keepalive.add(self)

    def _deny(self, response: bytes) -> None:
        """Refuse the handshake with an HTTP response."""
        self._accepted = self._denial = None
        self._transport.write(response)
        self._set_ended(_ABNORMAL, "")
        self._linger()

    def _send(self, text: str | None, data: bytes | None) -> None:
        if text is not None:
            self._write(TEXT, text.encode())
        else:
            self._write(BINARY, data or b"")

    def _close(self, code: int, reason: str) -> None:
        if self._accepted is not None:  # refused before it was a WebSocket
            self._deny(raw_error_response(403, "No WebSocket is opened at this path now"))
        elif self._disconnect is None:
            self._close_open(code, reason)

    def _close_open(self, code: int, reason: str) -> None:
        """Send a close frame on the open socket, and end it."""
        self._write(CLOSE, close_payload(code, reason))
        self._set_ended(code, reason)
        self._linger()

    def _set_ended(self, code: int, reason: str) -> None:
        """Set the close code for the application, unless the socket has ended before."""
        if self._disconnect is None:
            self._disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._frames.clear()
            self._parts = None
            self._keepalive.remove(self)
            if self._pong is not None and not self._pong[1].done():
                self._pong[1].set_result(None)  # the waiting `send` raises
            self._wake()
            self.resume_writing()  # a waiting `send` raises at once

    def _linger(self) -> None:
        """Shut down writing, and drop the connection if the peer does not close it in time.

        Dropping it at once with unread input would make TCP send a reset, and the peer could lose
        our close frame.
        """
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._pause(is_paused=False)
        seconds = self._keepalive.close_patience
        self._closing = self._loop.call_later(seconds, self._transport.abort)


def handshake(scope: Mapping[str, Any], url: str) -> Response:
    """Return the response to a handshake request: 101, or an error with the reason."""
    headers = Headers(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    )
    request = Request(url, headers, scope["method"], f"HTTP/{scope['http_version']}")
    return ServerProtocol(select_subprotocol=_select_protocol).accept(request)


def _select_protocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Select the dashboard's protocol: a browser fails a socket that selects none of those offered.

    The other one that it offers has its page secret (`api.session_cookie`), and is not repeated.
    """
    return PAGE_PROTOCOL if PAGE_PROTOCOL in offered else None
