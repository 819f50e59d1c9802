"""The answer to what does not become a request of the API: no HTTP, or a WebSocket that is refused.

In the API's own form, as every other error: JSON, with an `X-Request-Id`.
"""

from collections.abc import Iterable
from http import HTTPStatus

import msgspec
import uuid_utils

from outrider.contract.errors import ApiError


def refusal(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """Return a whole response, after which the connection is to be closed.

    Args:
        text: a sentence that a person can act on.
        headers: those it has beside the usual ones.
    """
    body = msgspec.json.encode(ApiError(status, text).body())
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers),
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"x-request-id: {uuid_utils.uuid7()}",
        "connection: close",
        "\r\n",
    ]
    return "\r\n".join(lines).encode("latin-1") + body
