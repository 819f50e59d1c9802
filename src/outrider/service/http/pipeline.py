"""Serves an endpoint: authorization, body, handler, audit, response.

Clients may rely on the order of the checks (docs/access.md, "Limits"). Handlers check ownership
(404) by querying only what the account owns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil
from typing import Any, Final

import msgspec
import structlog
import uuid_utils
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from outrider.contract.errors import ApiError, not_found
from outrider.contract.structs import Wire
from outrider.service.accounts.audit import Audit
from outrider.service.accounts.idempotency import Answer, Idempotency
from outrider.service.accounts.rate_limits import RateLimited, RateLimits
from outrider.service.database.engine import is_unavailable
from outrider.service.http.authorization import Authorization, Headers, RequestContext
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import BoundEndpoint, Call, never
from outrider.service.http.error_response import ACCOUNT_ID
from outrider.service.http.request_body import decode_body, decode_query, read_body
from outrider.service.http.sockets import Conversation, Sockets
from outrider.service.http.streaming import Stream, StreamingResponses
from outrider.service.machines.dispatch import ClientGone

_NO_BUFFERING: Final = (b"x-accel-buffering", b"no")
"""Makes nginx forward each chunk of a stream at once."""

_REFUSED: Final = frozenset({401, 403, 429})
"""The outcomes that are audited even if the request changes nothing."""

_GONE: Final = 499
"""The outcome in the audit if the client disconnects before the response."""

_AUDIT_RETRY_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)

RawHeaders = list[tuple[bytes, bytes]]


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


def resource_routes(endpoints: Iterable[BoundEndpoint], pipeline: Pipeline) -> list[BaseRoute]:
    """Return the routes of all paths that have an endpoint."""
    by_path: dict[str, list[BoundEndpoint]] = {}
    for bound in endpoints:
        by_path.setdefault(bound.endpoint.path, []).append(bound)
    routes: list[BaseRoute] = []
    for path, of_path in by_path.items():
        resource = _Resource(of_path, pipeline)
        routes.append(Route(path, resource))
        if any(bound.endpoint.socket is not None for bound in of_path):
            routes.append(WebSocketRoute(path, resource))
    return routes


class _Resource:
    """The ASGI application of one path: its endpoints by method."""

    def __init__(self, endpoints: Sequence[BoundEndpoint], pipeline: Pipeline) -> None:
        self._apps: dict[str, ASGIApp] = {
            bound.endpoint.method: EndpointApp(bound, pipeline) for bound in endpoints
        }
        allow = ", ".join(sorted(self._apps))
        error = ApiError(405, f"This path takes {allow} and no other method")
        self._not_found = no_endpoint(pipeline)
        self._wrong_method = ErrorApp(pipeline, error, (b"allow", allow.encode()))

    async def __call__(self, asgi_scope: AsgiScope, receive: Receive, send: Send) -> None:
        app = self._apps.get(asgi_scope.get("method", "GET"), self._wrong_method)
        if "\0" in asgi_scope["path"]:
            # PostgreSQL does not accept zero bytes in text, and no id contains one.
            app = self._not_found
        await app(asgi_scope, receive, send)


class ErrorApp:
    """ASGI application that answers with one error; for requests that no endpoint serves.

    Such requests count against the rate limit of their session or address too.
    """

    def __init__(self, pipeline: Pipeline, error: ApiError, *headers: tuple[bytes, bytes]) -> None:
        self._pipeline = pipeline
        self._error = error
        self._headers = headers

    async def __call__(self, asgi_scope: AsgiScope, _receive: Receive, send: Send) -> None:
        """Refuse a request."""
        context = self._pipeline.authorization.context(asgi_scope)
        answer, headers = error_response(self._error), list(self._headers)
        try:
            await self._pipeline.authorization.limit(context)
        except ApiError as error:
            answer, headers = error_response(error), error_headers(error)
        headers = [*self._pipeline.rates.headers(context.statuses), *headers]
        await _send_json(asgi_scope, send, answer, headers)


def no_endpoint(pipeline: Pipeline) -> ErrorApp:
    """Return the application for paths of the API without an endpoint."""
    return ErrorApp(pipeline, not_found("There is nothing at this path: see /docs"))


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request on its way through the pipeline.

    Args:
        call: the request for the handler, once the checks before it have passed.
        status: the outcome for the audit.
        result: the response; None if the client has disconnected.
        headers: of the response.
    """

    context: RequestContext
    receive: Receive
    call: Call | None = None
    status: int = _GONE
    result: Answer | Stream | Conversation | None = None
    headers: RawHeaders = field(default_factory=list)


class EndpointApp:
    """ASGI application that serves one endpoint."""

    def __init__(self, bound: BoundEndpoint, pipeline: Pipeline) -> None:
        self.endpoint = endpoint = bound.endpoint
        self.pipeline = pipeline
        self._handler = bound.handler
        self._decoder: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(endpoint.body) if endpoint.body is not None else None
        )

    async def __call__(self, asgi_scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if asgi_scope["type"] == "websocket":
            asgi_scope["request_id"] = str(uuid_utils.uuid7()).encode()
            await receive()  # websocket.connect
        exchange = Exchange(
            context=self.pipeline.authorization.context(asgi_scope), receive=receive
        )
        await self._run(exchange)
        # The audit record exists by now: a client that sees a response can find its record.
        match exchange.result:
            case Answer() as answer:
                await _send_json(asgi_scope, send, answer, exchange.headers)
            case Stream() as stream:
                await self._stream(exchange, stream, send)
            case Conversation() as conversation:
                await self._converse(exchange, conversation, send)

    async def inner(
        self, context: RequestContext, receive: Receive
    ) -> tuple[Answer, RawHeaders] | None:
        """Return the response to a request that a part of the service makes for a client.

        The client is authenticated and counted already: only the endpoint's own limit and scope are
        checked. None if the client has disconnected.
        """
        exchange = Exchange(context=context, receive=receive)
        await self._run(exchange, is_inner=True)
        if exchange.result is None:
            return None
        assert isinstance(exchange.result, Answer), "only endpoints that answer with JSON"
        return exchange.result, exchange.headers

    async def refusal(
        self,
        exchange: Exchange,  # noqa: ARG002  # for subclasses
        error: ApiError,
    ) -> tuple[Answer, RawHeaders]:
        """Return the response for an error, and its headers."""
        return error_response(error), error_headers(error)

    async def _run(self, exchange: Exchange, *, is_inner: bool = False) -> None:
        """Check a request, handle and audit it."""
        context, authorization = exchange.context, self.pipeline.authorization
        try:
            authorize = authorization.authorize_inner if is_inner else authorization.authorize
            await authorize(self.endpoint, context)
            call = await self._read(exchange)
            self._refuse_unaudited(call)
            result = await self._answer(call, context.headers)
            exchange.result, exchange.headers = result, call.response_headers
            exchange.status = self.endpoint.status
            if isinstance(result, Answer):
                exchange.status = result.status
                if result.replayed:
                    exchange.headers = [*exchange.headers, (b"idempotency-replayed", b"true")]
            elif isinstance(result, Conversation):
                exchange.status = HTTPStatus.SWITCHING_PROTOCOLS
        except ApiError as error:
            if isinstance(error, RateLimited) and error.limit_status not in context.statuses:
                context.statuses.append(error.limit_status)  # raised by a handler
            exchange.status = error.status
            exchange.result, exchange.headers = await self.refusal(exchange, error)
        except (ClientGone, ConnectionError):
            exchange.status = _GONE
        except Exception as error:  # noqa: BLE001  # answers 500 and logs the traceback
            exchange.result = failure_response(context.scope, error)
            exchange.status = exchange.result.status
        exchange.headers = [*self.pipeline.rates.headers(context.statuses), *exchange.headers]
        self._audit(exchange)

    async def _read(self, exchange: Exchange) -> Call:
        """Read and decode the body and the query.

        Raises:
            ApiError: 400, 413, or 403 if the credential may only read.
            ConnectionError: the client has disconnected.
        """
        endpoint, context, receive = self.endpoint, exchange.context, exchange.receive
        scope, headers = context.scope, context.headers
        if context.principal is not None:
            # For the server's log, which is written even if the client is cut off from here on.
            scope[ACCOUNT_ID] = context.principal.account_id
        # A request with neither header has no body (RFC 9112, 6.3).
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        body = b""
        if has_body and scope["type"] == "http":
            body = await read_body(receive, headers.get(b"content-length"))
        decoded = query = None
        if endpoint.query is not None:
            query = decode_query(endpoint.query, scope["query_string"])
        if self._decoder is not None and not (endpoint.body_optional and not body.strip()):
            decoded = decode_body(self._decoder, body)

        async def client_gone() -> None:
            while not (await receive())["type"].endswith(".disconnect"):
                pass

        exchange.call = call = Call(
            scope, context.principal, context.address, decoded, body, query, client_gone
        )
        if endpoint.is_read is not None:
            call.reads_only = endpoint.is_read(query if endpoint.socket is not None else decoded)
        # Which scope the request needs is only known now: its body or query says what it does.
        if endpoint.read_scope is not None and endpoint.mutates and not call.reads_only:
            self.pipeline.authorization.require_scope(endpoint, call.principal)
        return call

    def _refuse_unaudited(self, call: Call) -> None:
        """Refuse requests that may change something while they cannot be audited.

        Raises:
            ApiError: 503, audit records cannot be stored.
        """
        changes = self.endpoint.mutates and not call.reads_only
        if changes and self.pipeline.audit_required and self.pipeline.audit.failure is not None:
            raise ApiError(
                503,
                "Nothing can be changed at the moment, for the service cannot write its audit: "
                "its disk may be full. Reading works; tell the operator",
                retry_after=_AUDIT_RETRY_SECONDS,
            )

    async def _answer(self, call: Call, headers: Headers) -> Answer | Stream | Conversation:
        key = headers.get(b"idempotency-key")
        is_stored = not (
            self.endpoint.may_repeat or call.reads_only or call.principal_or_none is None
        )
        if key is None or not is_stored:
            data = await self._handler(call)
            if isinstance(data, Conversation):
                await self._open(data, call)
            return self._success(data) if isinstance(data, bytes | Wire) else data
        # Goes on without the client: it may have lost the connection before it got the response,
        # and its retry with the same key must find what the first request has done.
        call.client_gone = never
        return await self.pipeline.idempotency.once(
            principal=call.principal.id,
            key=key.decode("latin-1"),
            request=(self.endpoint.method, call.asgi_scope["path"], call.raw_body),
            work=lambda: self._handle_once(call),
        )

    async def _open(self, conversation: Conversation, call: Call) -> None:
        """Open a conversation, whose handshake is accepted next.

        Raises:
            ApiError: it is refused; 426, the request is not a handshake.
        """
        if call.asgi_scope["type"] != "websocket":
            # Nothing has been opened, so there is nothing to audit.
            call.reads_only = True
            raise ApiError(426, "This path takes WebSockets: connect with a client for them")
        # Before the handshake is accepted: a refusal is an HTTP response that the client can read,
        # where an open WebSocket only has a close code.
        await self.pipeline.sockets.open(conversation, call.principal)

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
        body = data if isinstance(data, bytes) else msgspec.json.encode(data)
        return Answer(self.endpoint.status, body)

    def _audit(self, exchange: Exchange) -> None:
        call, principal = exchange.call, exchange.context.principal
        reads_only = not self.endpoint.mutates or (call is not None and call.reads_only)
        if reads_only and exchange.status not in _REFUSED:
            return
        account_id = principal.account_id if principal else call.acted_for if call else None
        self.pipeline.audit.note(
            principal=None if principal is None else principal.id,
            account_id=account_id,
            action=self.endpoint.operation,
            target=next(iter(exchange.context.scope["path_params"].values()), None),
            outcome=exchange.status,
            address=exchange.context.address,
            request_id=exchange.context.scope["request_id"].decode(),
        )

    async def _stream(self, exchange: Exchange, stream: Stream, send: Send) -> None:
        kind, call = self.endpoint.stream, exchange.call
        assert kind is not None, "only an endpoint with `stream` may return one"
        assert call is not None, "a handler has returned the stream"
        headers = [*_head(kind.media_type), _NO_BUFFERING, *exchange.headers]
        try:
            start = {"type": "http.response.start", "status": exchange.status, "headers": headers}
            await send(start)
            await self.pipeline.streams.send(stream, send, call.client_gone)
        except Exception:  # noqa: BLE001  # as in `_run`
            # The status is sent. Without the end of the body, the client notices the failure.
            _log.exception(
                "stream failed",
                path=call.asgi_scope["path"],
                request=call.asgi_scope["request_id"].decode(),
            )
        finally:
            # Also if the task is cancelled: what the handler has acquired is released here only.
            stream.ended()

    async def _converse(self, exchange: Exchange, conversation: Conversation, send: Send) -> None:
        """Accept the WebSocket of an open conversation, and serve it to its end."""
        kind, context = self.endpoint.socket, exchange.context
        assert kind is not None, "only an endpoint with `socket` may return one"
        assert context.principal is not None, "`Endpoint` requires a credential"
        await self.pipeline.sockets.serve(
            conversation,
            context.principal,
            exchange.receive,
            send,
            max_size=kind.max_size,
            recheck=lambda: self.pipeline.authorization.recheck(context),
        )


def error_response(error: ApiError) -> Answer:
    """Return the response for an error."""
    return Answer(error.status, msgspec.json.encode(error.body()))


def error_headers(error: ApiError) -> RawHeaders:
    """Return the headers that RFC 9110 requires of an error, and `Retry-After`."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return [(b"www-authenticate", b"Bearer")]
    if error.status == HTTPStatus.UPGRADE_REQUIRED:
        return [(b"upgrade", b"websocket")]
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


def _head(media_type: str) -> RawHeaders:
    return [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]


async def _send_json(
    asgi_scope: AsgiScope, send: Send, answer: Answer, headers: RawHeaders
) -> None:
    """Send a response whose body is JSON: to a WebSocket handshake, one that refuses it."""
    length = (b"content-length", b"%d" % len(answer.body))
    headers = [*_head("application/json"), length, *headers]
    kind = "http.response"
    if asgi_scope["type"] == "websocket":
        kind = "websocket.http.response"
        if "request_id" in asgi_scope:
            headers.append((b"x-request-id", asgi_scope["request_id"]))
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": answer.body})
