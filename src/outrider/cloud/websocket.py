"""The service's end of a machine's WebSocket: ASGI's messages on the sans-I/O `websockets`.

In place of uvicorn's own, which is made for a few sockets with much to say: this one is for
many thousands that are quiet. It keeps nothing of the handshake, has no queue, event or timer
before it needs one, and `Pulse` pings for all of them.
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
from websockets.protocol import SERVER
from websockets.protocol import Protocol as Wire
from websockets.server import ServerProtocol

from outrider.cloud.refusal import head, refusal

CLOSE_SECONDS: Final = 10.0
"""How long a closed socket waits for the other side's word before it goes."""

MAX_UNREAD: Final = 32
"""Messages that may wait for the application before no more are read from the network."""

MAX_UNREAD_BYTES: Final = 64 * 1024
"""The same in bytes; a single message may be longer."""

_GOING_AWAY: Final = 1012
_ABNORMAL: Final = 1006
_BROKEN: Final = 1011
_NOT_TEXT: Final = 1007
_NO_TICK_SHORTER: Final = 0.05

_log = structlog.get_logger(__name__)


class Pulse:
    """Pings sockets, and drops those that do not answer. One timer serves all of them.

    Args:
        interval: seconds between the pings of a socket.
        patience: seconds that it has for its answer.
    """

    def __init__(self, interval: float, patience: float) -> None:
        self._interval = interval
        self._patience = patience
        self._due: OrderedDict[WebSocket, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, socket: "WebSocket") -> None:
        """Ping this socket from now on."""
        loop = asyncio.get_running_loop()
        self._due[socket] = loop.time() + self._interval
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._beat)

    def end(self, socket: "WebSocket") -> None:
        """Let a socket be."""
        self._due.pop(socket, None)

    def _beat(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due:
            socket, due = next(iter(self._due.items()))
            if due > now:
                self._timer = loop.call_later(max(due - now, _NO_TICK_SHORTER), self._beat)
                return
            del self._due[socket]
            if socket.ping(now, self._patience):
                self._due[socket] = now + self._interval


class WebSocket(asyncio.Protocol):
    """One socket, after its handshake.

    Args:
        accepted: the response that ends the handshake, for when the application accepts.
        max_size: the longest message, in bytes; a longer one closes the socket with 1009.
    """

    __slots__ = (
        "_accepted",
        "_closing",
        "_denial",
        "_disconnect",
        "_drained",
        "_is_paused",
        "_parts",
        "_pinged_at",
        "_pulse",
        "_reader",
        "_server",
        "_started",
        "_transport",
        "_unread",
        "_unread_size",
        "_wire",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        server: ServerState,
        pulse: Pulse,
        accepted: bytes,
        max_size: int,
    ) -> None:
        self._transport = transport
        self._server = server
        self._pulse = pulse
        self._accepted: bytes | None = accepted
        self._denial: bytes | None = None
        self._wire = Wire(SERVER, max_size=max_size)
        self._started = False
        self._parts: list[bytes] | None = None
        self._unread: list[Message] = []
        self._unread_size = 0
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Event | None = None
        self._disconnect: Message | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        server.connections.add(self)  # type: ignore[arg-type]  # it asks for `shutdown` alone

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Have the application serve the socket, then see to it that it is closed."""
        serving = app(scope, self.receive, self.send)
        del scope  # the application may let go of it
        try:
            await serving
        except ConnectionError:
            pass  # it has told the application
        except Exception:  # noqa: BLE001  # whatever it is, the socket is closed and the log tells
            _log.exception("a socket's application broke")
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
            self._read_on()
        return message

    async def send(self, message: Message) -> None:
        """Take a message of the application; waits while the other side takes none.

        Raises:
            ConnectionError: the socket is closed, or closes.
        """
        while self._drained is not None:
            await self._drained.wait()
        if self._disconnect is not None:
            raise ConnectionResetError("The socket has gone")
        kind = message["type"]
        if kind == "websocket.send":
            self._send(message.get("text"), message.get("bytes"))
        elif kind == "websocket.accept":
            self._accept()
        elif kind == "websocket.close":
            self._close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "websocket.http.response.start" and self._accepted is not None:
            self._denial = head(message["status"], message["headers"])
        elif kind == "websocket.http.response.body" and self._denial is not None:
            self._deny(self._denial + message.get("body", b""))
        else:
            raise RuntimeError(f"{kind} is not for a WebSocket")

    def ping(self, now: float, patience: float) -> bool:
        """Ping, or drop the socket where the last ping is unanswered; tell if it goes on."""
        if self._disconnect is not None or self._closing is not None:
            return False
        if self._pinged_at is None:
            self._pinged_at = now
            self._wire.send_ping(struct.pack("!d", now))
            self._flush()
        elif now - self._pinged_at >= patience:
            self._fail(_BROKEN, "keepalive ping timeout")
            return False
        return True

    def shutdown(self) -> None:
        """Close the socket: the server stops."""
        self._close(_GOING_AWAY, "")
        self._end(_GOING_AWAY, "")
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Take what came from the network."""
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            assert isinstance(event, Frame)
            match event.opcode:
                case Opcode.TEXT | Opcode.BINARY | Opcode.CONT:
                    self._take(event)
                case Opcode.PONG if self._pinged_at is not None:
                    if bytes(event.data) == struct.pack("!d", self._pinged_at):
                        self._pinged_at = None
                case Opcode.CLOSE:
                    closed = self._wire.close_rcvd
                    assert closed is not None
                    self._end(closed.code, closed.reason)
        self._flush()
        if self._wire.parser_exc is not None:
            failed = self._wire.close_sent
            self._end(failed.code if failed else _ABNORMAL, failed.reason if failed else "")
            self._transport.close()
        elif self._wire.close_rcvd is not None:
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Take it that the network has lost the socket."""
        self._server.connections.discard(self)
        self._end(_ABNORMAL, "")
        if self._closing is not None:
            self._closing.cancel()
        self.resume_writing()
        self._wire.parser.close()  # it refers to the wire: the two would wait for the collector

    def pause_writing(self) -> None:
        """Have the application wait: the other side takes no more."""
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        """Have the application go on."""
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    def _accept(self) -> None:
        if self._accepted is None:
            raise RuntimeError("The socket is accepted already")
        accepted, self._accepted = self._accepted, None
        self._transport.write(accepted)
        self._pulse.begin(self)

    def _send(self, text: str | None, data: bytes | None) -> None:
        try:
            if text is not None:
                self._wire.send_text(text.encode())
            else:
                self._wire.send_binary(data or b"")
        except InvalidState as error:
            raise ConnectionResetError("The socket closes") from error
        self._flush()

    def _close(self, code: int, reason: str) -> None:
        """Close politely: the other side has a while to say that it has heard."""
        if self._accepted is not None:  # refused before it was a WebSocket
            self._deny(refusal(403, "No WebSocket is opened at this path now"))
        elif self._disconnect is None:
            self._wire.send_close(code, reason)
            self._flush()
            self._end(code, reason)
            self._read_on()
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(CLOSE_SECONDS, self._transport.close)

    def _deny(self, response: bytes) -> None:
        """Answer the handshake with this HTTP response instead."""
        self._accepted = self._denial = None
        self._transport.write(response)
        self._end(_ABNORMAL, "")
        self._transport.close()

    def _end(self, code: int, reason: str) -> None:
        """Note how the socket ended, where nothing did before, and tell the application."""
        if self._disconnect is None:
            self._disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._pulse.end(self)
            self._wake()

    def _take(self, frame: Frame) -> None:
        """Take a part of a message; the application gets the whole."""
        if self._disconnect is not None:
            return  # it has closed the socket, and reads no more
        if not frame.fin or self._parts is not None:
            if self._parts is None:
                self._parts = [b"t" if frame.opcode is Opcode.TEXT else b"b"]
            self._parts.append(bytes(frame.data))
            if not frame.fin:
                return
            kind, *parts = self._parts
            self._parts = None
            self._add(b"".join(parts), is_text=kind == b"t")
        else:
            self._add(bytes(frame.data), is_text=frame.opcode is Opcode.TEXT)

    def _add(self, data: bytes, *, is_text: bool) -> None:
        message: dict[str, Any] = {"type": "websocket.receive"}
        if is_text:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError:
                self._fail(_NOT_TEXT, "not UTF-8")
                return
        else:
            message["bytes"] = data
        self._unread.append(message)
        self._unread_size += len(data)
        is_full = len(self._unread) >= MAX_UNREAD or self._unread_size >= MAX_UNREAD_BYTES
        if is_full and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _fail(self, code: int, reason: str) -> None:
        """Close without waiting for the other side."""
        self._wire.fail(code, reason)
        self._flush()
        self._end(code, reason)
        self._transport.close()

    def _read_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _flush(self) -> None:
        output = b"".join(self._wire.data_to_send())
        if output and not self._transport.is_closing():
            self._transport.write(output)


def handshake(scope: Mapping[str, Any], url: str) -> Response:
    """Return the response to a request for a WebSocket: 101, or an error that says why not."""
    headers = Headers(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    )
    request = Request(url, headers, scope["method"], f"HTTP/{scope['http_version']}")
    return ServerProtocol().accept(request)
