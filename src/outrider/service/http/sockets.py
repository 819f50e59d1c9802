"""WebSockets of clients: opened by a row of the endpoint table, ended by whoever is first.

    handshake ── checks of every request ─▶ handler ─▶ Conversation.open ─▶ 101 ─▶ Conversation.run
                       │                                     │
                       └── refused: an HTTP response ────────┘

An accepted socket ends when its conversation or its client ends it, when its credential is no
longer valid (4401), or when the node drains (1001). A client that does not read makes `send` wait,
and the server's keepalive ends its connection in the end.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog
from starlette.types import Receive, Send

from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.frames import CloseCode, close_reason
from outrider.service.accounts.principal import Principal
from outrider.service.database.engine import is_unavailable
from outrider.service.http.streaming import first_to_end

MAX_PER_CREDENTIAL: Final = 16
"""WebSockets that a credential of an account may have open on a node."""

RECHECK_SECONDS: Final = 1.0
"""Seconds between the checks whether the credential of an open socket is still valid."""

_RETRY_SECONDS: Final = 5.0
_END_SECONDS: Final = 1.0
_BROKEN: Final = 1011

_log = structlog.get_logger(__name__)


class Close(NamedTuple):
    """How a socket is closed: a code of RFC 6455 or 4000 to 4999, and a reason for people."""

    code: int
    reason: str


class SocketClosed(Exception):
    """The client has closed the socket, or is gone."""


class Socket:
    """An accepted WebSocket. One task may receive while another one sends."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            SocketClosed: the client is gone.
        """
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise SocketClosed
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes", b"")

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the client does not read.

        Raises:
            SocketClosed: the client is gone.
        """
        kind = "text" if isinstance(message, str) else "bytes"
        try:
            await self._send({"type": "websocket.send", kind: message})
        except ConnectionError as error:
            raise SocketClosed from error


class Conversation(ABC):
    """What a WebSocket endpoint does with an accepted socket."""

    @abstractmethod
    async def open(self) -> None:
        """Prepare, before the handshake is answered.

        Raises:
            ApiError: the handshake is refused with it.
        """

    @abstractmethod
    async def run(self, socket: Socket) -> Close:
        """Serve the client; return how to close the socket.

        Raises:
            SocketClosed: the client is gone.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release what `open` acquired; called once, also if `open` failed or was cancelled."""


class Sockets:
    """The accepted WebSockets of clients on this node.

    Args:
        per_credential: how many a credential of an account may have open.
        recheck_seconds: seconds between the checks of a socket's credential.
    """

    def __init__(
        self,
        per_credential: int = MAX_PER_CREDENTIAL,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._per_credential = per_credential
        self._recheck_seconds = recheck_seconds
        self._open: Counter[tuple[str, str]] = Counter()
        self._draining = asyncio.Event()

    def count(self) -> int:
        """Return how many are open."""
        return self._open.total()

    def drain(self) -> None:
        """Close all sockets with 1001; handshakes are refused from now on."""
        self._draining.set()

    async def open(self, conversation: Conversation, principal: Principal) -> None:
        """Open a conversation; `serve` or `release` must follow unless this raises.

        A client that leaves meanwhile is not noticed: its connection is not read yet.

        Raises:
            ApiError: the handshake is refused: 429, the credential has too many sockets open; 503,
                the node drains; and the errors of the conversation.
        """
        if self._draining.is_set():
            raise ApiError(503, "This node is stopping: connect again", retry_after=1)
        credential = _credential_of(principal)
        if self._open[credential] >= self._per_credential:
            raise ApiError(
                429,
                f"This credential has {self._per_credential} WebSockets open: close one of them",
                code=ErrorCode.RATE_LIMITED,
                retry_after=_RETRY_SECONDS,
            )
        self._open[credential] += 1
        try:
            await conversation.open()
        except BaseException:
            await self.release(conversation, principal)
            raise

    async def release(self, conversation: Conversation, principal: Principal) -> None:
        """End a conversation."""
        credential = _credential_of(principal)
        self._open[credential] -= 1
        if not self._open[credential]:
            del self._open[credential]
        await conversation.close()

    async def serve(
        self,
        conversation: Conversation,
        principal: Principal,
        receive: Receive,
        send: Send,
        *,
        max_size: int,
        recheck: Callable[[], Awaitable[None]],
    ) -> None:
        """Accept the socket of an open conversation and serve it to its end.

        Args:
            max_size: the largest message of the client in bytes.
            recheck: raises an `ApiError` when the credential is no longer valid.
        """
        try:
            await send({"type": "websocket.accept", "max_size": max_size})
            closing = await self._serve(conversation, Socket(receive, send), recheck)
        except (ConnectionError, SocketClosed):
            return
        finally:
            await self.release(conversation, principal)
        try:
            # A client that does not read has no room for the close frame, and is not waited for.
            async with asyncio.timeout(_END_SECONDS):
                reason = close_reason(closing.reason)
                await send({"type": "websocket.close", "code": closing.code, "reason": reason})
        except (ConnectionError, TimeoutError):
            _log.debug("client lost before the close", code=closing.code)

    async def _serve(
        self,
        conversation: Conversation,
        socket: Socket,
        recheck: Callable[[], Awaitable[None]],
    ) -> Close:
        """Wait for the first of: the conversation's end, an invalid credential, the drain."""
        first: asyncio.Future[Close] = await first_to_end(
            asyncio.ensure_future(conversation.run(socket)),
            asyncio.create_task(self._until_invalid(recheck), name="recheck a credential"),
            asyncio.create_task(self._until_draining(), name="wait for the node to drain"),
        )
        try:
            return first.result()
        except SocketClosed:
            raise
        except Exception:  # noqa: BLE001  # logged; the client sees that the service failed
            _log.exception("conversation failed")
            return Close(_BROKEN, "Something broke in the service; it is logged")

    async def _until_invalid(self, recheck: Callable[[], Awaitable[None]]) -> Close:
        while True:
            await asyncio.sleep(self._recheck_seconds)
            try:
                await recheck()
            except ApiError as error:
                return Close(CloseCode.UNAUTHORIZED, error.message)
            except Exception as error:
                if not is_unavailable(error):
                    raise
                # The database is unavailable, as for every other request: keep the socket.

    async def _until_draining(self) -> Close:
        await self._draining.wait()
        return Close(CloseCode.GOING_AWAY, "This node is stopping: connect again")


def _credential_of(principal: Principal) -> tuple[str, str]:
    session = principal.session
    return principal.account_id, principal.id if session is None else session.id
