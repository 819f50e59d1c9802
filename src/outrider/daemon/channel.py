"""One connection to the service: opened, greeted, frames both ways, closed."""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from outrider import __version__
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    CloseCode,
    DecodeError,
    FromDaemon,
    FromService,
    Goodbye,
    Hello,
    Welcome,
    close_reason,
    decode_from_service,
    encode,
)
from outrider.contract.limits import fitted
from outrider.daemon.link_errors import REFUSALS, UnsupportedVersionError
from outrider.daemon.settings import Connection

LONGEST_SPAN: Final = 600.0
"""Seconds that a service's goodbye may keep this machine away."""

_BROKEN_LIMITS: Final = frozenset(
    {CloseCode.BAD_FRAME, CloseCode.TOO_MUCH_STATE, CloseCode.TOO_MANY_EVENTS, 1009}
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Pace:
    """The waits of a link, in seconds.

    A service that is frozen, or gone without a word, is left after `ping_interval` and
    `ping_timeout` at the latest: before the grace period of its machines is over, which the
    service's other nodes begin 15 s after it fell silent.

    After a connection that lasted for `stable_after`, the next attempt comes soon again.
    For `linger` a connection is read on that another one took over from.
    """

    open_timeout: float = 10.0
    welcome_timeout: float = 15.0
    ping_interval: float = 10.0
    ping_timeout: float = 10.0
    close_timeout: float = 2.0
    report_interval: float = 20.0
    stable_after: float = 30.0
    linger: float = 10.0


class Channel:
    """A WebSocket to the service.

    Its methods raise `ConnectionClosed` once it has ended.
    """

    def __init__(self, socket: ClientConnection, pace: Pace) -> None:
        self._socket = socket
        self._pace = pace
        self.span: float | None = None
        """Seconds within which the service wants this machine to move to another connection."""
        self.to_move = asyncio.Event()
        """Set together with `span`."""
        self.may_be_replaced = False
        """Another connection of this machine has said hello: the service may close this one."""

    @classmethod
    async def open(cls, to: Connection, pace: Pace) -> "Channel | None":
        """Return a connection; None, with a line in the log, where there is none to be had now."""
        log = _log.bind(server=to.server)
        try:
            socket = await connect(
                to.websocket_url,
                additional_headers={"Authorization": f"Bearer {to.token}"},
                user_agent_header=f"outrider/{__version__}",
                compression=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=pace.open_timeout,
                ping_interval=pace.ping_interval,
                ping_timeout=pace.ping_timeout,
                close_timeout=pace.close_timeout,
            )
            return cls(socket, pace)
        except InvalidStatus as error:
            status = error.response.status_code
            log.warning("the service refused the connection", http_status=status)
        except TimeoutError:
            log.warning("the service did not answer", within_seconds=pace.open_timeout)
        except (OSError, WebSocketException, UnicodeError) as error:
            log.warning("the service cannot be reached", reason=str(error))
        return None

    async def welcome(self, hello: Hello) -> Welcome:
        """Say hello and return the welcome.

        Raises:
            DecodeError: the service sent something else.
            TimeoutError: it sent nothing.
            UnsupportedVersionError: it speaks another version of the protocol.
        """
        await self.send(hello)
        async with asyncio.timeout(self._pace.welcome_timeout):
            while True:
                frame = await self.receive()
                if isinstance(frame, Welcome):
                    break
                if isinstance(frame, Goodbye):
                    self.heard(frame)
                elif frame is not None:
                    raise DecodeError("The first frame must be a welcome")
        if frame.protocol != PROTOCOL_VERSION:
            raise UnsupportedVersionError
        return frame

    def heard(self, goodbye: Goodbye) -> None:
        """Note that the service says goodbye."""
        _log.info("the service says goodbye", reason=goodbye.reason)
        if goodbye.reconnect_ms:
            self.span = min(goodbye.reconnect_ms / 1000, LONGEST_SPAN)
            self.to_move.set()

    async def receive(self) -> FromService | None:
        """Return the next frame; None for one of a kind that this version does not know.

        Raises:
            DecodeError: the service sent what is not a frame.
        """
        message = await self._socket.recv()
        if isinstance(message, bytes):
            raise DecodeError("A frame is a text message, this one is binary")
        return decode_from_service(message)

    async def send(self, frame: FromDaemon) -> None:
        """Send a frame, within the limits of the contract; waits while the service takes none."""
        await self._socket.send(encode(fitted(frame)).decode())

    def ended(self, error: BaseException | None) -> tuple[CloseCode, str]:
        """Tell in the log what error ended it; return how to close it.

        Raises:
            LinkRefusedError: another connection would end in the same way.
            BaseException: the error, where it is not of a kind in which connections end.
        """
        match error:
            case ConnectionClosed(rcvd=received):
                code = received.code if received else None
                refusal = REFUSALS.get(code) if code else None
                if refusal and not (code == CloseCode.REPLACED and self.may_be_replaced):
                    raise refusal from error
                if received and code in _BROKEN_LIMITS:
                    _log.error(
                        "the service ended the connection: this machine broke a limit",
                        code=code,
                        reason=received.reason,
                    )
                else:
                    _log.warning("connection lost", reason=str(error))
            case DecodeError():
                _log.warning("the service sent what is not a frame", reason=str(error))
                return CloseCode.BAD_FRAME, str(error)
            case TimeoutError():
                _log.warning("the service did not answer the hello")
                return CloseCode.HELLO_TIMEOUT, "No welcome in time"
            case BaseException():
                raise error
        return CloseCode.GOING_AWAY, "The connection has ended"

    async def say_goodbye(self) -> None:
        """Tell the service that this machine's agent stops."""
        try:
            async with asyncio.timeout(self._pace.close_timeout):
                await self.send(Goodbye(reason="The machine agent stops"))
        except (ConnectionClosed, TimeoutError):
            _log.info("the connection was gone before the goodbye")

    async def close(self, code: CloseCode, reason: str) -> None:
        """Close it, telling why. Harmless if it has ended already."""
        await self._socket.close(code, close_reason(reason))
