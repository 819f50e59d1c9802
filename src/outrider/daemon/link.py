"""The connection to the service: made again and again until told to stop, or refused for good.

docs/protocol.md describes what goes over it.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from outrider import __version__
from outrider.contract.errors import OutriderError
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PING_INTERVAL,
    PROTOCOL_VERSION,
    Acknowledge,
    Cancel,
    CloseCode,
    Command,
    DecodeError,
    FromDaemon,
    FromService,
    Goodbye,
    Hello,
    Noted,
    Snapshot,
    Welcome,
    decode_from_service,
    encode,
)
from outrider.contract.resources import Provider
from outrider.daemon.backoff import Backoff
from outrider.daemon.outgoing import Outgoing
from outrider.daemon.router import Router
from outrider.daemon.settings import Connection

LONGEST_PAUSE: Final = 600.0
"""Seconds that a service's goodbye may keep this machine away."""

_log = structlog.get_logger(__name__)


class LinkRefusedError(OutriderError):
    """The service will not have this machine agent: connecting again is of no use."""


class TokenRefusedError(LinkRefusedError):
    """The token was revoked."""

    def __init__(self) -> None:
        super().__init__(
            "The service does not accept this machine's token (it was revoked, or replaced by "
            "another setup): run `outrider setup` again"
        )


class UnsupportedVersionError(LinkRefusedError):
    """The service speaks another version of the protocol."""

    def __init__(self) -> None:
        super().__init__(
            f"The service does not speak version {PROTOCOL_VERSION} of the daemon protocol: "
            "update outrider so that both sides have the same version"
        )


class ReplacedError(LinkRefusedError):
    """Another machine agent connected with the same token."""

    def __init__(self) -> None:
        super().__init__(
            "Another machine agent connected with this machine's token: if the configuration "
            "was copied, run `outrider setup` on one of the two machines"
        )


_REFUSALS: Final[dict[int, type[LinkRefusedError]]] = {
    CloseCode.UNAUTHORIZED: TokenRefusedError,
    CloseCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    CloseCode.REPLACED: ReplacedError,
}


@dataclass(frozen=True)
class Pace:
    """The waits of a link, in seconds.

    After a connection that lasted for `stable_after`, the next attempt comes soon again.
    """

    open_timeout: float = 20.0
    welcome_timeout: float = 15.0
    ping_interval: float = PING_INTERVAL
    ping_timeout: float = PING_INTERVAL
    close_timeout: float = 2.0
    report_interval: float = 20.0
    stable_after: float = 30.0


class Link:
    """Keeps this machine connected.

    Args:
        connection: where to, and as whom.
        outgoing: what is to be told.
        router: carries out the service's commands.
        snapshot: returns everything that runs on the machine now.
        on_connected: called after each welcome.
        sleep, chance: how to wait between attempts, and how to vary that wait (0 to 1).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        outgoing: Outgoing,
        router: Router,
        snapshot: Callable[[], Snapshot],
        pace: Pace = Pace(),
        on_connected: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._on_connected = on_connected
        self._connection = connection
        self._outgoing = outgoing
        self._router = router
        self._snapshot = snapshot
        self._pace = pace
        self._sleep = sleep
        self._chance = chance
        self._backoff = Backoff(chance)
        self._pause: float | None = None
        self._log = _log.bind(server=connection.server)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop` is set; then say goodbye.

        Raises:
            LinkRefusedError: the service refuses this machine for good.
        """
        stopping = asyncio.create_task(stop.wait(), name="link stop")
        try:
            while not stop.is_set():
                await self._connect(stopping)
                if stop.is_set():
                    return
                pause, self._pause = self._pause, None
                wait = self._backoff.next() if pause is None else pause
                self._log.info("connecting again", in_seconds=round(wait, 1))
                await _first(stopping, asyncio.create_task(self._sleep(wait), name="link pause"))
        finally:
            await _cancel(stopping)

    async def _connect(self, stopping: asyncio.Task[bool]) -> None:
        """Make one connection and serve it to its end."""
        opening = asyncio.create_task(self._open(), name="link open")
        ended = await _first(stopping, opening)
        socket = None if opening.cancelled() else opening.result()
        if socket is None:
            return
        began = asyncio.get_running_loop().time()
        code, reason = CloseCode.GOING_AWAY, "The machine agent stops"
        serving = asyncio.create_task(self._serve(socket), name="link serve")
        try:
            if ended and await _first(stopping, serving):
                serving.result()
            else:
                await self._say_goodbye(socket)
        except ConnectionClosed as closed:
            self._ended(closed)
        except DecodeError as error:
            code, reason = CloseCode.BAD_FRAME, str(error)
            self._log.warning("the service sent what is not a frame", reason=reason)
        except TimeoutError:
            code, reason = CloseCode.HELLO_TIMEOUT, "No welcome in time"
            self._log.warning("the service did not answer the hello")
        finally:
            await _cancel(serving)
            self._outgoing.end()
            self._router.cancel_all()
            await socket.close(code, reason.encode()[:120].decode(errors="ignore"))
        if asyncio.get_running_loop().time() - began >= self._pace.stable_after:
            self._backoff.reset()

    async def _open(self) -> ClientConnection | None:
        """Return a connection; None where there is none to be had now."""
        pace = self._pace
        try:
            return await connect(
                self._connection.websocket_url,
                additional_headers={"Authorization": f"Bearer {self._connection.token}"},
                user_agent_header=f"outrider/{__version__}",
                compression=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=pace.open_timeout,
                ping_interval=pace.ping_interval,
                ping_timeout=pace.ping_timeout,
                close_timeout=pace.close_timeout,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            self._log.warning("the service refused the connection", http_status=status)
        except TimeoutError:
            self._log.warning("the service did not answer", within_seconds=pace.open_timeout)
        except (OSError, WebSocketException, UnicodeError) as error:
            self._log.warning("the service cannot be reached", reason=str(error))
        return None

    async def _serve(self, socket: ClientConnection) -> None:
        """Say hello, then carry frames both ways until the connection ends.

        Raises:
            ConnectionClosed: it has ended.
            DecodeError: the service sent what is not a frame.
            TimeoutError: there was no welcome.
        """
        now = self._outgoing.begin(self._snapshot)
        await socket.send(
            _text(
                Hello(
                    protocol=PROTOCOL_VERSION,
                    version=__version__,
                    machine=now.machine,
                    providers=now.providers,
                    sessions=now.sessions,
                    last_event=self._outgoing.last_event(),
                )
            )
        )
        async with asyncio.timeout(self._pace.welcome_timeout):
            welcome = await self._welcome(socket)
        self._outgoing.resume(welcome.acknowledged)
        self._log.info("connected", daemon=welcome.daemon_id, service=welcome.version)
        self._on_connected()
        await _until_one_ends(
            self._receive(socket), self._send(socket), self._report(now.providers)
        )

    async def _welcome(self, socket: ClientConnection) -> Welcome:
        while True:
            frame = await _receive_frame(socket)
            if isinstance(frame, Welcome):
                if frame.protocol != PROTOCOL_VERSION:
                    raise UnsupportedVersionError
                return frame
            if isinstance(frame, Goodbye):
                self._heard_goodbye(frame)
            elif frame is not None:
                raise DecodeError("The first frame must be a welcome")

    async def _receive(self, socket: ClientConnection) -> None:
        while True:
            match await _receive_frame(socket):
                case Command() as command:
                    self._router.submit(command, self._outgoing.result)
                case Cancel(id=command_id):
                    self._router.cancel(command_id)
                case Acknowledge(seq=seq):
                    self._outgoing.acknowledged(seq)
                case Noted(seq=seq):
                    self._outgoing.noted(seq)
                case Goodbye() as goodbye:
                    self._heard_goodbye(goodbye)

    async def _send(self, socket: ClientConnection) -> None:
        while True:
            for frame in await self._outgoing.next():
                await socket.send(_text(frame))

    async def _report(self, providers: list[Provider]) -> None:
        """Tell the machine's figures from time to time, and providers that came or went."""
        while True:
            await asyncio.sleep(self._pace.report_interval)
            now = self._snapshot()
            if now.providers == providers:
                self._outgoing.machine(now.machine)
            else:
                providers = now.providers
                self._outgoing.snapshot(self._snapshot)

    def _heard_goodbye(self, goodbye: Goodbye) -> None:
        self._log.info("the service says goodbye", reason=goodbye.reason)
        if goodbye.reconnect_ms:
            pause = min(goodbye.reconnect_ms / 1000, LONGEST_PAUSE)
            self._pause = pause * (1 + self._chance() / 5)

    def _ended(self, closed: ConnectionClosed) -> None:
        """Tell in the log how a connection ended.

        Raises:
            LinkRefusedError: another one would end in the same way.
        """
        code = closed.rcvd.code if closed.rcvd else None
        refusal = _REFUSALS.get(code) if code else None
        if refusal is not None:
            raise refusal from closed
        self._log.warning("connection lost", reason=str(closed))

    async def _say_goodbye(self, socket: ClientConnection) -> None:
        try:
            async with asyncio.timeout(self._pace.close_timeout):
                await socket.send(_text(Goodbye(reason="The machine agent stops")))
        except (ConnectionClosed, TimeoutError):
            self._log.info("the connection was gone before the goodbye")


async def _receive_frame(socket: ClientConnection) -> FromService | None:
    message = await socket.recv()
    if isinstance(message, bytes):
        raise DecodeError("A frame is a text message, this one is binary")
    return decode_from_service(message)


def _text(frame: FromDaemon) -> str:
    return encode(frame).decode()


async def _first(stopping: asyncio.Task[bool], task: asyncio.Task[Any]) -> bool:
    """Wait for `task`, and tell whether it ended before the stop, which cancels it."""
    try:
        await asyncio.wait({stopping, task}, return_when=asyncio.FIRST_COMPLETED)
        return task.done()
    finally:
        await _cancel(task)


async def _until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts of a connection; raise what the first of them to end has raised."""
    tasks = [asyncio.create_task(part, name="link part") for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            await _cancel(task)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """End a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # it has been seen
