"""uvicorn's HTTP protocol with additional limits; WebSockets are handed to our own class.

uvicorn's httptools protocol limits neither the size of a request nor the time it takes: the
trailers of one connection filled 1.5 GB. Its h11 protocol limits the head only, and needs four
times the processor time for a request (140 us against 35 us, with a bare application on one core).
So this subclass adds limits to the httptools protocol:

- sizes: the head and everything else outside the body (chunk sizes and extensions, trailers, blank
  lines between requests), the number of headers, the body, and the number of pipelined requests;
- times: the head of a request, the progress of its body, and the progress of a response;
- memory: responses that clients have not read yet, of all connections together.

Their cost is below the measurement's noise (32 to 40 us with them, 28 to 41 us without).

It also takes a response in one message (`WHOLE_RESPONSE`), and closes a connection after a response
only when it has read the request: a socket that is closed before sends a reset, which takes the
response from a client that is still sending. nginx then answers 502 instead of our 413.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import ClassVar, Final, cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from outrider.service.http.error_response import ACCOUNT_ID, WHOLE_RESPONSE, raw_error_response
from outrider.service.http.websocket import Keepalive, WebSocket, handshake

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request outside its body: request line, headers, trailers, chunk sizes."""

MAX_OVERHEAD_PER_BODY_BYTE: Final = 8
"""Additional such bytes for each byte of the body: a chunk of one byte needs five or six."""

MAX_HEADERS: Final = 256

MAX_BODY_BYTES: Final = 128 * 1024 * 1024
"""Size of a body at which the connection is dropped, even if the request was answered.

The API refuses a body over 1 MiB with 413. The rest is read and discarded, for clients that read
the response only after sending, up to this size and for at most `Patience.body` seconds: however
fast it comes, it must not keep the connection."""

MAX_PIPELINED: Final = 32
"""Pipelined requests of a connection that may wait for the response to an earlier one."""

MAX_UNREAD_BYTES: Final = 128 * 1024 * 1024
"""Bytes of responses that clients have not read yet, of all connections of a server.

Beyond it, the account with most of them loses those that it has been reading for the longest time,
and an account has a quarter of it at most."""

_ACCOUNT_SHARE: Final = 4

CLOSE: Final = (b"connection", b"close")
"""The header of a response after which the connection is closed."""

_EXTENSIONS: Final[dict[str, dict[str, object]]] = {WHOLE_RESPONSE: {}}

_HINTS: Final = frozenset({"Allow", "Upgrade", "Sec-WebSocket-Version"})
"""Headers of a refused handshake that tell the client how to correct it."""


@dataclass(frozen=True)
class Patience:
    """The timeouts of a connection.

    Attributes:
        head: seconds from the first byte of a request, or the connection's start, to the end of
            its head.
        body: seconds in which at least `body_bytes` of a body must arrive.
        body_bytes: see `body`; the default is 1 KB/s, the rate of a bad mobile connection.
        response: seconds in which a client must read at least `response_bytes` of a response.
        response_bytes: see `response`; the default is 1 KB/s.
    """

    head: float = 20.0
    body: float = 20.0
    body_bytes: int = 20_000
    response: float = 60.0
    response_bytes: int = 60_000


class _Unread:
    """The responses of one server that clients are reading: how large, and whose.

    A response is written as a whole, so each connection counts with what it had to send when it
    was paused, until it has sent that. While there is too much, the account that has most of it
    loses its oldest response: no account loses one because of another that has more. Clients
    without an account count as one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_account_bytes = max_bytes // _ACCOUNT_SHARE
        self._sizes: dict[str | None, dict[_HttpProtocol, int]] = {}
        self._totals: Counter[str | None] = Counter()
        self._accounts: dict[_HttpProtocol, str | None] = {}

    def add(self, connection: "_HttpProtocol", account_id: str | None, size: int) -> None:
        """Count a response; drop older ones while there is too much."""
        self.remove(connection)
        self._accounts[connection] = account_id
        self._sizes.setdefault(account_id, {})[connection] = size
        self._totals[account_id] += size
        most = self._max_bytes if account_id is None else self._max_account_bytes
        while self._totals[account_id] > most and len(self._sizes[account_id]) > 1:
            self._drop_oldest(account_id)
        while self._totals.total() > self._max_bytes and len(self._accounts) > 1:
            self._drop_oldest(max(self._totals, key=self._totals.__getitem__))

    def remove(self, connection: "_HttpProtocol") -> None:
        """Stop counting a connection's response: it was read, or the connection has ended."""
        if connection not in self._accounts:
            return
        account_id = self._accounts.pop(connection)
        of_account = self._sizes[account_id]
        self._totals[account_id] -= of_account.pop(connection)
        if not of_account:
            del self._sizes[account_id], self._totals[account_id]

    def _drop_oldest(self, account_id: str | None) -> None:
        oldest = next(iter(self._sizes[account_id]))
        self.remove(oldest)
        oldest.transport.abort()


def http_protocol(
    keepalive: Keepalive,
    patience: Patience | None = None,
    max_unread_bytes: int = MAX_UNREAD_BYTES,
) -> type[HttpToolsProtocol]:
    """Return the protocol class for a server; `keepalive` pings its WebSockets."""
    attributes = {
        "keepalive": keepalive,
        "patience": patience or Patience(),
        "unread": _Unread(max_unread_bytes),
    }
    return type("Protocol", (_HttpProtocol,), attributes)


class _LimitExceeded(Exception):
    """A request exceeds a limit. Raised in parser callbacks; uvicorn then answers 400."""


class _HttpProtocol(HttpToolsProtocol):
    """One connection."""

    keepalive: ClassVar[Keepalive]
    patience: ClassVar[Patience]
    unread: ClassVar[_Unread]

    _in_head = False
    _in_body = False
    _closes_after_body = False
    _account_id: str | None = None  # whose response is written
    _overhead = 0  # bytes of this request that are not its body
    _body = 0
    _body_before = 0  # `_body` at the last check of its progress
    _request_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None

    # Limits in bytes

    def data_received(self, data: bytes) -> None:
        self._overhead += len(data)
        super().data_received(data)
        if self.parser is None or self.transport.is_closing():
            return  # handed over to a WebSocket, or refused
        if not self._is_waiting():
            self._stop_request_timer()
        elif self._overhead > MAX_HEAD_BYTES + MAX_OVERHEAD_PER_BODY_BYTE * self._body:
            self.transport.abort()
        elif self._request_timer is None:
            self._start_request_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._overhead = self._body = self._body_before = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # drop trailers: they could be mistaken for headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise _LimitExceeded
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise _LimitExceeded
        self._in_head, self._in_body = False, True

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        self._body += len(body)
        if self._body > MAX_BODY_BYTES:
            raise _LimitExceeded
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()
        if self._closes_after_body and not self._is_responding():
            self._end()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed or too large request, and close the connection.

        The connection cannot be reused: the start of the next request is unknown.
        """
        if self.transport.is_closing():
            return  # it follows a request that was the connection's last
        if not self._may_answer():
            self.transport.abort()
            return
        text = f"{msg} Check the method, the path, the headers and the length of the body"
        self._end(raw_error_response(HTTPStatus.BAD_REQUEST, text))

    # Limits in time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app = self._answer_in_turn
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self.unread.remove(self)
        super().connection_lost(exc)
        self.app = self.config.loaded_app  # no reference cycle, as below

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.add(self, self._account_id, self.transport.get_write_buffer_size())
        self._watch_response()

    def resume_writing(self) -> None:
        self._stop_response_timer()
        self.unread.remove(self)
        super().resume_writing()

    def on_response_complete(self) -> None:
        if self._closes_after_body and not self._in_body:
            self.transport.close()
        super().on_response_complete()
        if self.transport.is_closing():
            self._end()

    def timeout_keep_alive_handler(self) -> None:
        self._end()

    def _answer_in_turn(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Run the application once earlier responses are read, so that there is one in memory."""
        if self.flow.write_paused:
            return self._answer_later(scope, receive, send)
        app: ASGIApp = self.config.loaded_app
        scope["extensions"] = _EXTENSIONS
        # `send` is a method of uvicorn's object for this request.
        cycle: RequestResponseCycle = send.__self__  # type: ignore[attr-defined]
        return app(scope, receive, partial(self._send, cycle))

    async def _answer_later(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.flow.drain()
        if not self.transport.is_closing():
            await self.config.loaded_app(scope, receive, send)

    def _is_waiting(self) -> bool:
        """Return whether the client has to send something next."""
        return self._in_head or self._in_body or not self._is_responding()

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _may_answer(self) -> bool:
        """Return whether the client would match a response written now to the current request."""
        if self._in_body and self.cycle is not None:
            return not self.pipeline and not self.cycle.response_started
        return not self._is_responding()

    def _start_request_timer(self) -> None:
        seconds = self.patience.body if self._in_body else self.patience.head
        self._request_timer = self.loop.call_later(seconds, self._check_request)

    def _check_request(self) -> None:
        """Continue if the body made enough progress; otherwise close the connection."""
        self._request_timer = None
        if self.transport.is_closing():
            return
        progress, self._body_before = self._body - self._body_before, self._body
        continues = self._in_body and self._is_responding() and progress >= self.patience.body_bytes
        if continues or self.flow.read_paused:  # paused: the application is slow, not the client
            self._start_request_timer()
        elif not (self._in_head or self._in_body):
            self._end()  # no request was started: close without a response
        elif self._may_answer():
            text = "The request did not come within the time that a connection has for it"
            self._end(raw_error_response(HTTPStatus.REQUEST_TIMEOUT, text))
        else:
            self.transport.abort()

    def _watch_response(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._response_timer = self.loop.call_later(
            self.patience.response, self._check_response, left
        )

    def _check_response(self, before: int) -> None:
        """Drop a client that has read too little of its response."""
        if before - self.transport.get_write_buffer_size() < self.patience.response_bytes:
            self.transport.abort()
        else:
            self._watch_response()

    def _end(self, response: bytes = b"") -> None:
        """Write a response, then close; drop the client if it does not read the rest in time."""
        if response:
            self.transport.write(response)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.patience.response, self.transport.abort)

    def _stop_timers(self) -> None:
        self._stop_request_timer()
        self._stop_response_timer()

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_response_timer(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None

    # Responses

    def _send(self, cycle: RequestResponseCycle, message: Message) -> Awaitable[None]:
        """Send an ASGI message of the application."""
        self._account_id = cast("Scope", cycle.scope).get(ACCOUNT_ID)
        if message["type"] == WHOLE_RESPONSE:
            return self._send_whole(cycle, message)
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and not cycle.keep_alive and self._is_sending(cycle):
            cycle.keep_alive = True  # else uvicorn closes the connection at once
            self._closes_after_body = True
        return cycle.send(message)  # type: ignore[arg-type]

    async def _send_whole(self, cycle: RequestResponseCycle, message: Message) -> None:
        """Write a response at once, as `RequestResponseCycle.send` does with two messages.

        Raises:
            RuntimeError: a header has a line break in it.
        """
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        headers = [*cycle.default_headers, *message["headers"]]
        if CLOSE in cycle.default_headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers.append(CLOSE)
        lines = [b"%b: %b\r\n" % header for header in headers]
        head = STATUS_LINE[message["status"]] + b"".join(lines)
        if not head.count(b"\r") == head.count(b"\n") == len(lines) + 1:
            raise RuntimeError("A header of a response has a line break in it")
        body = b"" if cycle.scope["method"] == "HEAD" else message["body"]
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"%b\r\n%b" % (head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            if self._is_sending(cycle):
                self._closes_after_body = True
            else:
                cycle.transport.close()
        cycle.on_response()

    def _is_sending(self, cycle: RequestResponseCycle) -> bool:
        """Return whether the client has not sent all of this request yet."""
        return self._in_body and cycle is self.cycle

    # WebSockets

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a `WebSocket`, and release this protocol."""
        if self._is_responding():  # the response and the WebSocket would interleave
            self.transport.abort()
            return
        url = self.url.decode("latin-1")
        response = handshake(self.scope, url)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            hints = {name: value for name, value in response.headers.raw_items() if name in _HINTS}
            text = response.body.decode().strip()
            self._end(raw_error_response(response.status_code, text, hints.items()))
            return
        self.connections.discard(self)
        self._stop_timers()
        socket = WebSocket(
            self.transport,
            self.server_state,
            self.keepalive,
            response.serialize(),
            self.config.ws_max_size,
        )
        self.transport.set_protocol(socket)
        path, _, query = url.partition("?")
        scope = {
            **self.scope,
            "type": "websocket",
            "scheme": "wss" if self.scheme == "https" else "ws",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "extensions": {"websocket.http.response": {}},
        }
        task = self.loop.create_task(socket.run(self.config.loaded_app, scope))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # Break the reference cycles, so that this protocol and its parser are freed at once.
        self.parser = None  # type: ignore[assignment]
        self.app = self.config.loaded_app
