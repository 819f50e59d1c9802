"""Who may connect as a machine: its token, and its hello."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Scope

from outrider.cloud.fleet.connection import Connection
from outrider.cloud.store import machines
from outrider.contract.frames import (
    HELLO_TIMEOUT,
    PROTOCOL_VERSION,
    CloseCode,
    DecodeError,
    Hello,
    decode_from_daemon,
    hello_protocol,
)

OwnerOf = Callable[[str], Awaitable[tuple[machines.Machine, bytes] | None]]
"""Returns the machine that a connection token opens, and the token's digest."""


class Rejected(Exception):
    """The connection is to be closed with this code and reason."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


async def owner(scope: Scope, owner_of: OwnerOf) -> tuple[machines.Machine, bytes]:
    """Return the machine whose token a handshake has, and the token's digest.

    Raises:
        Rejected: it has none that is worth anything.
    """
    token = _token(scope)
    found = None if token is None else await owner_of(token)
    if found is None:
        raise unauthorized()
    return found


async def hear_hello(connection: Connection) -> Hello | None:
    """Return the machine's hello; None if it disconnected instead.

    Raises:
        Rejected: it is none, comes too late, or is of a protocol that is not spoken here.
    """
    try:
        async with asyncio.timeout(HELLO_TIMEOUT):
            data = await connection.receive()
    except TimeoutError:
        raise Rejected(
            CloseCode.HELLO_TIMEOUT, f"No hello within {HELLO_TIMEOUT:g} seconds"
        ) from None
    if data is None:
        return None
    version = hello_protocol(data)
    if version is not None and version != PROTOCOL_VERSION:
        raise Rejected(
            CloseCode.UNSUPPORTED_VERSION,
            f"This service speaks protocol {PROTOCOL_VERSION}, not {version}: "
            f"update the {'service' if version > PROTOCOL_VERSION else 'machine agent'}",
        )
    try:
        frame = decode_from_daemon(data)
    except DecodeError as error:
        raise Rejected(CloseCode.BAD_FRAME, str(error)) from error
    if not isinstance(frame, Hello):
        raise Rejected(CloseCode.BAD_FRAME, "The first frame must be a hello")
    return frame


def unauthorized() -> Rejected:
    """Return what ends a connection whose token is worth nothing."""
    reason = "This token is unknown or was revoked: run `outrider setup` again"
    return Rejected(CloseCode.UNAUTHORIZED, reason)


def _token(scope: Scope) -> str | None:
    header = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
