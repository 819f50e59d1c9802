"""Load: wrk repeats one request as often as possible."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
