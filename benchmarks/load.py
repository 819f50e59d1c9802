"""Load: wrk for one request as often as possible, `Clients` for mixed and scheduled requests."""

import asyncio
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx
import msgspec

from benchmarks.processes import LOADING, BenchmarkError, on_processors
from benchmarks.service import Server

_SCRIPT: Final = Path(__file__).with_name("request.lua")
_MARK: Final = "FIGURES "
_COUNTED: Final = "outrider_http_requests_total{"


class Request(msgspec.Struct, frozen=True):
    """A request to repeat. If there are `others`, further paths, it takes turns with them."""

    method: str
    path: str
    body: str | None = None
    others: tuple[str, ...] = ()


class Run(msgspec.Struct):
    """One run of wrk: requests answered, latencies in microseconds, and the processor time.

    `refused` counts answers of 400 and above, `broken` failures of the socket.
    """

    requests: int
    microseconds: int
    refused: int
    broken: int
    p50: int
    p99: int
    cpu_seconds: float = 0

    @property
    def per_second(self) -> float:
        """Requests answered per second."""
        return self.requests / (self.microseconds / 1e6)

    @property
    def cpu_per_request(self) -> float:
        """Microseconds of a processor for each request, in all threads of the server."""
        return self.cpu_seconds * 1e6 / self.requests


def load(
    server: Server,
    request: Request,
    *,
    connections: int,
    seconds: int,
    cpus: Sequence[int] = LOADING,
) -> Run:
    """Send a request over and over for some seconds.

    Raises:
        BenchmarkError: an answer was an error, so that there is nothing to compare; or wrk is
            missing.
    """
    if shutil.which("wrk") is None:
        raise BenchmarkError("wrk is missing: install it (Debian: apt-get install wrk)")
    command = ["wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{seconds}s", "--timeout", "10s", "--script", str(_SCRIPT)]
    command += [server.url + request.path, "--", server.key, request.method]
    command += [request.body or "", *request.others]
    before = server.program.cpu_seconds()
    done = subprocess.run(
        on_processors(cpus, command),
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + 30,
        check=False,
        start_new_session=True,
    )
    server.program.check()
    cpu_seconds = server.program.cpu_seconds() - before
    figures = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not figures:
        raise BenchmarkError(f"wrk failed ({done.returncode}): {done.stdout.strip()}")
    seen = msgspec.json.decode(figures[0].removeprefix(_MARK), type=Run)
    if seen.refused or seen.broken or not seen.requests:
        raise BenchmarkError(
            f"{request.method} {request.path}: of {seen.requests} requests {seen.refused} were "
            f"refused and {seen.broken} broke\n{_refusals(server)}\n{server.program.tail()}"
        )
    return msgspec.structs.replace(seen, cpu_seconds=cpu_seconds)


def _refusals(server: Server) -> str:
    """Return which requests the service has refused with which status, by its metrics."""
    try:
        metrics = server.get("/metrics").decode().splitlines()
    except httpx.HTTPError as error:
        return f"(no metrics: {error})"
    counts = [line for line in metrics if line.startswith(_COUNTED)]
    return "\n".join(line for line in counts if 'status="2' not in line)


class Clients:
    """Clients of a server, whose work makes requests of it with `request`.

    Args:
        timeout: seconds after which a request counts as not answered.

    Attributes:
        outcomes: how many requests of each kind had each outcome, such as "status: 200".
        latencies: the seconds of each request.
        is_ending: whether work in the background is to return soon.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._client: aiohttp.ClientSession
        self._running: Future[None]
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.is_ending = False

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in this thread, to its end."""

        async def run() -> None:
            url, headers = self._server.url, self._server.headers
            timeout = aiohttp.ClientTimeout(total=self._timeout)
            async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as self._client:
                await work

        asyncio.run(run())

    @contextmanager
    def running(self, work: Coroutine[Any, Any, None]) -> Iterator[None]:
        """Do some work in a thread, until the end of this block."""
        with ThreadPoolExecutor(1, "clients") as thread:
            self._running = thread.submit(self.run, work)
            try:
                yield
            finally:
                self.is_ending = True
        self._running.result()

    def check(self) -> None:
        """Raise the error that ended the work in the background, if there was one."""
        if self._running.done():
            self._running.result()

    async def request(
        self, kind: str, method: str, url: str, due: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request; return the answer's body, an empty one if it failed.

        Args:
            url: a path of the server, or a whole address.
            due: the `time.monotonic` from which its latency counts; now by default.
        """
        began = time.monotonic() if due is None else due
        try:
            async with self._client.request(method, url, **options) as answer:
                body = await answer.read()
                self.outcomes[f"{kind}: {answer.status}"] += 1
                return await answer.json() if answer.ok and body else {}
        except TimeoutError:
            self.outcomes[f"{kind}: no answer in time"] += 1
        except aiohttp.ClientError as error:
            self.outcomes[f"{kind}: {type(error).__name__}"] += 1
        finally:
            self.latencies.append(time.monotonic() - began)
        return {}
