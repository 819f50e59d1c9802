"""The cookie of a dashboard session, which works only together with a page secret.

A browser sends a cookie to every port of the host, so that other servers there get it too. Each
page of the dashboard therefore keeps a random secret in the browser's storage, which belongs to
the port alone, and sends it with every request: as `X-Outrider-Page-Secret`, and, where a browser
lets a page set no header, as a subprotocol of the WebSocket. A login binds the cookie to the secret
that came with it.
"""

import re
from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

from outrider.service.http.base_path import base_path
from outrider.service.http.client_address import Addresses
from outrider.service.http.endpoint import Call
from outrider.service.http.websocket import PAGE_PROTOCOL

COOKIE: Final = "outrider_session"
PAGE_HEADER: Final = b"x-outrider-page-secret"

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32,128}")


def cookie_name(scope: Scope, *, is_https: bool) -> str:
    """Return the name of the cookie for a request.

    With https it has a prefix, so that the browser takes it from this host only, over https.
    `__Host-` needs the path `/`.
    """
    if not is_https:
        return COOKIE
    return f"{'__Secure-' if base_path(scope) else '__Host-'}{COOKIE}"


def set_cookie(addresses: Addresses, call: Call, token: str, seconds: int) -> None:
    """Set the cookie for so many seconds; 0 seconds delete it."""
    is_https = addresses.is_https(call.asgi_scope)
    name = cookie_name(call.asgi_scope, is_https=is_https)
    path = base_path(call.asgi_scope) or "/"
    attributes = f"Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    cookie = f"{name}={token}; {attributes}{'; Secure' if is_https else ''}"
    call.response_headers.append((b"set-cookie", cookie.encode()))


def cookies(header: bytes, name: str) -> list[str]:
    """Return the values of all cookies of a name in a `Cookie` header."""
    pairs = (part.strip().partition("=") for part in header.decode("latin-1").split(";"))
    return [value for other, _, value in pairs if other == name]


def page_secret(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the page secret of a request; None if it has none that is well-formed."""
    secret = headers.get(PAGE_HEADER)
    if secret is None:
        offered = headers.get(b"sec-websocket-protocol", b"").split(b",")
        start = f"{PAGE_PROTOCOL}.".encode()
        parts = (protocol.strip() for protocol in offered)
        secret = next((part[len(start) :] for part in parts if part.startswith(start)), b"")
    text = secret.decode("latin-1")
    return text if _SECRET.fullmatch(text) else None
