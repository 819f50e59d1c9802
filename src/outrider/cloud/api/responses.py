"""Request ids and metrics of all responses, and the responses to requests without an endpoint."""

import time
from collections.abc import Awaitable, Iterator
from typing import Final

import msgspec
import uuid_utils
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.cloud.durations import Durations
from outrider.cloud.error_response import WHOLE_RESPONSE
from outrider.contract.errors import ErrorBody

RESPONSES: Final = frozenset({"http.response.start", WHOLE_RESPONSE})
"""The messages that begin a response."""

METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"})

NO_ROUTE: Final = "none"
"""The route of requests that no endpoint serves."""


class _Count:
    """The requests of one route with the same method and status."""

    __slots__ = ("count", "created", "durations")

    def __init__(self, durations: Durations) -> None:
        self.created = time.time()
        self.count = 0
        self.durations = durations


class RequestMetrics(Collector):
    """ASGI middleware that adds an `X-Request-Id` to every response and counts it.

    It counts in numbers of its own, which `/metrics` collects: a `Counter` and a `Histogram` of
    the library take 4 us for each request.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._counts: dict[tuple[str, str, int], _Count] = {}
        self._durations: dict[str, Durations] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all requests so far."""
        requests = CounterMetricFamily(
            "outrider_http_requests",
            "Requests answered, by route, method and status.",
            labels=["route", "method", "status"],
        )
        for (route, method, status), one in self._counts.items():
            requests.add_metric([route, method, str(status)], one.count, one.created)
        yield requests
        seconds = HistogramMetricFamily(
            "outrider_http_request_seconds",
            "Seconds until the response, by route.",
            labels=["route"],
        )
        for route, durations in self._durations.items():
            durations.add_to(seconds, {"route": route})
        yield seconds

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        started_at = time.perf_counter()
        request_id = str(uuid_utils.uuid7()).encode()
        scope["request_id"] = request_id

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] in RESPONSES:
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
                self._count(scope, message["status"], time.perf_counter() - started_at)
            return send(message)

        return self._app(scope, receive, send_with_id)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # Only existing routes and methods become labels, so that clients cannot create new ones.
        route = route_of(scope)
        method: str = scope["method"] if scope["method"] in METHODS else "other"
        one = self._counts.get((route, method, status)) or self._new(route, method, status)
        one.count += 1
        one.durations.observe(seconds)

    def _new(self, route: str, method: str, status: int) -> _Count:
        durations = self._durations.setdefault(route, Durations())
        one = self._counts[route, method, status] = _Count(durations)
        return one


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
