"""`outrider serve --workers N`: N worker processes on one port, and this supervisor.

Each worker has its own listening socket on the port (SO_REUSEPORT), and the kernel spreads
connections evenly over them; with one inherited socket, a few workers get most of them. The
supervisor keeps the sockets open as well, so that connections that arrive while a worker is
restarted wait for it.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
import typer

from outrider import __version__
from outrider.cli.running import on_hangup, run
from outrider.contract.errors import OutriderError
from outrider.service.components import Options
from outrider.service.operations.tls import ServerCertificate
from outrider.service.server import listen, run_service
from outrider.service.settings import Settings
from outrider.tracing import SERVICE, tracing_from_environment

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
"""Seconds that a worker has to stop, after the drain delay."""
_LONGEST_PAUSE: Final = 30.0
_STABLE_SECONDS: Final = 60.0

_log = structlog.get_logger(__name__)


class WorkersError(OutriderError):
    """The workers cannot start, or did not stop. The text says what to do."""


def pause(deaths: int) -> float:
    """Return the seconds to wait before restarting a worker after `deaths` deaths in a row."""
    return 0.0 if deaths < 2 else min(_LONGEST_PAUSE, 2.0 ** (deaths - 2))


async def supervise(
    settings: Settings, count: int, first_port: int | None, stop: asyncio.Event
) -> None:
    """Run `count` workers until `stop` is set.

    Worker n (from 1) serves the metrics on the port of `metrics_listen` + n - 1.

    Args:
        first_port: worker n also listens on port `first_port + n - 1`.

    Raises:
        CertificateError: the certificate cannot be used.
        WorkersError: the settings are for one process, the first worker could not start, or a
            worker had to be killed at the end.
        PortTaken: a port is in use.
    """
    if settings.is_single_node or settings.redis_url is None:
        raise WorkersError(
            "Several workers share nothing but their stores: set OUTRIDER_DATABASE_URL to "
            "postgresql://… and OUTRIDER_REDIS_URL to redis://…, or start one worker"
        )
    ServerCertificate.of(settings)  # fails here rather than in each worker
    with listen(settings) as free:  # fails if another service uses the port, even with SO_REUSEPORT
        host, port = free.getsockname()[:2]
    at = settings.model_copy(update={"port": port})
    workers = [_Worker(number, at, first_port) for number in range(1, count + 1)]
    if settings.tls_cert is not None:

        def reload() -> None:
            for worker in workers:
                worker.reload()

        on_hangup(reload)
    stopping = asyncio.create_task(_wait_all([stop]), name="stop the workers")
    tasks = [asyncio.create_task(worker.keep(), name="keep a worker") for worker in workers[:1]]
    try:
        # The first worker starts alone: it migrates the database, or fails with the reason.
        await _until_ready(workers[:1], tasks, stopping)
        tasks += [asyncio.create_task(worker.keep(), name="keep") for worker in workers[1:]]
        await _until_ready(workers, tasks, stopping)
        if not stop.is_set():
            typer.echo(
                f"Outrider {__version__} listens on {settings.scheme}://{host}:{port} "
                f"with {count} workers"
            )
        await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    # First the keepers, which would start a new process for each that ends here.
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.wait({stopping, *tasks})
        within = settings.drain_delay + _STOP_SECONDS
        stopped = await asyncio.gather(*(worker.stop(within) for worker in workers))
    if not all(stopped):
        raise WorkersError(f"A worker had to be killed: it did not stop in {within:g} s")


def work(settings: Settings, number: int, descriptors: Sequence[int]) -> None:
    """Run worker `number`: serve on the listening sockets with these file descriptors.

    It prints a line when it is ready. It stops at SIGTERM, and when standard input ends, because
    then the supervisor has died; if it is already stopping, that ends it at once.
    """
    structlog.contextvars.bind_contextvars(worker=number)
    settings = _worker_settings(settings, number)

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def on_input_end() -> None:
            if os.read(sys.stdin.fileno(), 1):
                return
            if stop.is_set():
                os._exit(1)
            loop.remove_reader(sys.stdin.fileno())
            _log.error("supervisor died, stopping this worker")
            stop.set()

        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, stop.set)
        loop.add_reader(sys.stdin.fileno(), on_input_end)
        certificate = ServerCertificate.of(settings)
        if certificate is not None:
            on_hangup(certificate.reload)
        listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        async with tracing_from_environment(SERVICE) as tracing:
            await run_service(
                settings,
                listeners,
                stop,
                lambda: typer.echo("ready"),
                options=Options(tracing=tracing),
                certificate=certificate,
            )

    run(serve())


def _worker_settings(settings: Settings, number: int) -> Settings:
    """Return the settings of worker `number`: each has its metrics on a port of its own."""
    if settings.metrics_address is None:
        return settings
    host, first_port = settings.metrics_address
    address = f"[{host}]" if ":" in host else host
    metrics_listen = f"{address}:{first_port + number - 1}"
    return settings.model_copy(update={"metrics_listen": metrics_listen})


class _Worker:
    """A worker: its sockets, and its process, which is restarted when it dies."""

    def __init__(self, number: int, settings: Settings, first_port: int | None) -> None:
        self._number = number
        settings = _worker_settings(settings, number)
        self._bindings = [settings]
        if settings.metrics_address is not None:
            host, port = settings.metrics_address
            self._bindings.append(settings.model_copy(update={"host": host, "port": port}))
        if first_port is not None:
            self._bindings.append(settings.model_copy(update={"port": first_port + number - 1}))
        self._listeners: list[socket.socket] = []
        self._listen()
        self._process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        """Run the process and restart it when it dies, until cancelled.

        Raises:
            WorkersError: the first worker did not start.
        """
        deaths = 0
        while True:
            start_time = time.monotonic()
            code = await self._run_once()
            if not self.ready.is_set() and self._number == 1:
                raise WorkersError("No worker could start; the output of the first one is above")
            deaths = 1 if time.monotonic() - start_time >= _STABLE_SECONDS else deaths + 1
            seconds = pause(deaths)
            _log.error("worker died", worker=self._number, code=code, restart_in_seconds=seconds)
            if seconds:  # refuse connections until then: they would wait for this worker
                self._close()
                await asyncio.sleep(seconds)
                self._listen()

    def reload(self) -> None:
        """Have the process read its certificate again.

        One that has not set up its handler yet dies of it, and starts again with the new files.
        """
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGHUP)

    async def stop(self, within: float) -> bool:
        """Terminate the process; return whether it ended within `within` seconds with code 0."""
        self._close()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return True
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(within):
                return await process.wait() == 0
        except TimeoutError:
            process.kill()
            await process.wait()
            return False

    async def _run_once(self) -> int:
        """Start the process, wait for its end, and return its exit code."""
        descriptors = [listener.fileno() for listener in self._listeners]
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "outrider", "worker", str(self._number)),
            *(str(descriptor) for descriptor in descriptors),
            stdin=asyncio.subprocess.PIPE,  # ends when this process dies, which stops the worker
            stdout=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C goes to the supervisor only, which passes it on
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                is_ready = bool(await process.stdout.readline())
        except TimeoutError:
            _log.error("worker start timed out", worker=self._number)
            process.kill()
            is_ready = False
        if is_ready:
            self.ready.set()
            _log.info("worker started", worker=self._number, pid=process.pid)
        return await process.wait()

    def _listen(self) -> None:
        first, *own = self._bindings
        self._listeners = [listen(first, shared=True), *(listen(at) for at in own)]

    def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []


async def _until_ready(
    workers: Sequence[_Worker], tasks: Sequence[asyncio.Task[None]], stopping: asyncio.Task[None]
) -> None:
    """Wait until all workers are ready, a stop is requested, or one has failed permanently."""
    events = [worker.ready for worker in workers]
    ready = asyncio.create_task(_wait_all(events), name="workers ready")
    try:
        await asyncio.wait({ready, stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        ready.cancel()
        await asyncio.wait({ready})


async def _wait_all(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
