"""The machine that sends an agent's events: many at once, or one at a time.

One at a time they pass through the real machine agent's journal, outbox and link.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.scripted_machine import MACHINE, connected, event, sessions
from outrider.contract.frames import (
    Acknowledge,
    Event,
    Snapshot,
    decode_from_service,
    encode,
)
from outrider.contract.link.outbox import Outbox
from outrider.daemon.journal import Journal
from outrider.daemon.link import Link
from outrider.daemon.router import Router
from outrider.daemon.settings import Connection


async def flood(url: str, token: str, count: int) -> float:
    """Send `count` events as fast as the service reads them; return when the first was sent.

    That is `time.perf_counter`'s. Returns once the service has acknowledged them all.
    """
    async with connected(url, token) as (socket, welcome):
        first = welcome.acknowledged + 1
        last = welcome.acknowledged + count
        frames = [
            encode(Event(seq=seq, event=event(welcome.daemon_id))) for seq in range(first, last + 1)
        ]
        began = time.perf_counter()

        async def send() -> None:
            for frame in frames:
                await socket.send(frame, text=True)

        sending = asyncio.create_task(send())
        async for data in socket:
            frame = decode_from_service(data)
            if isinstance(frame, Acknowledge) and frame.seq == last:
                break
        await sending
        return began


@asynccontextmanager
async def outbox(server: str, daemon_id: str, token: str, file: Path) -> AsyncIterator[Outbox]:
    """Provide the outbox of a connected machine agent."""
    journal = Journal(file)
    outbox = Outbox(journal)
    connected, stop = asyncio.Event(), asyncio.Event()
    link = Link(
        Connection(server=server, daemon_id=daemon_id, token=token, nickname="bench"),
        outbox=outbox,
        router=Router({}),
        snapshot=lambda: Snapshot(machine=MACHINE, providers=[], sessions=sessions()),
        on_connected=connected.set,
    )
    running = asyncio.create_task(link.run(stop))
    try:
        async with asyncio.timeout(20):
            await connected.wait()
        yield outbox
    finally:
        stop.set()
        await running
        journal.close()
