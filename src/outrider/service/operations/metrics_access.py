"""Who may read /metrics, and at which address.

The metrics show the routes in use, how many machines an installation has, and how busy it is.
So they are not public: with `OUTRIDER_METRICS_TOKEN` they need that token; with
`OUTRIDER_METRICS_LISTEN` they are served on that address only; with neither, only a service on
loopback serves them, to this machine. A page of another site whose name resolves to a loopback
address (DNS rebinding) is no client of this machine: without a token, `Host` is checked.
"""

import hmac
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.http.client_address import Addresses
from outrider.service.http.error_response import RESPONSE_KINDS, respond
from outrider.service.http.hosts import MISDIRECTED, OPEN_PATHS, is_loopback, names_host
from outrider.service.settings import Settings

METRICS_PATH: Final = "/metrics"


class MetricsAccess:
    """Decides who may read the metrics."""

    def __init__(self, settings: Settings, addresses: Addresses) -> None:
        token = settings.metrics_token
        self._token = None if token is None else token.encode()
        self._is_open = settings.metrics_listen is not None
        self._is_local = is_loopback(settings.host)
        address = settings.metrics_address
        self._checks_host = is_loopback(settings.host if address is None else address[0])
        self._names = settings.served_hosts or frozenset()
        self._addresses = addresses

    def error(self, scope: Scope) -> ApiError | None:
        """Return why a request may not read the metrics; None if it may."""
        if self._token is not None:
            return None if self._has_token(scope) else _NO_TOKEN
        if self._checks_host and not names_host(scope, self._names):
            return MISDIRECTED
        if self._is_open or (self._is_local and self._addresses.is_direct_from_here(scope)):
            return None
        return _CLOSED

    def _has_token(self, scope: Scope) -> bool:
        assert self._token is not None
        # Two headers may be read differently by a proxy and by this service.
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


_NO_TOKEN: Final = ApiError(
    HTTPStatus.UNAUTHORIZED,
    "The metrics need the token of OUTRIDER_METRICS_TOKEN: send it as Authorization: Bearer …",
    code=ErrorCode.AUTH_REQUIRED,
)
_CLOSED: Final = ApiError(
    HTTPStatus.FORBIDDEN,
    "The metrics are closed to other machines: the operator opens them with OUTRIDER_METRICS_TOKEN "
    "or OUTRIDER_METRICS_LISTEN",
)
_NOT_HERE: Final = ApiError(HTTPStatus.NOT_FOUND, "The metrics are served at another address")
_METRICS_ONLY: Final = ApiError(
    HTTPStatus.NOT_FOUND, "Only the metrics are served here: the API is at the service's address"
)


class MetricsPort:
    """ASGI middleware that separates the port of the metrics from that of everything else.

    Health is served on both.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer that it is at the other address."""
        server, path = scope.get("server"), scope["path"]
        is_metrics_port = server is not None and server[1] == self._port
        if is_metrics_port and path not in OPEN_PATHS:
            await respond(send, _METRICS_ONLY, kind=RESPONSE_KINDS[scope["type"]])
        elif path == METRICS_PATH and not is_metrics_port:
            await respond(send, _NOT_HERE, kind=RESPONSE_KINDS[scope["type"]])
        else:
            await self._app(scope, receive, send)
