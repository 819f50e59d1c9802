"""How fast events reach webhooks, beside a bare loop that posts the same signed bodies."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final

import uvloop
from tests.rig.samples import MACHINE
from tests.servers.postgres import Postgres
from tests.servers.server import NotInstalledError

from benchmarks import scripted_machine
from benchmarks.bench import Bench, Sections
from benchmarks.processes import SERVING, Stage, on_loading_processors
from benchmarks.report import (
    Figure,
    Measure,
    Section,
    Target,
    not_measured,
    plural,
    spread,
)
from benchmarks.service import Installation, start_receiver
from outrider.contract.frames import Acknowledge, Event, Snapshot, decode_from_service, encode
from outrider.contract.ids import new_id
from outrider.contract.limits import EVENT_BURST
from outrider.contract.link.outbox import Outbox
from outrider.machine.commands.router import Router
from outrider.machine.link.connection import Link
from outrider.machine.link.journal import Journal
from outrider.machine.settings import Connection
from outrider.service.webhooks.delivery_queue import DeliveryLimits
from outrider.service.webhooks.event_intake import agent_body

_PER_SECOND: Final = 1500
"""About how many deliveries a second to make a run as long as was asked for."""

_MOST_AT_ONCE: Final = 128
_LATENCIES: Final = 100
_WARM_UP: Final = 5
_FEW: Final = 1
_MANY: Final = 1000

_LATENCY: Final = Target("at most", 20)
_MEASURES: Final = (
    Measure("deliveries", "1/s", lambda run: run[0], Target("at least", 0.45, of="ratio")),
    Measure("processor time", "us/delivery", lambda run: run[1] * 1e6),
)


def webhooks(bench: Bench) -> Sections:
    """Measure with one webhook and with many, on SQLite and on PostgreSQL."""
    with closing(_Service(bench.stage, "speed")) as service:
        figures = [*_rates(service, _FEW, bench), *_rates(service, _MANY, bench)]
        yield Section("Webhooks, SQLite", figures)
    try:
        postgres = Postgres(fsync="on", full_page_writes="on", autovacuum="on")
    except NotInstalledError as error:
        yield not_measured("Webhooks, PostgreSQL", str(error))
        return
    with ExitStack() as running:
        with on_loading_processors():
            running.enter_context(postgres)
        settings = {"OUTRIDER_DATABASE_URL": postgres.create("outrider")}
        service = running.enter_context(closing(_Service(bench.stage, "postgresql", settings)))
        figures = [*_rates(service, _FEW, bench), *_rates(service, _MANY, bench)]
        yield Section("Webhooks, PostgreSQL", figures)


def _rates(service: "_Service", webhooks: int, bench: Bench) -> list[Figure]:
    service.add_webhooks(webhooks)
    deliveries = max(bench.seconds * _PER_SECOND, webhooks)
    name = plural(webhooks, "webhook")
    service.rate(webhooks)  # warm up
    runs = bench.in_turns(
        name, lambda: service.rate(deliveries), lambda: service.bare_rate(deliveries)
    )
    figures = [measure.of(runs, f", {name}") for measure in _MEASURES]
    if webhooks == _FEW:
        bench.progress(f"{name}, event to first byte")
        figures += spread(f"event to first byte, {name}", "ms", service.latencies(), _LATENCY)
    return figures


class _Service(Installation):
    """A service with webhooks, and the receiver that they lead to."""

    def __init__(self, stage: Stage, name: str, settings: dict[str, str] | None = None) -> None:
        super().__init__(stage, name, settings=settings)
        _, self._key = self.new_account()
        self.receiver = start_receiver(stage)
        self.webhooks = 0
        self.start()

    def start(self) -> None:
        """Start the service."""
        self.server = self.serve(self._key, SERVING)

    def close(self) -> None:
        """End the service and the receiver."""
        self.server.program.end()
        self.receiver.program.end()

    def add_webhooks(self, count: int) -> None:
        """Add webhooks until there are `count`."""
        session = self.server.log_in()
        while self.webhooks < count:
            self.server.add_webhook(session, f"{self.receiver.url}/{self.webhooks}")
            self.webhooks += 1

    def rate(self, deliveries: int) -> tuple[float, float]:
        """Return the deliveries per second, and the service's processor seconds for each.

        Each run has a new machine: one may send 10,000 events at once, then 100 a second.
        """
        events = min(EVENT_BURST, max(1, deliveries // self.webhooks))
        program, (_, token) = self.server.program, self._enroll()
        made = events * self.webhooks
        expected = self._count() + made
        cpu = program.cpu_seconds()
        began = uvloop.run(_flood(self.server.websocket_url, token, events))
        program.wait_until(lambda: self._count() >= expected, f"at {expected} deliveries", 120)
        seconds = time.perf_counter() - began
        return made / seconds, (program.cpu_seconds() - cpu) / made

    def bare_rate(self, deliveries: int) -> tuple[float, float]:
        """Return what `rate` does, of the bare loop, to the same receiver."""
        at_once = min(DeliveryLimits().in_flight_per_webhook * self.webhooks, _MOST_AT_ONCE)
        machine, bodies = new_id("machine"), self.stage.directory / "bodies"
        events = (scripted_machine.event(machine) for _ in range(200))
        bodies.write_bytes(b"\n".join(agent_body(machine, event) for event in events))
        arguments = [self.receiver.url, str(deliveries), str(at_once), str(bodies)]
        module = ["-m", "benchmarks.programs.bare_deliveries"]
        program = self.stage.start("bare deliveries", [*module, *arguments], cpus=SERVING)
        program.wait_for_success(120)
        seconds, cpu = map(float, program.log.read_text().split())
        return deliveries / seconds, cpu / deliveries

    def latencies(self) -> list[float]:
        """Return the milliseconds from an agent's event to the receiver's first byte."""
        return uvloop.run(self._latencies(*self._enroll()))

    async def _latencies(self, daemon_id: str, token: str) -> list[float]:
        found = []
        file = self.stage.directory / f"journal-{daemon_id}.db"
        async with connected_outbox(self.server.url, daemon_id, token, file) as outbox:
            await asyncio.sleep(0.2)
            for _ in range(_WARM_UP + _LATENCIES):
                wanted = self._count() + self.webhooks
                event = scripted_machine.event(daemon_id)
                began = time.monotonic_ns()
                outbox.event(event)
                async with asyncio.timeout(30):
                    while await asyncio.to_thread(self._count) < wanted:
                        pass
                found.append((int(self.receiver.get("/last")) - began) / 1e6)
                await asyncio.sleep(0.02)
        return found[_WARM_UP:]  # the first ones open connections

    def _enroll(self) -> tuple[str, str]:
        """Return the id and the token of a new machine."""
        return self.server.enroll(self.new_code())

    def _count(self) -> int:
        time.sleep(0.01)
        return int(self.receiver.get("/count"))


async def _flood(url: str, token: str, count: int) -> float:
    """Send `count` events as fast as the service reads them; return when the first was sent.

    That is `time.perf_counter`'s. Returns once the service has acknowledged them all.
    """
    async with scripted_machine.connected(url, token) as (socket, welcome):
        last = welcome.acknowledged + count
        frames = [
            encode(Event(seq=seq, event=scripted_machine.event(welcome.daemon_id)))
            for seq in range(welcome.acknowledged + 1, last + 1)
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
async def connected_outbox(
    server: str, daemon_id: str, token: str, file: Path
) -> AsyncIterator[Outbox]:
    """Provide the outbox of a connected machine agent."""
    outbox = Outbox(journal := Journal(file))
    connected, stop = asyncio.Event(), asyncio.Event()
    link = Link(
        Connection(server=server, daemon_id=daemon_id, token=token, nickname="bench"),
        outbox=outbox,
        router=Router({}),
        snapshot=lambda: Snapshot(
            machine=MACHINE, providers=[], sessions=scripted_machine.sessions()
        ),
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
