"""How fast events reach webhooks, beside a bare loop that posts the same signed bodies."""

import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final

import httpx
import uvloop
from tests.servers.postgres import Postgres
from tests.servers.server import NotInstalledError

from benchmarks import scripted_machine
from benchmarks.command import Options, main
from benchmarks.processes import (
    LOADING,
    REPOSITORY,
    SERVING,
    BenchmarkError,
    Stage,
    stage,
)
from benchmarks.report import Figure, Report, Section, Target, compared, percentile, plural
from benchmarks.scripted_machine import MACHINE, connected, event, sessions
from benchmarks.service import Installation, Server, enroll, start_receiver
from outrider.cloud.webhooks import event_intake
from outrider.cloud.webhooks.endpoint_limiter import EndpointLimits
from outrider.contract.frames import (
    Acknowledge,
    Event,
    Snapshot,
    decode_from_service,
    encode,
)
from outrider.contract.ids import derived_id
from outrider.contract.link.outbox import Outbox
from outrider.daemon.journal import Journal
from outrider.daemon.link import Link
from outrider.daemon.router import Router
from outrider.daemon.settings import Connection

_ATTEMPTS: Final = (
    b'[{"attempt":1,"statusCode":200,"responseBody":"ok","error":null,'
    b'"startedAt":1750000000000,"durationMs":12}]'
)
_AT_ONCE: Final = 20_000


def _write_history(file: Path, rows: int, before: int) -> None:
    """Add so many deliveries that succeeded, one a second up to `before` (epoch milliseconds).

    They are those of the webhooks that there are, in turns.
    """
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA foreign_keys = ON")
        owned = database.execute("SELECT id, account_id FROM webhooks").fetchall()
        for start in range(0, rows, _AT_ONCE):
            numbers = range(start, min(rows, start + _AT_ONCE))
            made = list(_rows(numbers, rows, before, owned))
            database.executemany(
                "INSERT INTO events (id, account_id, name, body, created_at)"
                " VALUES (:event_id, :account, :event, :body, :at)",
                made,
            )
            database.executemany(
                "INSERT INTO deliveries (id, webhook_id, event_id, event, status, attempt,"
                " attempts, created_at, completed_at, next_attempt_at, claimed_until) VALUES"
                " (:id, :webhook, :event_id, :event, 'succeeded', 1, :attempts, :at, :at, NULL, 0)",
                made,
            )
            database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _rows(
    numbers: range, rows: int, before: int, owned: list[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    for number in numbers:
        at = before - (rows - number) * 1000
        webhook, account = owned[number % len(owned)]
        event_id = derived_id("evt", at, str(number))
        yield {
            "id": derived_id("dlv", at, str(number)),
            "webhook": webhook,
            "account": account,
            "event_id": event_id,
            "event": "agent:generating_completed",
            "attempts": _ATTEMPTS,
            "body": b'{"id":"%b"}' % event_id.encode() + b" " * 350,
            "at": at,
        }


async def _flood(url: str, token: str, count: int) -> float:
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
async def connected_outbox(
    server: str, daemon_id: str, token: str, file: Path
) -> AsyncIterator[Outbox]:
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


_PER_SECOND: Final = 1500
"""About how many deliveries a second to make a run as long as was asked for."""

_MOST_AT_ONCE: Final = 128
_LATENCIES: Final = 100
_OTHERS: Final = 20
_FEW: Final = 1
_MANY: Final = 1000
_HISTORY: Final = 1_000_000

_THROUGHPUT: Final = Target("at least", 0.5, of="ratio")
_LATENCY: Final = Target("at most", 20)
_UNHURT: Final = Target("at most", 1.3, of="ratio")


class Bench:
    """A service with webhooks, the receiver that they lead to, and an enrolled machine."""

    def __init__(self, here: Stage, name: str, database: str | None = None) -> None:
        self._here = here
        self.installation = Installation(here, name, database=database)
        self.database = here.directory / name / "outrider.db"
        self._journals = 0
        self.webhooks = 0
        key = self.installation.new_key()
        self._receiver, self.receiver_url = start_receiver(here)
        self._client = httpx.Client(trust_env=False, timeout=30)
        self._key = key
        self.server: Server
        self.start()
        self.daemon_id, self.token = enroll(self.server, self.installation.new_code())

    def start(self) -> None:
        """Start the service."""
        self.server = self.installation.serve(self._key, SERVING)

    def stop(self) -> None:
        """Stop the service."""
        self.server.program.end()

    def close(self) -> None:
        """End the service and the receiver."""
        self._client.close()
        self.stop()
        self._receiver.end()

    def add_webhooks(self, count: int) -> None:
        """Add webhooks until there are `count`."""
        session = self.server.log_in()
        while self.webhooks < count:
            self.server.add_webhook(session, f"{self.receiver_url}/{self.webhooks}")
            self.webhooks += 1

    @contextmanager
    def hanging_webhook(self) -> Iterator[None]:
        """Add a webhook whose receiver does not answer; delete it at the end."""
        session = self.server.log_in()
        path = self.server.add_webhook(session, f"{self.receiver_url}/hang")
        try:
            yield
        finally:
            self._client.delete(self.server.url + path, headers=session).raise_for_status()

    def throughput(self, deliveries: int) -> tuple[float, float]:
        """Return the deliveries per second, and the service's processor seconds for each."""
        events = max(1, deliveries // self.webhooks)
        expected = self._count() + events * self.webhooks
        cpu = self.server.program.cpu_seconds()
        began = uvloop.run(_flood(self.server.websocket_url, self.token, events))
        self.server.program.wait_until(
            lambda: self._count() >= expected, f"at {expected} deliveries", 120
        )
        seconds = time.perf_counter() - began
        made = events * self.webhooks
        return made / seconds, (self.server.program.cpu_seconds() - cpu) / made

    def baseline(self, deliveries: int) -> tuple[float, float]:
        """Return what `throughput` does, of the bare loop, to the same receiver."""
        at_once = min(EndpointLimits().in_flight_per_webhook * self.webhooks, _MOST_AT_ONCE)
        given = b"\n".join(
            event_intake.agent_body(self.daemon_id, scripted_machine.event(self.daemon_id))
            for _ in range(200)
        )
        settings = {"CPUS": ",".join(map(str, SERVING))} if SERVING else {}
        arguments = [self.receiver_url, str(deliveries), str(at_once)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.programs.bare_deliveries", *arguments],
            cwd=REPOSITORY,
            env=self._here.environment(settings),
            input=given,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise BenchmarkError(f"the baseline failed: {done.stderr.decode()[-2000:]}")
        seconds, cpu = map(float, done.stdout.split())
        return deliveries / seconds, cpu / deliveries

    def latencies(self, count: int) -> list[float]:
        """Return the milliseconds from an agent's event to the receiver's first byte."""
        self._journals += 1
        file = self._here.directory / f"journal-{self._journals}.db"
        return uvloop.run(self._latencies(file, count))

    async def _latencies(self, file: Path, count: int) -> list[float]:
        found = []
        async with (
            connected_outbox(self.server.url, self.daemon_id, self.token, file) as outbox,
            httpx.AsyncClient(trust_env=False) as client,
        ):

            async def receiver(path: str) -> int:
                return int((await client.get(f"{self.receiver_url}/{path}")).text)

            await asyncio.sleep(0.2)
            for number in range(count + 5):
                wanted = await receiver("count") + self.webhooks
                event = scripted_machine.event(self.daemon_id)
                began = time.monotonic_ns()
                outbox.event(event)
                async with asyncio.timeout(30):
                    while await receiver("count") < wanted:  # noqa: ASYNC110
                        await asyncio.sleep(0.005)
                if number >= 5:  # the first ones open connections
                    found.append((await receiver("last") - began) / 1e6)
                await asyncio.sleep(0.02)
        return found

    def _count(self) -> int:
        time.sleep(0.005)
        return int(self._client.get(f"{self.receiver_url}/count").text)


def benchmark(options: Options) -> Report:
    """Measure with one webhook and with many, without a history and with a long one."""
    with stage() as here:
        with closing(Bench(here, "webhooks")) as bench:
            bench.add_webhooks(_OTHERS)
            slow = _slow_section(bench, options)
        with closing(Bench(here, "speed")) as bench:
            sections = [slow, _section(bench, "SQLite, no history", options)]
            options.progress(f"a history of {_HISTORY:,} deliveries is written")
            bench.stop()
            _write_history(bench.database, _HISTORY, time.time_ns() // 1_000_000)
            bench.start()
            title = f"SQLite, {_HISTORY:,} in the history"
            sections.append(_section(bench, title, options))
        sections.append(_on_postgresql(here, options))
    return Report(benchmark="webhooks", sections=sections)


def _on_postgresql(here: Stage, options: Options) -> Section:
    try:
        server = Postgres(fsync="on", full_page_writes="on", autovacuum="on")
    except NotInstalledError as error:
        missing = Figure("not measured", "", note=str(error))
        return Section(title="Webhooks, PostgreSQL", figures=[missing])
    with ExitStack() as running:
        with _off_the_servers_processor():
            running.enter_context(server)
        database = server.create("outrider")
        bench = running.enter_context(closing(Bench(here, "postgresql", database)))
        return _section(bench, "PostgreSQL, no history", options)


@contextmanager
def _off_the_servers_processor() -> Iterator[None]:
    """Start programs in this block on the processors of what loads the service."""
    before = os.sched_getaffinity(0)
    try:
        if LOADING:
            os.sched_setaffinity(0, LOADING)
        yield
    finally:
        os.sched_setaffinity(0, before)


def _slow_section(bench: Bench, options: Options) -> Section:
    """Measure what one receiver that hangs costs the others."""
    bench.throughput(bench.webhooks * 5)  # warm up

    def beside() -> float:
        with bench.hanging_webhook():
            return percentile(bench.latencies(_LATENCIES), 99)

    runs = options.in_turns(
        "a receiver that hangs", beside, lambda: percentile(bench.latencies(_LATENCIES), 99)
    )
    name = f"event to the last of {_OTHERS} others, 99th percentile"
    return Section(
        title="Webhooks: one receiver that hangs, the baseline being without it",
        figures=[compared(name, "ms", runs, float, _UNHURT)],
    )


def _section(bench: Bench, title: str, options: Options) -> Section:
    figures: list[Figure] = []
    for webhooks in (_FEW, _MANY):
        if bench.webhooks <= webhooks:
            bench.add_webhooks(webhooks)
            figures += _figures(bench, options)
    return Section(title=f"Webhooks, {title}", figures=figures)


def _figures(bench: Bench, options: Options) -> list[Figure]:
    deliveries = max(options.seconds * _PER_SECOND, bench.webhooks)
    name = plural(bench.webhooks, "webhook")
    bench.throughput(bench.webhooks)  # warm up
    runs = options.in_turns(
        name, lambda: bench.throughput(deliveries), lambda: bench.baseline(deliveries)
    )
    figures = [
        compared(f"{name}: deliveries", "1/s", runs, lambda run: run[0], _THROUGHPUT),
        compared(f"{name}: processor time", "us/delivery", runs, lambda run: run[1] * 1e6),
    ]
    if bench.webhooks == _FEW:
        options.progress(f"{name}, event to first byte")
        found = bench.latencies(_LATENCIES)
        figures += [
            Figure(
                f"{name}: event to first byte, median",
                "ms",
                [statistics.median(found)],
                target=_LATENCY,
            ),
            Figure(f"{name}: event to first byte, 99th percentile", "ms", [percentile(found, 99)]),
        ]
    return figures


if __name__ == "__main__":
    main({"webhooks": benchmark})
