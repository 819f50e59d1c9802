"""Runs the service on a port, with the server flags that it is measured with."""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outrider.cloud.app import Service
from outrider.cloud.http_protocol import http_protocol
from outrider.cloud.settings import Settings
from outrider.cloud.websocket import Keepalive, WebSocket
from outrider.contract.errors import OutriderError
from outrider.contract.frames import MAX_FRAME_BYTES, PING_INTERVAL

_PONG_SECONDS = 60.0
"""How long a machine may be silent after a ping: as long as the default command timeout, so
that a machine which is frozen rather than gone is told by a 504."""

_STOP_SECONDS = 18.0
"""How long a node may take to send its machines away and to end what is under way, behind the
delay in which the load balancer notices."""

_log = structlog.get_logger(__name__)


class PortTaken(OutriderError):
    """The port cannot be listened on."""


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens on the port of the settings (0: any free one).

    Args:
        shared: other such sockets may listen there too; Linux spreads connections over them.

    Raises:
        PortTaken: another program has it, or the host is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. "
            "Set OUTRIDER_PORT (or OUTRIDER_HOST) to another one"
        ) from error
    return listener


async def run_service(
    settings: Settings,
    listeners: Sequence[socket.socket],
    stop: asyncio.Event,
    ready: Callable[[], None] = lambda: None,
    *,
    limit_loopback: bool = True,
) -> None:
    """Serve on the listeners until `stop` is set; then take the node out of service in order.

    /readyz answers 503 at once, and responses close their connections, so that clients and load
    balancers go to other nodes while this one still serves; the machines move there. Then
    nothing more is accepted, and what is under way gets five seconds. All of it takes at most
    20 s more than `drain_delay`; without other nodes, 6 s.

    Args:
        listeners: closed at the end, also where the service does not start.
        ready: called once requests are answered.
        limit_loopback: whether the limits by address hold for loopback addresses too.

    Raises:
        OutriderError: the service could not start; the text says why.
    """
    with ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener)
        service = Service(settings, limit_loopback=limit_loopback)
        await _serve(service, settings, listeners, stop, ready)


async def _serve(
    service: Service,
    settings: Settings,
    listeners: Sequence[socket.socket],
    stop: asyncio.Event,
    ready: Callable[[], None],
) -> None:
    config = uvicorn.Config(
        service.app,
        interface="asgi3",
        http=http_protocol(Keepalive(PING_INTERVAL, _PONG_SECONDS)),
        ws=WebSocket,  # the protocol makes them
        ws_max_size=MAX_FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whom to believe is a setting of ours
        timeout_graceful_shutdown=2,  # on top of the commands' time to end
        timeout_keep_alive=75,
        backlog=2048,
    )
    server = _Server(config, ready)
    async with service.running():
        _settle_memory()
        stopper = asyncio.create_task(
            _stop(stop, service, server, settings.drain_delay + _STOP_SECONDS), name="stop"
        )
        try:
            await server.serve(sockets=list(listeners))
        finally:
            stopper.cancel()
            with suppress(asyncio.CancelledError):
                await stopper


def _settle_memory() -> None:
    """Keep what was loaded out of the garbage collector's way.

    It would look through all of it again and again: most of the slowest requests were that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _stop(stop: asyncio.Event, service: Service, server: "_Server", seconds: float) -> None:
    await stop.wait()
    try:
        async with asyncio.timeout(seconds):
            server.send_away()
            await service.leave()
            server.stop_listening()
            await service.drain()
    except TimeoutError:
        _log.warning("what is under way is cut short: stopping took too long")
    finally:
        server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's server, with the signals left to the command that runs it."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def send_away(self) -> None:
        """Have every response from here on close its connection."""
        close = (b"connection", b"close")
        self.config.encoded_headers.append(close)
        self.server_state.default_headers = [*self.server_state.default_headers, close]

    def stop_listening(self) -> None:
        """Accept no more connections, and close those that wait for a request."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpToolsProtocol):  # not the machines' sockets
                connection.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
