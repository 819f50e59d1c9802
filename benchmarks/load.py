"""Load: wrk for one request as often as possible, `Clients` for mixed and scheduled requests."""

import asyncio
import shutil
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

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


class Clients(ABC):
    """Clients of a server that make requests for the length of a context, in a thread, or of `run`.

    Args:
        timeout: seconds after which a request counts as not answered.

    Attributes:
        outcomes: how many requests of each kind had each outcome, such as "status: 200".
        latencies: the seconds of each request.
        is_ending: whether the context is ending: `work` returns soon.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._headers = server.headers
        self._timeout = timeout
        self._thread = threading.Thread(target=self._run, name="clients", daemon=True)
        self._failure: BaseException | None = None
        self._client: aiohttp.ClientSession
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.is_ending = False

    @abstractmethod
    async def work(self) -> None:
        """Make requests with `request` until `is_ending`."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_ending = True
        self._thread.join(self._timeout + 10)

    def check(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """Make the requests in this thread; return when `work` does."""
        asyncio.run(self._main())

    async def request(
        self, kind: str, method: str, url: str, due: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request; return the answer's body, an empty one if it failed.

        Args:
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

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  # `check` raises it
            self._failure = error

    async def _main(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as self._client:
            await self.work()
