"""Error responses outside the API, and the security headers that `responses` adds to all.

Outside the API are invalid HTTP, a wrong host, and a refused WebSocket.

These errors have the format of every other error of the API: JSON, with an `X-Request-Id`.
"""

from http import HTTPStatus
from math import ceil
from typing import Final

import msgspec
import uuid_utils
from starlette.types import Send

from outrider.contract.errors import ApiError

ACCOUNT_ID: Final = "outrider.account_id"
"""The key in the scope of a request for the account that makes it, once that is known."""

SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
"""The headers of every response."""

RESPONSE_KINDS: Final = {"http": "http", "websocket": "websocket.http"}
"""The prefix of the ASGI messages of a response, by the type of the scope."""


def raw_error_response(status: HTTPStatus, text: str) -> bytes:
    """Return a complete HTTP response; the caller must close the connection after it.

    Args:
        text: a sentence that a person can act on.
    """
    body = msgspec.json.encode(ApiError(status, text).body())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *SECURITY_HEADERS,
        (b"x-request-id", str(uuid_utils.uuid7()).encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), lines, body)


async def respond(send: Send, error: ApiError, *, kind: str) -> None:
    """Send an error response for a request that has not reached a resource.

    Args:
        kind: the prefix of the ASGI messages: `http`, or `websocket.http` for a handshake.
    """
    body = msgspec.json.encode(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(error.retry_after))))
    await send({"type": f"{kind}.response.start", "status": error.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
