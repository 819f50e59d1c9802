"""The bare loop: posts signed bodies with aiohttp, as many at a time as the service does.

Run as `python -m benchmarks.programs.bare_deliveries URL DELIVERIES AT_ONCE BODIES`. `BODIES` is a
file with the bodies, one JSON object a line, used over and over. It prints the seconds that it
took, and those of them in which it had the processor.
"""

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import uvloop

from outrider.contract import signatures

_SECRET: Final = "whsec_benchmark"


async def run(url: str, deliveries: int, at_once: int, bodies: list[bytes]) -> tuple[float, float]:
    """Return the seconds that the deliveries took, and the processor's seconds."""
    left = iter(range(deliveries))
    source = itertools.cycle(bodies)

    async def post(session: aiohttp.ClientSession) -> None:
        for number in left:
            body = next(source)
            timestamp = time.time_ns() // 1_000_000
            headers = {
                signatures.SIGNATURE_HEADER: signatures.header([_SECRET], timestamp, body),
                signatures.EVENT_HEADER: "agent:generating_started",
                signatures.DELIVERY_HEADER: f"dlv_{number:026d}",
                signatures.ATTEMPT_HEADER: "1",
                "Content-Type": "application/json",
            }
            async with session.post(url, data=body, headers=headers) as response:
                assert response.status == 200
                await response.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(post(session) for _ in range(at_once)))
        return time.perf_counter() - began, time.process_time() - cpu


if __name__ == "__main__":
    url, deliveries, at_once, file = sys.argv[1:]
    bodies = Path(file).read_bytes().splitlines()
    print(*uvloop.run(run(url, int(deliveries), int(at_once), bodies)))
