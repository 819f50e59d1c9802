"""Serves everything below a base path, behind a proxy that leaves the path alone."""

from collections.abc import Awaitable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contract.errors import not_found
from outrider.service.http.error_response import RESPONSE_KINDS, respond
from outrider.service.http.hosts import OPEN_PATHS, host_name
from outrider.service.settings import Settings

_KEY: Final = "outrider.base_path"


def base_path(scope: Scope) -> str:
    """Return the base path that was removed from the path of a request; empty if there is none."""
    return str(scope.get(_KEY, ""))


def base_url(scope: Scope, settings: Settings, *, is_https: bool) -> str:
    """Return the base URL for links in the response to a request.

    It is the public URL; without one that of the request's host, which works for its client, if
    the `Host` header is well-formed.

    Args:
        is_https: whether the client uses https.
    """
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if settings.public_url is not None or host_name(host) is None or '"' in host:
        return settings.base_url
    return f"{'https' if is_https else 'http'}://{host}{base_path(scope)}"


class BasePath:
    """ASGI middleware that removes the base path from the path of each request.

    Other paths get a 404, except those for load balancers and monitoring, which work without it
    too. Starlette's `root_path` is not used for this: its routes would take it off a second time
    where a path below it begins in the same way.

    Args:
        path: such as `/outrider`.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        path: str = scope["path"]
        if path == self._path or path.startswith(self._path + "/"):
            scope["path"] = path.removeprefix(self._path) or "/"
            scope[_KEY] = self._path
        elif path not in OPEN_PATHS:
            missing = not_found(f"Everything of this service is below {self._path}/")
            return respond(send, missing, kind=RESPONSE_KINDS[scope["type"]])
        return self._app(scope, receive, send)
