"""Request ids, metrics and spans of requests, and the responses to those without an endpoint."""

import time
from collections.abc import Awaitable
from typing import Final

import msgspec
import uuid_utils
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.contract.errors import ErrorBody
from outrider.service.http.error_response import SECURITY_HEADERS
from outrider.service.http.hosts import names_host
from outrider.tracing import OFF, Span, Tracing

_METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"})

_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=15552000")  # 180 days

_NO_ROUTE: Final = "none"
"""The route of requests that no endpoint serves."""


class RequestMetrics:
    """ASGI middleware that adds the headers of every response, and counts and traces requests.

    Only requests of the API are traced: not the dashboard's files, health and metrics.

    Args:
        is_tls: whether the service itself serves https; HSTS then makes browsers use nothing else.
    """

    def __init__(
        self,
        app: ASGIApp,
        registry: CollectorRegistry,
        tracing: Tracing,
        *,
        base_path: str,
        is_tls: bool,
    ) -> None:
        self._app = app
        self._tracing = tracing
        self._traced = (f"{base_path}/api/", f"{base_path}/mcp")
        self._is_tls = is_tls
        self._requests = Counter(
            "outrider_http_requests",
            "Requests answered, by route, method and status.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "outrider_http_request_seconds",
            "Seconds until the response, by route.",
            ["route"],
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()
        request_id = str(uuid_utils.uuid7()).encode()
        scope["request_id"] = request_id
        # Programs of this machine listen at other ports of its loopback names, without https.
        is_strict = self._is_tls and not names_host(scope, frozenset())
        added = (
            (b"x-request-id", request_id),
            *SECURITY_HEADERS,
            *((_STRICT_TRANSPORT,) if is_strict else ()),
        )
        span = self._span(scope)

        # Counted at the head, not at the end: a stream would count only once it ends.
        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                message["headers"] = [*message["headers"], *added]
                self._count(scope, status, time.perf_counter() - started_at)
                span.set("http.response.status_code", status)
                if status >= 500:
                    span.fail(str(status))
            return send(message)

        with span:
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                # Only now known: the routing is inside.
                route = _route_of(scope)
                if route != _NO_ROUTE:
                    span.rename(f"{_method(scope, '_OTHER')} {route}")
                    span.set("http.route", route)

    def _span(self, scope: Scope) -> Span:
        """Begin the span of a request of the API, which continues a valid `traceparent`."""
        method = _method(scope, "_OTHER")
        if not self._tracing.is_on or not scope["path"].startswith(self._traced):
            return OFF.start(method, "server", None, {})
        attributes = {
            "http.request.method": method,
            "url.scheme": scope["scheme"],
            "outrider.request.id": scope["request_id"].decode(),
        }
        parents = [value for name, value in scope["headers"] if name == b"traceparent"]
        # Several are malformed (W3C Trace Context, 3.2).
        parent = parents[0].decode("latin-1") if len(parents) == 1 else None
        return self._tracing.start(method, "server", parent, attributes)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # Only existing routes and methods become labels, so that clients cannot create new ones.
        route = _route_of(scope)
        self._requests.labels(route, _method(scope, "other"), status).inc()
        self._seconds.labels(route).observe(seconds)


def _method(scope: Scope, other: str) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else other


def _route_of(scope: Scope) -> str:
    """Return the template of the route that has served a request, or `_NO_ROUTE`."""
    path: str = getattr(scope.get("route"), "path", _NO_ROUTE)
    return _NO_ROUTE if path.endswith("{path:path}") else path  # of all other paths


async def http_exception(_request: Request, error: Exception) -> Response:
    """Answer an unknown route or method with the API's error format."""
    assert isinstance(error, HTTPException)
    text = {404: "There is nothing at this path: see /docs for what there is"}.get(
        error.status_code, error.detail
    )
    return Response(
        msgspec.json.encode(ErrorBody(error=text)),
        error.status_code,
        headers=error.headers,
        media_type="application/json",
    )


async def unexpected(_request: Request, _error: Exception) -> Response:
    """Answer an unhandled error with 500; the server logs the traceback."""
    text = "Something broke in the service; it is logged"
    return Response(msgspec.json.encode(ErrorBody(error=text)), 500, media_type="application/json")
