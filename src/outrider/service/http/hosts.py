"""Checks the `Host` header of requests, against DNS rebinding.

An attacker's web page can make its own host name resolve to a loopback address, and then send
same-origin requests to whatever listens there. It cannot change the `Host` header of them.
"""

import ipaddress
import re
from collections.abc import Awaitable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.contract.errors import ApiError
from outrider.service.http.error_response import RESPONSE_KINDS, respond

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]\\]+)(?::[0-9]*)?")

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths for load balancers and monitoring, which may use any name or address.

The metrics check it themselves where they need no token (`metrics_access`).
"""

MISDIRECTED: Final = ApiError(
    HTTPStatus.MISDIRECTED_REQUEST,
    "This service does not go by the name that the request has as its Host: use its own address. "
    "The operator allows further names with OUTRIDER_PUBLIC_URL or OUTRIDER_ALLOWED_HOSTS",
)


def host_name(header: str) -> str | None:
    """Return the name or address in a `Host` header in lower case, without brackets and port.

    None if the header is malformed.
    """
    match = _HOST.fullmatch(header)
    return None if match is None else match[1].strip("[]").lower().removesuffix(".")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, without a port, is a loopback one."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        name = host.lower().removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")


def names_host(scope: Scope, names: frozenset[str]) -> bool:
    """Return whether a request names one of these hosts, or a loopback one.

    Args:
        names: as `host_name` returns them.
    """
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return len(hosts) == 1 and _is_one_of(hosts[0], names)


@lru_cache(maxsize=1000)
def _is_one_of(header: bytes, names: frozenset[str]) -> bool:
    name = host_name(header.decode("latin-1"))
    return name is not None and (name in names or is_loopback(name))


class AllowedHosts:
    """ASGI middleware that answers 421 to requests for other hosts.

    Args:
        names: as `host_name` returns them; loopback names and addresses are always allowed.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request. Not a coroutine: its frame would stay with every idle WebSocket."""
        if scope["path"] in OPEN_PATHS or names_host(scope, self._names):
            return self._app(scope, receive, send)
        return respond(send, MISDIRECTED, kind=RESPONSE_KINDS[scope["type"]])
