"""WebSocket clients of the API: programs with a header, browsers with a cookie and an origin."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.rig.machine import Socket
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT


@asynccontextmanager
async def viewer(
    owner: Owner,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    origin: str | None = None,
) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket of the API, by default with the owner's key.

    Args:
        origin: an address in place of the service's own, such as a proxy's.

    Raises:
        InvalidStatus: the handshake is refused.
    """
    if headers is None:
        headers = {"Authorization": f"Bearer {owner.key}"}
    given = dict(headers)
    offered = given.pop("Sec-WebSocket-Protocol", None)
    connection = await connect(
        (origin or owner.site.url.replace("http", "ws")) + path,
        additional_headers=given,
        subprotocols=None if offered is None else [*map(Subprotocol, offered.split(", "))],
        proxy=None,
        compression=None,
        max_size=None,
        ping_interval=None,
        open_timeout=TIMEOUT,
        close_timeout=1,
        create_connection=Socket,
    )
    try:
        yield connection
    finally:
        if not connection.transport.is_closing():
            connection.transport.abort()
        await connection.wait_closed()


async def refused(
    owner: Owner, path: str, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Return the response with which a handshake is refused."""
    try:
        async with viewer(owner, path, headers):
            pass
    except InvalidStatus as error:
        response = error.response
        raw = list(response.headers.raw_items())
        return httpx.Response(response.status_code, headers=raw, content=bytes(response.body))
    raise AssertionError("the handshake was accepted")


def resize(columns: int, rows: int) -> str:
    """Return the message by which a client of a terminal tells the size of its screen."""
    message = {"type": "resize", "columns": columns, "rows": rows}
    return msgspec.json.encode(message).decode()
