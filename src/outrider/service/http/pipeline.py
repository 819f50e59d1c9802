"""Serves an endpoint: authorization, body, handler, audit, response.

Clients may rely on the order of the checks (docs/access.md, "Limits"). Handlers check ownership
(404) by querying only what the account owns.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import Any, Final

import msgspec
import structlog
import uuid_utils
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from outrider.contract.errors import ApiError, not_found
from outrider.contract.structs import Wire
from outrider.service.accounts.audit import Audit
from outrider.service.accounts.idempotency import Answer, Idempotency
from outrider.service.accounts.rate_limits import RateLimited, RateLimits
from outrider.service.database.engine import is_unavailable
from outrider.service.http.authorization import Authorization, Headers, RequestContext, headers_of
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import BoundEndpoint, Call, never
from outrider.service.http.error_response import ACCOUNT_ID, WHOLE_RESPONSE
from outrider.service.http.request_body import decode_body, decode_query, read_body
from outrider.service.http.sockets import Conversation, Sockets
from outrider.service.http.streaming import Stream, StreamingResponses
from outrider.service.machines.dispatch import ClientGone

_JSON: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")
_NO_BUFFERING: Final = (b"x-accel-buffering", b"no")
"""Makes nginx forward each chunk of a stream at once."""

_CHALLENGE: Final = (b"www-authenticate", b"Bearer")
_UPGRADE: Final = (b"upgrade", b"websocket")
_REPLAYED: Final = (b"idempotency-replayed", b"true")
_REFUSED: Final = frozenset({401, 403, 429})
CONTEXT: Final = "outrider.request_context"
"""The key in the scope of a request that a part of the service makes for a client: the client's
`RequestContext`. The request is not authenticated and counted again; its scope is checked."""

_GONE: Final = 499
"""The outcome in the audit if the client disconnects before the response."""

_AUDIT_RETRY_SECONDS: Final = 10.0

_encoder = msgspec.json.Encoder()
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What every request passes on its way to a handler, and its response on the way back.

    Args:
        audit_required: whether nothing may be changed while audit records cannot be stored.
    """

    authorization: Authorization
    addresses: Addresses
    rates: RateLimits
    idempotency: Idempotency
    audit: Audit
    audit_required: bool
    streams: StreamingResponses
    sockets: Sockets


class Resource:
    """The ASGI application of one path: its endpoints by method."""

    def __init__(self, path: str, endpoints: Sequence[BoundEndpoint], pipeline: Pipeline) -> None:
        self.path = path
        self._apps: dict[str, ASGIApp] = {
            bound.endpoint.method: _EndpointApp(bound, pipeline) for bound in endpoints
        }
        self.has_socket = any(bound.endpoint.socket is not None for bound in endpoints)
        allow = ", ".join(sorted(self._apps))
        self._not_found_app = no_endpoint(pipeline)
        self._wrong_method = ErrorApp(
            pipeline,
            ApiError(405, f"This path takes {allow} and no other method"),
            (b"allow", allow.encode()),
        )

    def __call__(self, asgi_scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request."""
        app = self._apps.get(asgi_scope["method"], self._wrong_method)
        if "\0" in asgi_scope["path"]:
            # PostgreSQL does not accept zero bytes in text, and no id contains one.
            app = self._not_found_app
        return app(asgi_scope, receive, send)


def resources(endpoints: Iterable[BoundEndpoint], pipeline: Pipeline) -> list[Resource]:
    """Return the applications of all paths that have an endpoint."""
    by_path: dict[str, list[BoundEndpoint]] = {}
    for bound in endpoints:
        by_path.setdefault(bound.endpoint.path, []).append(bound)
    return [Resource(path, of_path, pipeline) for path, of_path in by_path.items()]


class ErrorApp:
    """ASGI application that answers with one error; for requests that no endpoint serves.

    Such requests count against the rate limit of their session or address too.
    """

    path = "none"

    def __init__(self, pipeline: Pipeline, error: ApiError, *headers: tuple[bytes, bytes]) -> None:
        self._pipeline = pipeline
        self._error = error
        self._headers = headers

    async def __call__(self, asgi_scope: AsgiScope, _receive: Receive, send: Send) -> None:
        """Refuse a request."""
        context = RequestContext(self._pipeline.addresses.client(asgi_scope))
        answer, headers = error_response(self._error), list(self._headers)
        try:
            await self._pipeline.authorization.limit(asgi_scope, context)
        except ApiError as error:
            answer, headers = error_response(error), error_headers(error)
        headers = [*self._pipeline.rates.headers(context.statuses), *headers]
        if asgi_scope["type"] == "websocket":
            await _deny(send, answer, headers)
        else:
            await send_json(asgi_scope, send, answer.status, answer.body, headers)


def no_endpoint(pipeline: Pipeline) -> ErrorApp:
    """Return the application for paths of the API without an endpoint."""
    return ErrorApp(pipeline, not_found("There is nothing at this path: see /docs"))


class _EndpointApp:
    """ASGI application that serves one endpoint."""

    def __init__(self, bound: BoundEndpoint, pipeline: Pipeline) -> None:
        self._endpoint = endpoint = bound.endpoint
        self._mutates = endpoint.mutates
        self._may_repeat = endpoint.may_repeat
        self._handler = bound.handler
        self._pipeline = pipeline
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(endpoint.body) if endpoint.body is not None else None
        )

    async def __call__(self, asgi_scope: AsgiScope, receive: Receive, send: Send) -> None:
        if asgi_scope["type"] == "websocket":
            asgi_scope["request_id"] = str(uuid_utils.uuid7()).encode()
            await receive()  # websocket.connect
        headers = headers_of(asgi_scope)
        inner: RequestContext | None = asgi_scope.get(CONTEXT)
        context = inner or RequestContext(self._pipeline.addresses.client(asgi_scope))
        call: Call | None = None
        extra: list[tuple[bytes, bytes]] = []
        try:
            authorization = self._pipeline.authorization
            await (
                authorization.authorize(self._endpoint, asgi_scope, headers, context)
                if inner is None
                else authorization.authorize_inner(self._endpoint, context)
            )
            call = await self._call(asgi_scope, receive, headers, context)
            self._refuse_unaudited(call)
            answer = await self._answer(call, headers)
            extra = call.response_headers
            if isinstance(answer, Answer) and answer.replayed:
                extra = [*extra, _REPLAYED]
        except ApiError as error:
            if isinstance(error, RateLimited) and error.limit_status not in context.statuses:
                context.statuses.append(error.limit_status)  # raised by a handler
            answer = error_response(error)
            extra = error_headers(error)
        except (ClientGone, ConnectionError):
            self._audit(asgi_scope, context, call, _GONE)
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # answers 500 and logs the traceback
            answer = failure_response(asgi_scope, error)
        extra = [*self._pipeline.rates.headers(context.statuses), *extra]
        if isinstance(answer, Answer):
            self._audit(asgi_scope, context, call, answer.status)
            if asgi_scope["type"] == "websocket":
                await _deny(send, answer, [*extra, (b"x-request-id", asgi_scope["request_id"])])
            else:
                await send_json(asgi_scope, send, answer.status, answer.body, extra)
        elif isinstance(answer, Stream):
            assert call is not None, "a handler has returned the stream"
            self._audit(asgi_scope, context, call, self._endpoint.status)
            await self._stream(call, answer, send, extra)
        else:
            self._audit(asgi_scope, context, call, HTTPStatus.SWITCHING_PROTOCOLS)
            await self._converse(answer, context, receive, send)

    async def _converse(
        self, conversation: Conversation, context: RequestContext, receive: Receive, send: Send
    ) -> None:
        """Accept the WebSocket of an open conversation, and serve it to its end."""
        kind = self._endpoint.socket
        assert kind is not None, "only an endpoint with `socket` may return one"
        assert context.principal is not None, "`Endpoint` requires a credential"
        await self._pipeline.sockets.serve(
            conversation,
            context.principal,
            receive,
            send,
            max_size=kind.max_size,
            recheck=lambda: self._pipeline.authorization.recheck(context),
        )

    async def _call(
        self, asgi_scope: AsgiScope, receive: Receive, headers: Headers, context: RequestContext
    ) -> Call:
        endpoint = self._endpoint
        if context.principal is not None:
            asgi_scope[ACCOUNT_ID] = context.principal.account_id
        is_socket = asgi_scope["type"] == "websocket"
        # A request with neither header has no body (RFC 9112, 6.3).
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        body = b""
        if has_body and not is_socket:
            body = await read_body(receive, headers.get(b"content-length"))
        decoded = query = None
        if endpoint.query is not None:
            query = decode_query(endpoint.query, asgi_scope["query_string"])
        if self._decoder is not None and not (endpoint.body_optional and not body.strip()):
            decoded = decode_body(self._decoder, body)

        async def client_gone() -> None:
            while not (await receive())["type"].endswith(".disconnect"):
                pass

        call = Call(
            asgi_scope, context.principal, context.address, decoded, body, query, client_gone
        )
        if endpoint.is_read is not None:
            call.reads_only = endpoint.is_read(query if endpoint.socket is not None else decoded)
        if endpoint.read_scope is not None and self._mutates and not call.reads_only:
            self._pipeline.authorization.require_scope(endpoint, call.principal)
        return call

    def _refuse_unaudited(self, call: Call) -> None:
        """Refuse requests that may change something while they cannot be audited.

        Raises:
            ApiError: 503, audit records cannot be stored.
        """
        pipeline = self._pipeline
        if not self._mutates or call.reads_only or pipeline.audit.failure is None:
            return
        if pipeline.audit_required:
            raise ApiError(
                503,
                "Nothing can be changed at the moment, for the service cannot write its audit: "
                "its disk may be full. Reading works; tell the operator",
                retry_after=_AUDIT_RETRY_SECONDS,
            )

    async def _stream(
        self, call: Call, stream: Stream, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        kind = self._endpoint.stream
        assert kind is not None, "only an endpoint with `stream` may return one"
        content_type = (b"content-type", kind.media_type.encode())
        start = {
            "type": "http.response.start",
            "status": self._endpoint.status,
            "headers": [content_type, _NO_STORE, _NO_BUFFERING, *headers],
        }
        try:
            await send(start)
            await self._pipeline.streams.send(stream, send, call.client_gone)
        except Exception:  # noqa: BLE001  # as in `__call__`
            # The status is sent. Without the end of the body, the client notices the failure.
            _log.exception(
                "stream failed",
                path=call.asgi_scope["path"],
                request=call.asgi_scope["request_id"].decode(),
            )
        finally:
            stream.ended()

    async def _answer(self, call: Call, headers: Headers) -> Answer | Stream | Conversation:
        key = headers.get(b"idempotency-key")
        is_stored = not (self._may_repeat or call.reads_only or call.principal_or_none is None)
        if key is None or not is_stored:
            data = await self._handler(call)
            if isinstance(data, bytes | Wire):
                return self._success(data)
            return data if isinstance(data, Stream) else await self._opened(data, call)
        call.client_gone = never  # continue without the client, so that a retry finds the response
        return await self._pipeline.idempotency.once(
            principal=call.principal.id,
            key=key.decode("latin-1"),
            request=(self._endpoint.method, call.asgi_scope["path"], call.raw_body),
            work=lambda: self._handle_once(call),
        )

    async def _opened(self, conversation: Conversation, call: Call) -> Conversation:
        """Open a conversation, whose handshake is accepted next.

        Raises:
            ApiError: it is refused; 426, the request is not a handshake.
        """
        if call.asgi_scope["type"] != "websocket":
            call.reads_only = True
            raise ApiError(426, "This path takes WebSockets: connect with a client for them")
        await self._pipeline.sockets.open(conversation, call.principal, call.client_gone)
        return conversation

    async def _handle_once(self, call: Call) -> tuple[Answer, bool]:
        """Return the response, and whether the request may have had an effect.

        Every error becomes a response, so that the idempotency key is always finished or released.
        """
        try:
            data = await self._handler(call)
            assert isinstance(data, bytes | Wire), "`Endpoint` excludes streams and sockets"
            return self._success(data), True
        except ApiError as error:
            call.response_headers += error_headers(error)
            return error_response(error), not error.safe_to_retry
        except Exception as error:  # noqa: BLE001  # as above
            return failure_response(call.asgi_scope, error), True

    def _success(self, data: bytes | Wire) -> Answer:
        return Answer(
            self._endpoint.status, data if isinstance(data, bytes) else _encoder.encode(data)
        )

    def _audit(
        self, asgi_scope: AsgiScope, context: RequestContext, call: Call | None, outcome: int
    ) -> None:
        reads_only = call is not None and call.reads_only
        if (reads_only or not self._mutates) and outcome not in _REFUSED:
            return
        principal = context.principal
        account_id = principal.account_id if principal else call.acted_for if call else None
        self._pipeline.audit.note(
            principal=None if principal is None else principal.id,
            account_id=account_id,
            action=self._endpoint.operation,
            target=next(iter(asgi_scope["path_params"].values()), None),
            outcome=outcome,
            address=context.address,
            request_id=asgi_scope["request_id"].decode(),
        )


def error_response(error: ApiError) -> Answer:
    """Return the response for an error."""
    return Answer(error.status, _encoder.encode(error.body()))


def error_headers(error: ApiError) -> list[tuple[bytes, bytes]]:
    """Return the headers that RFC 9110 requires of an error, and `Retry-After`."""
    if error.status == 401:
        return [_CHALLENGE]
    if error.status == HTTPStatus.UPGRADE_REQUIRED:
        return [_UPGRADE]
    if error.retry_after is None:
        return []
    return [(b"retry-after", str(max(1, ceil(error.retry_after))).encode())]


def failure_response(asgi_scope: AsgiScope, error: Exception) -> Answer:
    """Return the response for an exception that is no `ApiError`, and log it."""
    if is_unavailable(error):
        _log.warning(
            "request failed: database unavailable", path=asgi_scope["path"], error=str(error)
        )
        text = "The database cannot be reached at the moment: try again in a few seconds"
        return error_response(ApiError(503, text))
    _log.exception(
        "request failed", path=asgi_scope["path"], request=asgi_scope["request_id"].decode()
    )
    return error_response(ApiError(500, "Something broke in the service; it is logged"))


async def _deny(send: Send, answer: Answer, headers: list[tuple[bytes, bytes]]) -> None:
    """Answer a WebSocket handshake with an error."""
    length = (b"content-length", str(len(answer.body)).encode())
    head = [_JSON, length, _NO_STORE, *headers]
    kind = "websocket.http.response"
    await send({"type": f"{kind}.start", "status": answer.status, "headers": head})
    await send({"type": f"{kind}.body", "body": answer.body})


async def send_json(
    asgi_scope: AsgiScope, send: Send, status: int, data: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """Send a response whose body is JSON."""
    headers = [_JSON, (b"content-length", b"%d" % len(data)), _NO_STORE, *headers]
    if WHOLE_RESPONSE in asgi_scope.get("extensions", ()):
        await send({"type": WHOLE_RESPONSE, "status": status, "headers": headers, "body": data})
    else:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})
