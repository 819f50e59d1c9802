"""Request ids and metrics of all responses, and the responses to requests without an endpoint."""

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
from outrider.service.http.error_response import SECURITY_HEADERS, WHOLE_RESPONSE
from outrider.service.http.hosts import names_host

RESPONSES: Final = frozenset({"http.response.start", WHOLE_RESPONSE})
"""The messages that begin a response."""

METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"})

_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=15552000")  # 180 days

NO_ROUTE: Final = "none"
"""The route of requests that no endpoint serves."""


class RequestMetrics:
    """ASGI middleware that adds the headers of every response, and counts it.

    Args:
        is_tls: whether the service itself serves https; HSTS then makes browsers use nothing else.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry, *, is_tls: bool) -> None:
        self._app = app
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

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
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

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] in RESPONSES:
                message["headers"] = [*message["headers"], *added]
                self._count(scope, message["status"], time.perf_counter() - started_at)
            return send(message)

        return self._app(scope, receive, send_with_id)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # Only existing routes and methods become labels, so that clients cannot create new ones.
        route = route_of(scope)
        method: str = scope["method"] if scope["method"] in METHODS else "other"
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)


def route_of(scope: Scope) -> str:
    """Return the template of the route that has served a request, or `NO_ROUTE`."""
    endpoint = scope.get("endpoint")
    return str(getattr(endpoint, "path", NO_ROUTE if endpoint is None else scope["path"]))


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
