"""Another client of the service: asks for a status at fixed times, and notes the latencies."""

import asyncio
import statistics
from typing import Final

import aiohttp
import msgspec

from benchmarks.service import Server

_INTERVAL: Final = 0.02
_LONGEST: Final = 30.0
"""Seconds after which an answer counts as failed."""


class Latencies(msgspec.Struct):
    """Seconds from when each request was due to its answer; how many failed."""

    seconds: list[float]
    failed: int

    @property
    def median(self) -> float:
        """The median, in milliseconds."""
        return statistics.median(self.seconds) * 1000

    @property
    def p99(self) -> float:
        """The 99th percentile, in milliseconds."""
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)] * 1000

    @property
    def longest(self) -> float:
        """The longest, in milliseconds."""
        return max(self.seconds) * 1000


def probe(server: Server, path: str, seconds: float) -> Latencies:
    """GET `path` every 20 ms on one connection.

    A request that is due while an answer is outstanding is sent late, and its latency counts from
    when it was due: otherwise a service that stands still for a second would show in one request.
    """
    return asyncio.run(_probe(server, path, seconds))


async def _probe(server: Server, path: str, seconds: float) -> Latencies:
    loop = asyncio.get_running_loop()
    found = Latencies([], 0)
    timeout = aiohttp.ClientTimeout(total=_LONGEST)
    async with aiohttp.ClientSession(headers=server.headers, timeout=timeout) as client:
        begin = loop.time()
        for number in range(int(seconds / _INTERVAL)):
            due = begin + number * _INTERVAL
            await asyncio.sleep(due - loop.time())
            try:
                async with client.get(server.url + path) as answer:
                    await answer.read()
                    found.failed += answer.status != 200
            except (aiohttp.ClientError, TimeoutError):
                found.failed += 1
            found.seconds.append(loop.time() - due)
            if loop.time() - begin > seconds + _LONGEST:
                break
    return found
