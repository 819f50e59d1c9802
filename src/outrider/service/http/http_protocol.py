"""uvicorn's HTTP protocol (httptools) with the limits that it does not have.

uvicorn limits neither the size of a request nor the time that it takes: the trailers of one
connection filled 1.5 GB. What SECURITY.md promises ("Floods", "Proxies that interpret a request
differently"), and this module adds:

- sizes: the head and everything else outside the body (chunk sizes and extensions, trailers, blank
  lines between requests), the number of headers, and the number of pipelined requests;
- times: the head of a request, the progress of its body, and the progress of a response;
- memory: responses that clients have not read yet, of all connections together;
- trailers are dropped, because they could be mistaken for headers.

Errors have the format of the API's, and a WebSocket gets the connection after its handshake.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar, Final, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from websockets.datastructures import Headers
from websockets.http11 import Request

from outrider.service.http.error_response import ACCOUNT_ID, raw_error_response
from outrider.service.http.lingering_transport import LingeringTransport
from outrider.service.http.websocket import WebSocket

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request outside its body: request line, headers, trailers, chunk sizes."""

MAX_OVERHEAD_PER_BODY_BYTE: Final = 8
"""Additional such bytes for each byte of the body: a chunk of one byte needs five or six."""

MAX_HEADERS: Final = 256

MAX_PIPELINED: Final = 32
"""Pipelined requests of a connection that may wait for the response to an earlier one."""

MAX_UNREAD_BYTES: Final = 128 * 1024 * 1024
"""Bytes of responses that clients have not read yet, of all connections of a server.

Beyond it, the account with most of them loses those that it has been reading for the longest time,
and an account has a quarter of it at most."""

_ACCOUNT_SHARE: Final = 4

CLOSE: Final = (b"connection", b"close")
"""The header of a response after which the connection is closed."""


@dataclass(frozen=True)
class Timeouts:
    """The timeouts of a connection. Both rates are those of a bad mobile connection.

    Attributes:
        request: seconds between two checks of a request. Each of head and body may take as long
            as it likes to begin a period, and must have ended, or have made progress, at the end
            of the next one.
        body_bytes: of a body, in such a period; not of one whose response was sent already.
        response: seconds in which a client must read at least `response_bytes` of a response.
        response_bytes: see `response`.
        close: seconds that the peer of a WebSocket has to close the connection after our close.
    """

    request: float = 20.0
    body_bytes: int = 20_000
    response: float = 60.0
    response_bytes: int = 60_000
    close: float = 10.0


class _UnreadResponses:
    """The responses of one server that clients are reading: how large, and whose.

    Each connection counts with what it had to send when it was paused, until it has sent that.
    While there is too much, the account that has most of it loses its oldest response: no account
    loses one because of another that has more. Clients without an account count as one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[_HttpProtocol, tuple[str | None, int]] = {}

    def add(self, connection: "_HttpProtocol", account_id: str | None, size: int) -> None:
        """Count a response; drop older ones while there is too much."""
        self.remove(connection)
        self._sizes[connection] = account_id, size
        totals: Counter[str | None] = Counter()
        for owner, owned in self._sizes.values():
            totals[owner] += owned
        most = self._max_bytes if account_id is None else self._max_bytes // _ACCOUNT_SHARE
        # The newest response stays, however large it is.
        while totals[account_id] > max(most, size):
            totals[account_id] -= self._drop_oldest(account_id)
        while totals.total() > max(self._max_bytes, size):
            largest = max(totals, key=totals.__getitem__)
            totals[largest] -= self._drop_oldest(largest)

    def remove(self, connection: "_HttpProtocol") -> None:
        """Stop counting a connection's response: it was read, or the connection has ended."""
        self._sizes.pop(connection, None)

    def _drop_oldest(self, account_id: str | None) -> int:
        """Drop the oldest response of an account; return its size."""
        oldest = next(key for key, (owner, _) in self._sizes.items() if owner == account_id)
        _, size = self._sizes.pop(oldest)
        oldest.transport.abort()
        return size


def http_protocol(
    timeouts: Timeouts | None = None, max_unread_bytes: int = MAX_UNREAD_BYTES
) -> type[HttpToolsProtocol]:
    """Return the protocol class for a server."""
    attributes = {
        "timeouts": timeouts or Timeouts(),
        "unread": _UnreadResponses(max_unread_bytes),
    }
    return type("Protocol", (_HttpProtocol,), attributes)


class _LimitExceeded(Exception):
    """A request exceeds a limit. Raised in parser callbacks; uvicorn then answers 400."""


class _HttpProtocol(HttpToolsProtocol):
    """One connection."""

    timeouts: ClassVar[Timeouts]
    unread: ClassVar[_UnreadResponses]
    transport: LingeringTransport  # type: ignore[assignment]

    _in_head = False
    _overhead = 0  # bytes of this request that are not its body
    _body = 0
    _progress = 0  # since the last check, in bytes of a body
    _request_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None
    _answered: Scope | None = None  # the request whose response is written

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        lingering = LingeringTransport(transport, self.timeouts.response)
        super().connection_made(cast("asyncio.Transport", lingering))
        self.app = self._answer
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self.unread.remove(self)
        super().connection_lost(exc)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application once earlier responses are read, so that there is one in memory."""
        await self.flow.drain()
        self._answered = scope
        await self.config.loaded_app(scope, receive, send)

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # Requests

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.discard(data)
            return
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > MAX_HEAD_BYTES + MAX_OVERHEAD_PER_BODY_BYTE * self._body:
            self.transport.abort()

    @property
    def _in_body(self) -> bool:
        """Whether the head of a request has come, and its body is expected."""
        return self.transport.expects_input

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._overhead = self._body = 0
        self._progress = self.timeouts.body_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise _LimitExceeded
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise _LimitExceeded
        self._in_head, self.transport.expects_input = False, True
        self._progress = self.timeouts.body_bytes

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        self._body += len(body)
        if self._is_responding():
            self._progress += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.transport.expects_input = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            HTTPStatus.BAD_REQUEST,
            f"{msg} Check the method, the path, the headers and the length of the body",
        )

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer a request with an error if the client would match it to that request, and close.

        The connection cannot be reused: the start of the next request is unknown.
        """
        if self._in_body:
            may_answer = not (self.pipeline or self.cycle.response_started)
        else:
            may_answer = not self._is_responding()
        if not may_answer:
            self.transport.abort()
            return
        self.transport.write(raw_error_response(status, text))
        self.transport.expects_input = True
        self.transport.close()

    def _watch_request(self) -> None:
        self._request_timer = self.loop.call_later(self.timeouts.request, self._check_request)

    def _check_request(self) -> None:
        """End the connection if the client has to send something, and has made no progress."""
        if self.transport.is_closing():
            return
        is_idle = self.timeout_keep_alive_task is not None  # uvicorn's own limit
        is_expected = self._in_head or self._in_body or not (self._is_responding() or is_idle)
        progress, self._progress = self._progress, 0
        # While reading is paused, the application is slow, not the client.
        if not is_expected or self.flow.read_paused or progress >= self.timeouts.body_bytes:
            self._watch_request()
        elif self._in_head or self._in_body:
            text = "The request did not come within the time that a connection has for it"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, text)
        else:
            self.transport.close()

    # Responses

    def pause_writing(self) -> None:
        super().pause_writing()
        account_id = None if self._answered is None else self._answered.get(ACCOUNT_ID)
        self.unread.add(self, account_id, self.transport.get_write_buffer_size())
        self._watch_response()

    def resume_writing(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
        self.unread.remove(self)
        super().resume_writing()

    def _watch_response(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._response_timer = self.loop.call_later(
            self.timeouts.response, self._check_response, left
        )

    def _check_response(self, before: int) -> None:
        """Drop a client that has read too little of its response."""
        if before - self.transport.get_write_buffer_size() < self.timeouts.response_bytes:
            self.transport.abort()
        else:
            self._watch_response()

    def _stop_timers(self) -> None:
        for timer in (self._request_timer, self._response_timer):
            if timer is not None:
                timer.cancel()

    # WebSockets

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a `WebSocket`, which answers the handshake."""
        if self._is_responding():  # the response and the WebSocket would interleave
            self.transport.abort()
            return
        self.transport.expects_input = False
        if not self.url.isascii():
            self.send_400_response("Invalid HTTP request received.")
            return
        self.connections.discard(self)
        self._stop_timers()
        self.transport.seconds = self.timeouts.close
        headers = Headers((name.decode(), value.decode("latin-1")) for name, value in self.headers)
        version = f"HTTP/{self.parser.get_http_version()}"
        request = Request(self.url.decode(), headers, self.scope["method"], version)
        socket = WebSocket(self.config, self.server_state, self.app_state)
        socket.connection_made(cast("asyncio.BaseTransport", self.transport))
        self.transport.set_protocol(socket)
        # Not as bytes, which uvicorn would have parsed once more, with limits for each header that
        # are lower than ours: cookies of other services on this host may be long.
        socket.handle_connect(request)
