"""Another client of the service: asks for a status at fixed times, and records the latencies."""

import asyncio
import statistics
import time
from typing import Final

from benchmarks.clients import Clients
from benchmarks.report import percentile
from benchmarks.service import Server

_INTERVAL: Final = 0.02
_LONGEST: Final = 30.0
"""Seconds after which an answer counts as failed."""


class Prober(Clients):
    """One connection that GETs `path` every 20 ms, for so many seconds.

    A request that is due while an answer is outstanding is sent late, and its latency counts from
    when it was due: otherwise a service that stands still for a second would show in one request.
    """

    def __init__(self, server: Server, path: str, seconds: float) -> None:
        super().__init__(server.headers, _LONGEST)
        self._url = server.url + path
        self._seconds = seconds

    async def work(self) -> None:
        """Make the requests that are due."""
        begin = time.monotonic()
        for number in range(int(self._seconds / _INTERVAL)):
            due = begin + number * _INTERVAL
            await asyncio.sleep(due - time.monotonic())
            await self.request("status", "GET", self._url, due)
            if time.monotonic() - begin > self._seconds + _LONGEST:
                break

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return self.outcomes.total() - self.outcomes["status: 200"]

    @property
    def median(self) -> float:
        """The median latency, in milliseconds."""
        return statistics.median(self.latencies) * 1000

    @property
    def p99(self) -> float:
        """The 99th percentile, in milliseconds."""
        return percentile(self.latencies, 99) * 1000

    @property
    def longest(self) -> float:
        """The longest, in milliseconds."""
        return max(self.latencies) * 1000


def probe(server: Server, path: str, seconds: float) -> Prober:
    """Probe for so many seconds; return the prober with its latencies."""
    prober = Prober(server, path, seconds)
    prober.run()
    return prober
