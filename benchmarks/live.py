"""How soon events reach streams, what an idle stream costs, and how fast a client resumes."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

import uvloop
from sqlalchemy import insert, update
from tests.rig.site import new_account
from tests.rig.waiting import eventually

from benchmarks import scripted_machine
from benchmarks.bench import Bench, Sections
from benchmarks.processes import MEGABYTE, SERVING
from benchmarks.report import Figure, Section, Target, spread
from benchmarks.service import Installation, Server, new_key
from benchmarks.webhooks import connected_outbox
from outrider.contract.ids import new_id
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.webhooks.event_intake import agent_body

_PER_KEY: Final = 10
"""Streams that a credential may have."""

_OPEN: Final = 1000
_EVENTS: Final = 200
_WARM_UP: Final = 10
_IDLE: Final = 10_000
_SPARE_DESCRIPTORS: Final = 500
_HEARTBEATS_SECONDS: Final = 12.0
_STORED: Final = 100_000
_TIMEOUT: Final = 60.0
_AT_ONCE: Final = 50

_MEDIAN: Final = Target("at most", 10)
_TAIL: Final = Target("at most", 50)
_STREAM_KILOBYTES: Final = Target("at most", 40)
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
        installation = Installation(bench.stage, f"delay-{readers}")
        account, key = installation.new_account()
        keys = _new_keys(installation, readers, account) + _new_keys(installation, _OPEN - readers)
        server = installation.serve(key, SERVING)
        machine = server.enroll(installation.new_code())
        journal = installation.directory / "journal.db"
        delays = _delays(server.url, machine, journal, keys, readers)
        figures += spread(title, "ms", uvloop.run(delays), *targets)
        server.program.end()
    yield Section(f"Event on the machine to the last client, {_OPEN:,} streams open", figures)
    yield _memory(bench)
    installation = Installation(bench.stage, "log")
    account, key = installation.new_account()
    installation.in_database(partial(_store_events, account))
    server = installation.serve(key, SERVING)
    runs = [uvloop.run(_resumed_per_second(server)) for _ in bench.each_round("live: resumption")]
    title = f"{_STORED:,} stored events, read by resuming"
    yield Section(title, [Figure("events", "1/s", runs, target=_RESUMED)])


def _new_keys(installation: Installation, streams: int, account: str | None = None) -> list[str]:
    """Return a key for each of so many streams, of this account, or of a new one for each key."""

    async def create(database: Database) -> list[str]:
        keys = []
        for _ in range(streams // _PER_KEY):
            owner = account or (await new_account(database, "enterprise")).id
            keys += [await new_key(database, owner)] * _PER_KEY
        return keys

    return installation.in_database(create)


async def _delays(
    url: str, machine: tuple[str, str], journal: Path, keys: list[str], readers: int
) -> list[float]:
    """Return the milliseconds from each event on a machine to the last of its readers.

    Args:
        machine: its daemon id and its token.
        keys: of the streams that are open; the first `readers` are of the machine's account.
    """
    found = []
    async with (
        connected_outbox(url, *machine, journal) as outbox,
        _reading(url, keys) as streams,
    ):
        mine = streams[:readers]
        for number in range(_WARM_UP + _EVENTS):
            wanted = [stream.events + 1 for stream in mine]
            event = scripted_machine.event(machine[0])
            began = time.perf_counter()
            outbox.event(event)
            for stream, events in zip(mine, wanted, strict=True):
                await stream.has(events)
            if number >= _WARM_UP:
                found.append((max(stream.last_at for stream in mine) - began) * 1e3)
            await asyncio.sleep(0.02)
    return found


def _memory(bench: Bench) -> Section:
    """Measure the service's memory for each of many idle streams, after a heartbeat."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(_IDLE, (hard - _SPARE_DESCRIPTORS) // _PER_KEY * _PER_KEY)
    bench.progress(f"live: {count:,} idle streams")
    installation = Installation(bench.stage, "memory")
    _, key = installation.new_account()
    keys = _new_keys(installation, count)
    server = installation.serve(key, SERVING)

    async def growth() -> float:
        async with _reading(server.url, [key]):
            pass  # what the first stream loads is not counted
        before, _ = server.program.memory()
        async with _reading(server.url, keys):
            await asyncio.sleep(_HEARTBEATS_SECONDS)
            after, _ = server.program.memory()
        return after - before

    kilobytes = uvloop.run(growth()) / count * MEGABYTE / 1024
    server.program.end()
    figure = Figure("memory of the service for each", "KB", [kilobytes], target=_STREAM_KILOBYTES)
    return Section(f"{count:,} idle streams", [figure])


async def _store_events(account: str, database: Database) -> None:
    """Put events into the log of an account."""
    now = int(time.time() * 1000)
    row = {
        "account_id": account,
        "name": "agent:generating_completed",
        "body": agent_body("machine_1", scripted_machine.event("machine_1")),
        "created_at": now,
    }
    rows = [row | {"id": new_id("evt"), "cursor": number} for number in range(1, _STORED + 1)]
    of_account = tables.accounts.c.id == account
    async with database.begin() as transaction:
        await transaction.execute(insert(tables.events), rows)
        await transaction.execute(
            update(tables.accounts).where(of_account).values(event_cursor=_STORED)
        )


async def _resumed_per_second(server: Server) -> float:
    """Return how many stored events a client reads per second."""
    began = time.perf_counter()
    async with _reading(server.url, [server.key], after="0") as (stream,):
        await stream.has(_STORED)
    return _STORED / (stream.last_at - began)


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

    def connection_lost(self, error: Exception | None) -> None:
        """Report a stream that ended before it began."""
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("closed"))

    async def has(self, events: int) -> None:
        """Wait until so many events have arrived."""
        await eventually(lambda: self.events >= events, _TIMEOUT)


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
        async with asyncio.timeout(_TIMEOUT + len(keys) / 100):
            for start in range(0, len(keys), _AT_ONCE):
                opening = [opened(key) for key in keys[start : start + _AT_ONCE]]
                readers += await asyncio.gather(*opening)
        yield readers
    finally:
        for reader in readers:
            reader.transport.close()
