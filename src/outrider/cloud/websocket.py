"""The service's end of a WebSocket: ASGI's messages on the sans-I/O protocol of `websockets`.

Ours, and not uvicorn's own class over the same parser (`--ws websockets-sansio`), for two reasons:

- Memory. uvicorn's keeps the handshake, a queue, two events and two timers for each socket: 19 KB
  for one that is idle, against 5 KB here (5,000 sockets on uvloop, one process). Thousands of
  machines are idle most of the time.
- Bounds. uvicorn's parses whatever comes, in one go, also while it waits for the application to
  accept and after the close: 180,000 empty pings a second held everybody else up for seconds.
  Here nothing is read before the application has accepted, at most some hundred frames are
  parsed in one turn of the event loop, control frames have a rate, and after the close whatever
  comes is thrown away unread.

An application may give `max_size` with `websocket.accept`, and change it later with a message of
the type `outrider.max_size`: both are bytes of a message.
"""

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import SERVER, Protocol
from websockets.server import ServerProtocol

from outrider.cloud.refusal import head, refusal

MAX_UNREAD: Final = 32
"""Messages that may wait for the application before no more are read from the network."""

MAX_UNREAD_BYTES: Final = 64 * 1024
"""The same in bytes; a single message may be longer."""

MAX_CONTROL_FRAMES: Final = 256
"""Pings and pongs that the other side may send in a second; more of them close the socket."""

MAX_DISCARDED: Final = 256 * 1024
"""Bytes that are taken from the network after the close, so that the other side can hear of it."""

_FRAMES_PER_TURN: Final = 64
_PARSED_AT_ONCE: Final = 4 * 1024
"""Bytes given to the parser at a time: at most 682 more frames than `_FRAMES_PER_TURN`."""

_GOING_AWAY: Final = 1012
_ABNORMAL: Final = 1006
_BROKEN: Final = 1011
_NOT_TEXT: Final = 1007
_POLICY: Final = 1008
_SHORTEST_TICK: Final = 0.05

_log = structlog.get_logger(__name__)


class Keepalive:
    """Pings sockets, and drops those that do not answer. One timer serves all of them.

    Args:
        interval: seconds between the pings of a socket.
        patience: seconds that it has for its answer.
        close_patience: seconds that the other side has to close, too, after our close.
    """

    def __init__(self, interval: float, patience: float, close_patience: float = 10.0) -> None:
        self.close_patience = close_patience
        self._interval = interval
        self._patience = patience
        self._due: OrderedDict[WebSocket, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, socket: "WebSocket") -> None:
        """Ping this socket from now on."""
        loop = asyncio.get_running_loop()
        self._due[socket] = loop.time() + self._interval
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._tick)

    def remove(self, socket: "WebSocket") -> None:
        """Ping this socket no longer."""
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
    """One socket, after the request for it.

    ```
    connecting ──accept──> open ──close, failure, or the other side's close──> closed
        └──close or an HTTP response──────────────────────────────────────────────^
    ```
    `_accepted` is there while it is connecting, `_disconnect` once it is closed. Reading is paused
    while it is connecting, while the application has messages enough, and while there is more to
    parse than one turn of the event loop may take.

    Args:
        accepted: the response that ends the handshake, for when the application accepts.
        max_size: the longest message, in bytes, where the application does not say; a longer one
            closes the socket with 1009.
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
        "_is_paused",
        "_is_text",
        "_keepalive",
        "_parts",
        "_pinged_at",
        "_protocol",
        "_reader",
        "_server",
        "_started",
        "_transport",
        "_unparsed",
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
        self._server = server
        self._keepalive = keepalive
        self._accepted: bytes | None = accepted
        self._denial: bytes | None = None
        self._protocol = Protocol(SERVER, max_size=max_size)
        self._started = False
        self._is_text = False
        self._parts: bytearray | None = None  # of a message that comes in fragments
        self._unparsed = b""
        self._unread: list[Message] = []
        self._unread_size = 0
        self._discarded = 0
        self._is_paused = True
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Event | None = None
        self._disconnect: Message | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        self._control_frames = 0
        self._control_second = 0
        server.connections.add(self)  # type: ignore[arg-type]  # it asks for `shutdown` alone
        transport.pause_reading()

    # The application's side

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Have the application serve the socket, then see to it that it is closed."""
        serving = app(scope, self.receive, self.send)
        del scope  # the application may let go of it
        try:
            await serving
        except ConnectionError:
            pass  # it has told the application
        except Exception:  # noqa: BLE001  # whatever it is, the socket is closed and the log tells
            _log.exception("websocket application failed")
            self._close(_BROKEN, "")
        finally:
            if self._closing is None:
                self._transport.close()

    async def receive(self) -> Message:
        """Return the next message for the application; `websocket.disconnect` again and again."""
        if not self._started:
            self._started = True
            return {"type": "websocket.connect"}
        while not self._unread:
            if self._disconnect is not None:
                return self._disconnect
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._unread.pop(0)
        if not self._unread:
            self._unread_size = 0
            if self._is_paused:
                self._parse()
        return message

    async def send(self, message: Message) -> None:
        """Take a message of the application; waits while the other side takes none.

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
            self._protocol.max_message_size = message["max_size"]
        elif kind == "websocket.http.response.start" and self._accepted is not None:
            self._denial = head(message["status"], message["headers"])
        elif kind == "websocket.http.response.body" and self._denial is not None:
            self._deny(self._denial + message.get("body", b""))
        else:
            raise RuntimeError(f"{kind} is not for a WebSocket, or not for its present state")

    def ping(self, now: float, patience: float) -> bool:
        """Ping, or drop the socket where the last ping is unanswered; tell if it goes on."""
        if self._disconnect is not None:
            return False
        if self._pinged_at is None:
            self._pinged_at = now
            self._protocol.send_ping(struct.pack("!d", now))
            self._flush()
        elif now - self._pinged_at >= patience:
            self._fail(_BROKEN, "keepalive ping timeout")
            return False
        return True

    def shutdown(self) -> None:
        """Close the socket: the server stops."""
        self._close(_GOING_AWAY, "")
        self._transport.close()

    # The network's side

    def data_received(self, data: bytes) -> None:
        """Take what came from the network."""
        if self._disconnect is None:
            self._unparsed = self._unparsed + data if self._unparsed else data
            self._parse()
            return
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED and not self._transport.is_closing():
            self._transport.pause_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """Take it that the network has lost the socket."""
        self._server.connections.discard(self)
        self._ended(_ABNORMAL, "")
        if self._closing is not None:
            self._closing.cancel()
        self.resume_writing()
        self._protocol.parser.close()  # each refers to the other: they would wait for the collector

    def pause_writing(self) -> None:
        """Have the application wait: the other side takes no more."""
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        """Have the application go on."""
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    def _parse(self) -> None:
        """Parse what has come, a part of it at a time, until it is enough for this turn."""
        data, begin, frames = self._unparsed, 0, 0
        while begin < len(data) and self._disconnect is None and not self._is_full():
            if frames >= _FRAMES_PER_TURN:
                asyncio.get_running_loop().call_soon(self._parse)
                break
            frames += self._parse_part(data[begin : begin + _PARSED_AT_ONCE])
            begin += _PARSED_AT_ONCE
        self._flush()
        if self._disconnect is None:
            self._unparsed = data[begin:]
            self._pause(is_paused=bool(self._unparsed) or self._is_full())

    def _parse_part(self, part: bytes) -> int:
        """Parse bytes, and return how many frames ended in them."""
        self._protocol.receive_data(part)
        frames = self._protocol.events_received()
        for frame in frames:
            assert isinstance(frame, Frame)
            if self._disconnect is not None:
                break
            match frame.opcode:
                case Opcode.TEXT | Opcode.BINARY | Opcode.CONT:
                    self._take(frame)
                case Opcode.PING | Opcode.PONG:
                    self._take_control(frame)
                case Opcode.CLOSE:
                    closed = self._protocol.close_rcvd
                    assert closed is not None
                    self._flush()  # with our close frame
                    self._ended(closed.code, closed.reason)
                    self._linger()
        if self._protocol.parser_exc is not None and self._disconnect is None:
            failed = self._protocol.close_sent
            assert failed is not None
            self._flush()
            self._ended(failed.code, failed.reason)
            self._linger()
        return len(frames)

    def _take(self, frame: Frame) -> None:
        """Take a part of a message; the application gets the whole."""
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                self._add(bytes(frame.data))
            else:
                self._parts = bytearray(frame.data)
            return
        assert self._parts is not None  # the parser refuses a continuation of nothing
        self._parts += frame.data
        if frame.fin:
            data, self._parts = bytes(self._parts), None
            self._add(data)

    def _add(self, data: bytes) -> None:
        message: dict[str, Any] = {"type": "websocket.receive"}
        if self._is_text:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError:
                self._fail(_NOT_TEXT, "not UTF-8")
                return
        else:
            message["bytes"] = data
        self._unread.append(message)
        self._unread_size += len(data)
        self._wake()

    def _take_control(self, frame: Frame) -> None:
        """Count a ping or pong, and note the answer to our own ping. Pings are answered already."""
        second = int(asyncio.get_running_loop().time())
        if second != self._control_second:
            self._control_second, self._control_frames = second, 0
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            self._fail(_POLICY, f"over {MAX_CONTROL_FRAMES} pings and pongs in a second")
            return
        is_awaited = frame.opcode is Opcode.PONG and self._pinged_at is not None
        if is_awaited and bytes(frame.data) == struct.pack("!d", self._pinged_at):
            self._pinged_at = None

    def _is_full(self) -> bool:
        """Tell whether the application has enough to read."""
        return len(self._unread) >= MAX_UNREAD or self._unread_size >= MAX_UNREAD_BYTES

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

    def _flush(self) -> None:
        output = b"".join(self._protocol.data_to_send())
        if output and not self._transport.is_closing():
            self._transport.write(output)

    # Opening and closing

    def _accept(self, max_size: int | None) -> None:
        if self._accepted is None:
            raise RuntimeError("The socket is accepted already")
        if max_size is not None:
            self._protocol.max_message_size = max_size
        accepted, self._accepted = self._accepted, None
        self._transport.write(accepted)
        self._pause(is_paused=False)
        self._keepalive.add(self)

    def _deny(self, response: bytes) -> None:
        """Answer the handshake with this HTTP response instead."""
        self._accepted = self._denial = None
        self._transport.write(response)
        self._ended(_ABNORMAL, "")
        self._linger()

    def _send(self, text: str | None, data: bytes | None) -> None:
        try:
            if text is not None:
                self._protocol.send_text(text.encode())
            else:
                self._protocol.send_binary(data or b"")
        except InvalidState as error:
            raise ConnectionResetError("The socket closes") from error
        self._flush()

    def _close(self, code: int, reason: str) -> None:
        if self._accepted is not None:  # refused before it was a WebSocket
            self._deny(refusal(403, "No WebSocket is opened at this path now"))
        elif self._disconnect is None:
            self._protocol.send_close(code, reason)
            self._flush()
            self._ended(code, reason)
            self._linger()

    def _fail(self, code: int, reason: str) -> None:
        """Close the socket because of what the other side does, or does not."""
        self._protocol.fail(code, reason)
        self._flush()
        self._ended(code, reason)
        self._linger()

    def _ended(self, code: int, reason: str) -> None:
        """Note how the socket ended, where nothing did before, and tell the application."""
        if self._disconnect is None:
            self._disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._unparsed, self._parts = b"", None
            self._keepalive.remove(self)
            self._wake()
            self.resume_writing()  # who waits to send is told at once

    def _linger(self) -> None:
        """Send no more, and drop the connection if the other side does not.

        Were it dropped at once, with something unread, the other side would not see the close.
        """
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._pause(is_paused=False)
        loop = asyncio.get_running_loop()
        self._closing = loop.call_later(self._keepalive.close_patience, self._transport.abort)


def handshake(scope: Mapping[str, Any], url: str) -> Response:
    """Return the response to a request for a WebSocket: 101, or an error that says why not."""
    headers = Headers(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    )
    request = Request(url, headers, scope["method"], f"HTTP/{scope['http_version']}")
    return ServerProtocol().accept(request)
