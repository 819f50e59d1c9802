"""A machine's WebSocket: the sans-I/O protocol of `websockets` on a bare transport.

A connection is one object without a task of its own, so that one process can hold many thousands.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import WebSocketURI, parse_uri

from outrider import __version__
from outrider.contract.frames import MAX_FRAME_BYTES, FromDaemon, encode
from outrider.daemon.link import SocketTiming

TIMING: Final = SocketTiming()
"""The intervals of the real machine agent."""


class SocketOwner(Protocol):
    """Receives what happens on its connections, each of which has a number."""

    def socket_opened(self, number: int, socket: "Socket") -> None:
        """Handle a connection that has become a WebSocket."""

    def socket_received(self, number: int, message: str) -> None:
        """Handle a text message."""

    def socket_closed(self, number: int, code: int | None) -> None:
        """Handle the end of a connection, with the service's close code if it sent one."""


class Socket(asyncio.Protocol):
    """One connection; `owner` receives its events under the number `number`."""

    __slots__ = ("_number", "_owner", "_pings", "_timer", "_token", "_transport", "_websocket")

    def __init__(self, uri: WebSocketURI, token: str, number: int, owner: SocketOwner) -> None:
        self._websocket = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._token = token
        self._number = number
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pings = 0
        """Pings without a pong."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request to upgrade."""
        self._transport = cast("asyncio.Transport", transport)
        request = self._websocket.connect()
        request.headers["Authorization"] = f"Bearer {self._token}"
        request.headers["User-Agent"] = f"outrider/{__version__}"
        self._websocket.send_request(request)
        self._flush()
        self._call_in(TIMING.open_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        """Pass messages to the owner, and answer pings."""
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._upgraded()
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._owner.socket_received(self._number, bytes(event.data).decode())
            elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
                self._pings = 0
        self._flush()
        if self._transport is not None and self._websocket.close_expected():
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Report the end to the owner."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        close = self._websocket.close_rcvd
        self._owner.socket_closed(self._number, None if close is None else close.code)

    def send(self, frame: FromDaemon) -> None:
        """Send a frame; do nothing if the connection has ended."""
        if self._transport is not None:
            self._websocket.send_text(encode(frame))
            self._flush()

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a close frame."""
        if self._transport is not None:
            self._websocket.send_close(code, reason)
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    def _upgraded(self) -> None:
        if isinstance(self._websocket.handshake_exc, InvalidHandshake):
            self.abort()
            return
        self._call_in(TIMING.ping_interval, self._ping)
        self._owner.socket_opened(self._number, self)

    def _ping(self) -> None:
        """Send a ping; drop the connection if the last one has no pong."""
        if self._pings:
            self.abort()
            return
        self._pings += 1
        self._websocket.send_ping(b"")
        self._flush()
        self._call_in(TIMING.ping_interval, self._ping)

    def _call_in(self, seconds: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def _flush(self) -> None:
        output = b"".join(self._websocket.data_to_send())
        if output and self._transport is not None:
            self._transport.write(output)


async def connect(url: str, token: str, number: int, owner: SocketOwner) -> None:
    """Open a connection; `socket_opened` or `socket_closed` of its owner follows.

    Raises:
        OSError: nothing listens there, or nothing answered in time.
    """
    uri = parse_uri(url)
    async with asyncio.timeout(TIMING.open_timeout):
        await asyncio.get_running_loop().create_connection(
            lambda: Socket(uri, token, number, owner), uri.host, uri.port
        )
