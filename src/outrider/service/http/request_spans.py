"""The spans of requests: ASGI middleware, used only where traces are exported."""

from collections.abc import Awaitable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.service.http.responses import METHODS, NO_ROUTE, RESPONSES, route_of
from outrider.tracing import Tracing

_TRACED: Final = ("/api/", "/mcp")
"""The beginnings of the paths that are traced: not the dashboard's files, health and metrics."""

_TRACEPARENT: Final = b"traceparent"


class RequestSpans:
    """ASGI middleware that begins a span for each request of the API, by its route's template.

    A valid `traceparent` of the client is continued.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        if scope["type"] != "http" or not scope["path"].startswith(_TRACED):
            return self._app(scope, receive, send)
        return self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"] if scope["method"] in METHODS else "_OTHER"
        attributes = {
            "http.request.method": method,
            "url.scheme": scope["scheme"],
            "outrider.request.id": scope["request_id"].decode(),
        }
        span = self._tracing.start(method, "server", _traceparent(scope), attributes)

        def send_with_status(message: Message) -> Awaitable[None]:
            if message["type"] in RESPONSES:
                status: int = message["status"]
                span.set("http.response.status_code", status)
                if status >= 500:
                    span.fail(str(status))
            return send(message)

        with span:
            try:
                await self._app(scope, receive, send_with_status)
            finally:
                route = route_of(scope)
                if route != NO_ROUTE:
                    span.rename(f"{method} {route}")
                    span.set("http.route", route)


def _traceparent(scope: Scope) -> str | None:
    """Return the client's `traceparent`; None without one, or with several, which is malformed."""
    found = [value for name, value in scope["headers"] if name == _TRACEPARENT]
    return found[0].decode("latin-1") if len(found) == 1 else None
