"""A machine's end of a WebSocket: the sans-I/O protocol of `websockets` on a bare transport.

The whole of a connection is one object without a task of its own, so that one process can hold
many thousands.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import WebSocketURI, parse_uri

from outrider import __version__
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    FromDaemon,
    FromService,
    decode_from_service,
    encode,
)
from outrider.daemon.link import SocketTiming

PACE: Final = SocketTiming()
"""The waits of the real machine agent."""

Heard = Callable[["Socket", FromService], None]
Ended = Callable[["Socket", int | None], None]


class Socket(asyncio.Protocol):
    """One connection.

    Args:
        opened: called once it is a WebSocket.
        heard: called with each frame of the service.
        ended: called once at its end, with the service's close code if it gave one.
    """

    __slots__ = (
        "_alarm",
        "_ended",
        "_heard",
        "_opened",
        "_pinged",
        "_token",
        "_transport",
        "_wire",
    )

    def __init__(
        self,
        uri: WebSocketURI,
        token: str,
        opened: Callable[["Socket"], None],
        heard: Heard,
        ended: Ended,
    ) -> None:
        self._wire = ClientProtocol(uri, max_size=MAX_FRAME_BYTES)
        self._token = token
        self._opened = opened
        self._heard = heard
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._pinged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        self._transport = cast("asyncio.Transport", transport)
        request = self._wire.connect()
        request.headers["Authorization"] = f"Bearer {self._token}"
        request.headers["User-Agent"] = f"outrider/{__version__}"
        self._wire.send_request(request)
        self._flush()
        self._wake_in(PACE.open_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        """Take what has come; pings are answered on the way."""
        self._wire.receive_data(data)
        for event in self._wire.events_received():
            if isinstance(event, Response):
                self._upgraded()
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                frame = decode_from_service(bytes(event.data))
                if frame is not None:
                    self._heard(self, frame)
            elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
                self._pinged = False
        self._flush()
        if self._transport is not None and self._wire.close_expected():
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        """Tell of the end."""
        self._transport = None
        if self._alarm is not None:
            self._alarm.cancel()
        closed = self._wire.close_rcvd
        self._ended(self, None if closed is None else closed.code)

    def send(self, frame: FromDaemon) -> None:
        """Send a frame; nothing happens where the connection has gone."""
        if self._transport is not None:
            self._wire.send_text(encode(frame))
            self._flush()

    def abort(self) -> None:
        """Let go of the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _upgraded(self) -> None:
        if isinstance(self._wire.handshake_exc, InvalidHandshake):
            self.abort()
            return
        self._wake_in(PACE.ping_interval, self._ping)
        self._opened(self)

    def _ping(self) -> None:
        """Ping, and drop a service that has not answered the last one."""
        if self._pinged:
            self.abort()
            return
        self._pinged = True
        self._wire.send_ping(b"")
        self._flush()
        self._wake_in(PACE.ping_interval, self._ping)

    def _wake_in(self, seconds: float, what: Callable[[], None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(seconds, what)

    def _flush(self) -> None:
        output = b"".join(self._wire.data_to_send())
        if output and self._transport is not None:
            self._transport.write(output)


async def connect(
    url: str, token: str, opened: Callable[[Socket], None], heard: Heard, ended: Ended
) -> None:
    """Begin a connection; `opened` or `ended` tells how it goes on.

    Raises:
        OSError: nothing listens there, or nothing answered in time.
    """
    uri = parse_uri(url)
    async with asyncio.timeout(PACE.open_timeout):
        await asyncio.get_running_loop().create_connection(
            lambda: Socket(uri, token, opened, heard, ended), uri.host, uri.port
        )
