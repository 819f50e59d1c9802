"""The machine agent's way out as a program of its own, to be killed: journal, outbox and link.

Arguments: server, daemon id, token, journal file, how many events in all. It makes the events
one after the other and prints the id of each once the journal has it; a program that was killed
and starts again goes on behind the newest one.
"""

import asyncio
import sys
from pathlib import Path

from outrider.contract.frames import Snapshot
from outrider.contract.link.outbox import Outbox
from outrider.machine.commands.router import Router
from outrider.machine.link.connection import Link
from outrider.machine.link.journal import Journal
from outrider.machine.settings import Connection
from tests.rig.samples import MACHINE
from tests.service.webhooks.events import agent_event, event_id


async def soon(seconds: float) -> None:
    """Wait a tenth as long as a machine agent would, so that a test is not all waiting."""
    await asyncio.sleep(min(seconds / 10, 0.2))


async def main(server: str, daemon_id: str, token: str, file: str, count: int) -> None:
    """Make the events, then stay connected until killed."""
    journal = Journal(Path(file))
    outbox = Outbox(journal)
    link = Link(
        Connection(server=server, daemon_id=daemon_id, token=token, nickname="crash"),
        outbox=outbox,
        router=Router({}),
        snapshot=lambda: Snapshot(machine=MACHINE, providers=[], sessions=[]),
        sleep=soon,
    )
    stop = asyncio.Event()
    running = asyncio.create_task(link.run(stop))
    for number in range(outbox.last_event(), count):
        outbox.event(agent_event(id=event_id(number)))
        if number % 20 == 19:
            await asyncio.sleep(0.05)
    print("made", flush=True)  # noqa: T201
    await running


server, daemon_id, token, file, count = sys.argv[1:]
asyncio.run(main(server, daemon_id, token, file, int(count)))
