"""How soon events reach streams, what an idle stream costs, and how fast a client resumes."""

import asyncio
import resource
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Final, cast

import uvloop
from tests.rig.site import new_account

from benchmarks import scripted_machine
from benchmarks.bench import Bench, Sections
from benchmarks.processes import SERVING, Stage
from benchmarks.report import Figure, Section, Target, spread
from benchmarks.service import Installation, Server, new_key
from benchmarks.webhooks import connected_outbox
from outrider.cloud.store.database import Database
from outrider.cloud.webhooks.event_intake import agent_body
from outrider.contract.ids import new_id

_PER_KEY: Final = 10
"""Streams that a credential may have."""

_OPEN: Final = 1000
_EVENTS: Final = 200
_WARM_UP: Final = 10
_IDLE: Final = 10_000
_SPARE_DESCRIPTORS: Final = 500
_HEARTBEATS_SECONDS: Final = 12.0
_STORED: Final = 100_000
_PATIENCE: Final = 60.0
_AT_ONCE: Final = 50

_MEDIAN: Final = Target("at most", 10)
_TAIL: Final = Target("at most", 50)
_STREAM_KILOBYTES: Final = Target("at most", 25)
_RESUMED: Final = Target("at least", 20_000)

_READY: Final = b"stream:ready"
_ID: Final = b"id: 00"
"""The beginning of an event's frame; nothing else of a stream has it."""


def live(bench: Bench) -> Sections:
    """Measure on one node with SQLite."""
    figures: list[Figure] = []
    for title, readers, targets in (
        ("10 of its account", _PER_KEY, (_MEDIAN, _TAIL)),
        ("all of its account", _OPEN, (None, None)),
    ):
        bench.progress(f"live: {_OPEN:,} streams, {title}")
        service = _Service(bench.stage, f"delay-{readers}")
        keys = service.new_keys(readers, of_others=False)
        keys += service.new_keys(_OPEN - readers, of_others=True)
        figures += spread(title, "ms", uvloop.run(service.delays(keys, readers)), *targets)
        service.server.program.end()
    yield Section(f"Event on the machine to the last client, {_OPEN:,} streams open", figures)
    yield _memory(bench)
    service = _Service(bench.stage, "log")
    service.server.program.end()
    service.store(_STORED)
    service.start()
    runs = [
        uvloop.run(service.resumed_per_second(_STORED))
        for _ in bench.each_round("live: resumption")
    ]
    title = f"{_STORED:,} stored events, read by resuming"
    yield Section(title, [Figure("events", "1/s", runs, target=_RESUMED)])


def _memory(bench: Bench) -> Section:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(_IDLE, (hard - _SPARE_DESCRIPTORS) // _PER_KEY * _PER_KEY)
    bench.progress(f"live: {count:,} idle streams")
    service = _Service(bench.stage, "memory")
    kilobytes = uvloop.run(service.idle_kilobytes(service.new_keys(count, of_others=True)))
    service.server.program.end()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    figure = Figure("memory of the service for each", "KB", [kilobytes], target=_STREAM_KILOBYTES)
    return Section(f"{count:,} idle streams", [figure])


class _Service:
    """A service, with an account for a machine and keys for as many streams as are opened."""

    def __init__(self, here: Stage, name: str) -> None:
        self._here = here
        self._installation = Installation(here, name)
        self._account, self._key = self._installation.new_account()
        self._code = self._installation.new_code()
        self.server: Server
        self.start()

    def start(self) -> None:
        """Start the service."""
        self.server = self._installation.serve(self._key, SERVING)

    def new_keys(self, count: int, *, of_others: bool) -> list[str]:
        """Return the keys of so many streams, of the machine's account or each of a new one."""

        async def create(database: Database) -> list[str]:
            keys = []
            for _ in range(count // _PER_KEY):
                account = (
                    (await new_account(database, "enterprise")).id if of_others else self._account
                )
                keys += [await new_key(database, account)] * _PER_KEY
            return keys

        return self._installation.in_database(create)

    async def delays(self, keys: list[str], readers: int) -> list[float]:
        """Return the milliseconds from each event on the machine to the last of its readers.

        Args:
            keys: of the streams that are open; the first `readers` are of the machine's account.
        """
        found = []
        daemon_id, token = self.server.enroll(self._code)
        file = self._here.directory / f"journal-{daemon_id}.db"
        async with (
            connected_outbox(self.server.url, daemon_id, token, file) as outbox,
            _reading(self.server.url, keys) as streams,
        ):
            mine = streams[:readers]
            for number in range(_WARM_UP + _EVENTS):
                before = [one.events for one in mine]
                event = scripted_machine.event(daemon_id)
                began = time.perf_counter()
                outbox.event(event)
                for one, events in zip(mine, before, strict=True):
                    await one.has(events + 1)
                if number >= _WARM_UP:
                    found.append((max(one.last_at for one in mine) - began) * 1e3)
                await asyncio.sleep(0.02)
        return found

    async def idle_kilobytes(self, keys: list[str]) -> float:
        """Return the service's memory for each of so many streams, after a heartbeat."""
        async with _reading(self.server.url, [self._key]):
            pass  # what the first stream loads is not counted
        before, _ = self.server.program.memory()
        async with _reading(self.server.url, keys):
            await asyncio.sleep(_HEARTBEATS_SECONDS)
            after, _ = self.server.program.memory()
        return (after - before) / len(keys) * 1e6 / 1024

    def store(self, count: int) -> None:
        """Put so many events into the log of the machine's account; the service does not run."""
        now = time.time_ns() // 1_000_000
        body = agent_body("machine_1", scripted_machine.event("machine_1"))
        name, account = "agent:generating_completed", self._account
        rows = ((new_id("evt"), account, name, body, now, n) for n in range(1, count + 1))
        file = self._installation.directory / "outrider.db"
        with closing(sqlite3.connect(file)) as database, database:
            database.executemany(
                "INSERT INTO events (id, account_id, name, body, created_at, cursor)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            database.execute("UPDATE accounts SET event_cursor = ? WHERE id = ?", (count, account))

    async def resumed_per_second(self, count: int) -> float:
        """Return how many stored events a client reads per second."""
        began = time.perf_counter()
        async with _reading(self.server.url, [self._key], after="0") as (stream,):
            await stream.has(count)
        return count / (stream.last_at - began)


class _Reader(asyncio.Protocol):
    """A connection that requests a stream, and counts the events: ten thousand fit in a process.

    Attributes:
        opened: done when the stream has begun.
        events: the number of events that have arrived.
        last_at: `time.perf_counter` of the last of them.
    """

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._head = self._end = b""
        self.transport: asyncio.Transport
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self.events = 0
        self.last_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has no such base
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the events."""
        now = time.perf_counter()
        if not self.opened.done():
            self._head += data
            if not self._head.startswith(b"HTTP/1.1 200"):
                self.opened.set_exception(ConnectionError(self._head.decode(errors="replace")))
            elif _READY in self._head:
                self.opened.set_result(None)
                self._head = b""
        data = self._end + data
        self._end = data[-len(_ID) + 1 :]
        if count := data.count(_ID):
            self.events += count
            self.last_at = now
            self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Report a stream that ended before it began."""
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("closed"))

    async def has(self, events: int) -> None:
        """Wait until so many events have arrived."""
        async with asyncio.timeout(_PATIENCE):
            while self.events < events:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def _reading(
    url: str, keys: Sequence[str], after: str | None = None
) -> AsyncIterator[list[_Reader]]:
    """Open a stream with each of the keys; close them at the end."""
    host, _, port = url.removeprefix("http://").partition(":")
    more = "" if after is None else f"Last-Event-ID: {after}\r\n"
    readers: list[_Reader] = []

    async def opened(key: str) -> _Reader:
        request = (
            f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {key}\r\nAccept: text/event-stream\r\n{more}\r\n"
        )
        loop = asyncio.get_running_loop()
        _, reader = await loop.create_connection(lambda: _Reader(request.encode()), host, int(port))
        await reader.opened
        return reader

    try:
        async with asyncio.timeout(_PATIENCE + len(keys) / 100):
            for start in range(0, len(keys), _AT_ONCE):
                opening = [opened(key) for key in keys[start : start + _AT_ONCE]]
                readers += await asyncio.gather(*opening)
        yield readers
    finally:
        for reader in readers:
            reader.transport.close()
