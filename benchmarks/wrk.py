"""Load from wrk: one request over and over, on a number of connections."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.processes import BenchmarkError, deferred
from benchmarks.service import Server

_SCRIPT: Final = Path(__file__).with_name("request.lua")
_MARK: Final = "FIGURES "


class Request(msgspec.Struct, frozen=True):
    """A request to repeat. Where there are `others`, further paths, it takes turns with them."""

    method: str
    path: str
    body: str | None = None
    others: tuple[str, ...] = ()


class Load(msgspec.Struct):
    """What wrk saw: requests answered, and latencies in microseconds.

    `refused` counts answers of 400 and above, `broken` failures of the socket.
    """

    requests: int
    microseconds: int
    refused: int
    broken: int
    p50: int
    p99: int

    @property
    def per_second(self) -> float:
        """Requests answered per second."""
        return self.requests / (self.microseconds / 1e6)


def require_wrk() -> None:
    """Raise BenchmarkError where wrk is missing, saying what to do."""
    if shutil.which("wrk") is None:
        raise BenchmarkError("wrk is missing: install it (Debian: apt-get install wrk)")


def load(
    server: Server, request: Request, *, connections: int, seconds: int, cpus: Sequence[int]
) -> Load:
    """Send a request over and over for some seconds.

    Raises:
        BenchmarkError: an answer was an error, so that there is nothing to compare.
    """
    command = ["wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", f"{seconds}s", "--timeout", "10s", "--script", str(_SCRIPT)]
    command += [server.url + request.path, "--", server.key, request.method]
    command += [request.body or "", *request.others]
    with deferred():
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
    try:
        if cpus:
            os.sched_setaffinity(process.pid, cpus)
        output, _ = process.communicate(timeout=seconds + 30)
    finally:
        process.kill()
        process.wait()
    server.program.check()
    figures = [line for line in output.splitlines() if line.startswith(_MARK)]
    if process.returncode != 0 or not figures:
        raise BenchmarkError(f"wrk failed ({process.returncode}): {output.strip()}")
    seen = msgspec.json.decode(figures[0].removeprefix(_MARK), type=Load)
    if seen.refused or seen.broken or not seen.requests:
        raise BenchmarkError(
            f"{request.method} {request.path}: of {seen.requests} requests {seen.refused} were "
            f"refused and {seen.broken} broke"
        )
    return seen
