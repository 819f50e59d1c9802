"""Runs the service on a port with uvicorn, and stops it in order."""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outrider.contract.errors import OutriderError
from outrider.contract.frames import MAX_FRAME_BYTES, PING_INTERVAL
from outrider.service.app import Service
from outrider.service.components import Options
from outrider.service.http.http_protocol import CLOSE, http_protocol
from outrider.service.http.websocket import WebSocket
from outrider.service.operations.tls import ServerCertificate
from outrider.service.settings import Settings

_PONG_SECONDS = 60.0
"""How long a machine may take to answer a ping. As long as the default command timeout, so that
commands to a frozen machine end with 504 and not with a lost connection."""

_STOP_SECONDS = 18.0
"""How long a node may take to move its machines and to finish work in flight, in addition to the
`drain_delay` in which load balancers notice."""

_log = structlog.get_logger(__name__)


class PortTaken(OutriderError):
    """The port cannot be listened on."""


def listen(settings: Settings, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens on the port of the settings (0: any free one).

    Args:
        shared: whether other shared sockets may listen on the port too; Linux distributes
            connections among them.

    Raises:
        PortTaken: another program uses the port, or the host is not an address of this machine.
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
            "Set OUTRIDER_PORT (or OUTRIDER_HOST, or OUTRIDER_METRICS_LISTEN) to another one"
        ) from error
    return listener


def listen_for_metrics(settings: Settings) -> list[socket.socket]:
    """Return the socket of `metrics_listen`, if that is set. Raises PortTaken."""
    if settings.metrics_address is None:
        return []
    host, port = settings.metrics_address
    return [listen(settings.model_copy(update={"host": host, "port": port}))]


async def run_service(
    settings: Settings,
    listeners: Sequence[socket.socket],
    stop: asyncio.Event,
    ready: Callable[[], None] = lambda: None,
    *,
    options: Options | None = None,
    certificate: ServerCertificate | None = None,
) -> None:
    """Serve on the listeners until `stop` is set, then drain the node.

    Draining: /readyz answers 503 at once and responses close their connections, so that clients
    and load balancers go to other nodes while this one still serves. Then the node accepts no more
    connections, its machines move, and work in flight gets five seconds. All of it takes at most
    20 s more than `drain_delay`; without other nodes, 6 s.

    Args:
        listeners: closed at the end, even if the service does not start.
        ready: called when the service accepts requests.
        certificate: for https; without it, the service speaks plain HTTP.

    Raises:
        OutriderError: the service could not start; the text says why.
    """
    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listener)
        service = Service(settings, options)
        server = _Server(_config(service, certificate), ready)
        async with service.running():
            _freeze_heap()
            stopper = asyncio.create_task(
                _stop(stop, service, server, settings.drain_delay + _STOP_SECONDS), name="stop"
            )
            try:
                await server.serve(sockets=list(listeners))
            finally:
                stopper.cancel()
                with suppress(asyncio.CancelledError):
                    await stopper


def _config(service: Service, certificate: ServerCertificate | None) -> uvicorn.Config:
    return uvicorn.Config(
        service.app,
        interface="asgi3",
        http=http_protocol(),
        ws=WebSocket,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_INTERVAL,
        ws_ping_timeout=_PONG_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `Addresses` handles them, with our own setting
        timeout_graceful_shutdown=2,  # in addition to the time for commands in flight
        timeout_keep_alive=75,
        backlog=2048,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
    )


def _freeze_heap() -> None:
    """Exclude the objects loaded so far from garbage collection, and collect less often.

    Scanning them again and again caused most of the slowest requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _stop(stop: asyncio.Event, service: Service, server: "_Server", seconds: float) -> None:
    await stop.wait()
    try:
        async with asyncio.timeout(seconds):
            server.close_after_response()
            has_others = await service.leave()
            server.stop_listening()
            if has_others:
                await service.move()
            await service.drain()
    except TimeoutError:
        _log.warning("shutdown timed out")
    finally:
        server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers; the command that runs it has its own."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def close_after_response(self) -> None:
        """Add `Connection: close` to every response from now on."""
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]

    def stop_listening(self) -> None:
        """Stop accepting connections, and close idle HTTP connections."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpToolsProtocol):  # not the machines' sockets
                connection.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
