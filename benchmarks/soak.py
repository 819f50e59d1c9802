"""One node under a mixed load with faults for half an hour: what grows is a leak."""

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx
import msgspec
import psutil

from benchmarks.clients import Clients
from benchmarks.command import Options, main
from benchmarks.fleet import PER_ACCOUNT, Fleet, started
from benchmarks.processes import BenchmarkError, stage
from benchmarks.report import Curve, Figure, Report, Section, Target
from benchmarks.service import EMAIL, PASSWORD, Server, start_receiver
from benchmarks.simulator.control import FleetStatus, GetStatus, InjectFaults, SetTurnRate
from benchmarks.simulator.machine import Enrolled

REQUESTS_PER_SECOND: Final = 40

_AT_ONCE: Final = 100
_CANCEL_SECONDS: Final = 0.002
_LONGEST: Final = 70.0


class Load(Clients):
    """Clients of every kind under way, for the length of a context."""

    def __init__(self, server: Server, machines: list[Enrolled]) -> None:
        super().__init__(server.headers, _LONGEST)
        self._url = f"{server.url}/api/v1"
        self._machines = machines

    async def work(self) -> None:
        """Make random requests at random times."""
        kinds: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (60, self._status),
            (10, self._list),
            (10, self._command),
            (10, self._repeated_command),
            (1, self._session),
            (1, self._webhook),
            (1, self._wrong_key),
            (1, self._not_found),
            (1, self._cancelled),
        ]
        weights, calls = zip(*kinds, strict=True)
        limit = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while not self.is_ending:
                await asyncio.sleep(random.expovariate(REQUESTS_PER_SECOND))
                await limit.acquire()
                (call,) = random.choices(calls, weights)
                task = group.create_task(call())
                task.add_done_callback(lambda _: limit.release())

    async def _status(self) -> None:
        path = f"/shortcuts/{self._machine()}:cli:claude-code/status"
        await self._send("status", "GET", path)

    async def _list(self) -> None:
        await self._send("list", "GET", "/daemons")

    async def _command(self) -> None:
        body = {"type": "read_chat", "payload": {}}
        await self._send("command", "POST", f"/daemons/{self._machine()}/command", json=body)

    async def _repeated_command(self) -> None:
        headers = {"Idempotency-Key": f"{random.getrandbits(64):x}"}
        path, body = f"/daemons/{self._machine()}/command", {"type": "read_chat", "payload": {}}
        for _ in range(2):
            await self._send("repeated command", "POST", path, json=body, headers=headers)

    async def _session(self) -> None:
        headers = await self._logged_in()
        if headers:
            await self._send("account", "GET", "/account", headers=headers)
            await self._send("logout", "POST", "/auth/logout", headers=headers)

    async def _webhook(self) -> None:
        headers = await self._logged_in()
        if headers:
            body = {"url": "http://127.0.0.1:9/nobody", "events": ["agent:error"]}
            made = await self._send("webhook made", "POST", "/webhooks", json=body, headers=headers)
            path = f"/webhooks/{made.get('id')}"
            await self._send("webhook deleted", "DELETE", path, headers=headers)
            await self._send("logout", "POST", "/auth/logout", headers=headers)

    async def _logged_in(self) -> dict[str, str]:
        body = {"email": EMAIL, "password": PASSWORD}
        token = (await self._send("login", "POST", "/auth/login", json=body)).get("token")
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _wrong_key(self) -> None:
        headers = {"Authorization": f"Bearer ork_{random.getrandbits(128):032x}"}
        await self._send("wrong key", "GET", "/daemons", headers=headers)

    async def _not_found(self) -> None:
        await self._send("not found", "GET", f"/{random.getrandbits(64):x}")

    async def _cancelled(self) -> None:
        path = f"/shortcuts/{self._machine()}:cli:claude-code/status"
        timeout = aiohttp.ClientTimeout(total=_CANCEL_SECONDS)
        await self._send("cancelled", "GET", path, timeout=timeout)

    def _machine(self) -> str:
        return random.choice(self._machines).daemon_id

    async def _send(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        return await self.request(kind, method, self._url + path, **options)


_TASKS = "outrider_tasks "


class Sample(msgspec.Struct, frozen=True):
    """Figures of one moment; `seconds` is its `time.monotonic`."""

    seconds: float
    memory: float
    tasks: float
    sockets: float
    files: float


class Sampler:
    """Reads the figures of a node that stores in a SQLite file."""

    def __init__(self, server: Server, database: Path) -> None:
        self._server = server
        self._process = psutil.Process(server.program.pid)
        self._database = database

    def take(self) -> Sample:
        """Return the figures of now; memory is in bytes.

        Raises:
            BenchmarkError: the node has ended.
        """
        self._server.program.check()
        metrics = self._server.get("/metrics").decode()
        tasks = next(line for line in metrics.splitlines() if line.startswith(_TASKS))
        return Sample(
            time.monotonic(),
            self._process.memory_info().rss,
            float(tasks.removeprefix(_TASKS)),
            len(self._process.net_connections()),
            self._process.num_fds(),
        )

    def rows(self) -> dict[str, int]:
        """Return the number of rows of every table."""
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            names = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            ).fetchall()
            return {
                name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for (name,) in names
                if not name.startswith(("sqlite_", "alembic_"))
            }


def typical(samples: Sequence[Sample]) -> Sample:
    """Return the medians of these samples, of the memory the least.

    Checking a password takes 64 MiB for a moment, so the median of the memory says how many of them
    were under way. What leaks is in the least too.

    Raises:
        BenchmarkError: there are none.
    """
    if not samples:
        raise BenchmarkError("there are no samples of a minute: the computer is too busy")
    medians = Sample(
        *(
            statistics.median(getattr(sample, field) for sample in samples)
            for field in Sample.__struct_fields__
        )
    )
    return msgspec.structs.replace(medians, memory=min(sample.memory for sample in samples))


_MACHINES: Final = 2_000
_SAMPLE_SECONDS: Final = 5.0
_EARLY_MINUTES: Final = 5
_TURN_SECONDS: Final = 60
"""A machine's agent begins or ends a turn that often."""

_FAULTS: Final = 0.01
"""The share of machines whose socket drops in a minute, and of answers that are late."""

_LATE_SECONDS: Final = 5.0
_BACK_SECONDS: Final = 60.0
_MEGABYTE: Final = 1e6

_NO_GROWTH: Final = Target("at most", 1.1, of="ratio")
_NONE: Final = Target("at most", 0)

_HELD: Final[tuple[tuple[str, str, Callable[[Sample], float]], ...]] = (
    ("least memory (RSS)", "MB", lambda sample: sample.memory / _MEGABYTE),
    ("asyncio tasks", "", lambda sample: sample.tasks),
    ("sockets", "", lambda sample: sample.sockets),
    ("open files", "", lambda sample: sample.files),
)


def benchmark(options: Options) -> Report:
    """Run for `options.minutes`; the early minute is the sixth, of a short run the second."""
    machines = options.machines or _MACHINES
    early = min(_EARLY_MINUTES, options.minutes - 2)
    with stage() as here:
        options.progress(f"{machines:,} machines are enrolled and connect")
        server, fleet = started(here, machines)
        receiver, receiver_url = start_receiver(here)
        session = server.log_in()
        for path in ("well", "flaky"):  # the second one fails now and then
            server.add_webhook(session, f"{receiver_url}/{path}")
        fleet.connect(machines)
        fleet.simulator.send(SetTurnRate(machines / _TURN_SECONDS))
        fleet.simulator.send(InjectFaults(machines * _FAULTS / 60, _FAULTS, _LATE_SECONDS))
        sampler = Sampler(server, here.directory / "fleet" / "outrider.db")
        with Load(server, fleet.machines[:PER_ACCOUNT]) as load:

            def check() -> None:
                load.check()
                receiver.check()

            minutes, rows = _run(options.minutes, sampler, check, options)
        fleet.simulator.send(InjectFaults(0, 0, 0))
        fleet.simulator.send(SetTurnRate(0))
        status = _settled(fleet, machines)
        deliveries = int(httpx.get(f"{receiver_url}/count", trust_env=False).text)
        fleet.end()
    return Report(
        benchmark="soak",
        sections=[
            Section(
                title=f"{machines:,} machines: the last of {options.minutes} minutes, "
                f"the baseline being minute {early + 1}",
                figures=[
                    Figure(
                        name,
                        unit,
                        [of(minutes[-1])],
                        baseline=[of(minutes[early])],
                        target=_NO_GROWTH,
                    )
                    for name, unit, of in _HELD
                ],
            ),
            Section(
                title="Rows; events, deliveries, audit and usage are history, kept by age",
                figures=[
                    Figure(table, "", [count], baseline=[rows[early][table]])
                    for table, count in rows[-1].items()
                ],
            ),
            Section(title="What happened", figures=_happened(load, status, deliveries)),
        ],
        curves=[
            Curve(
                title="Each minute: the medians, of the memory the least",
                columns=["minute", *(f"{name} {unit}".strip() for name, unit, _ in _HELD), "rows"],
                rows=[
                    [number + 1.0, *(of(sample) for _, _, of in _HELD), sum(counts.values())]
                    for number, (sample, counts) in enumerate(zip(minutes, rows, strict=True))
                ],
            )
        ],
    )


def _run(
    length: int, sampler: Sampler, check: Callable[[], None], options: Options
) -> tuple[list[Sample], list[dict[str, int]]]:
    """Return for each minute what is typical of its samples, and the rows at its end."""
    minutes: list[Sample] = []
    rows: list[dict[str, int]] = []
    begin = time.monotonic()
    for number in range(length):
        samples: list[Sample] = []
        while time.monotonic() < begin + 60 * (number + 1):
            time.sleep(_SAMPLE_SECONDS)
            samples.append(sampler.take())
            check()
        minutes.append(typical(samples))
        rows.append(sampler.rows())
        held = ", ".join(f"{name} {of(minutes[-1]):.0f}" for name, _, of in _HELD)
        options.progress(f"minute {number + 1} of {length}: {held}")
    return minutes, rows


def _settled(fleet: Fleet, machines: int) -> FleetStatus:
    """Wait until the machines are back and every event is stored; return how the fleet is.

    Raises:
        BenchmarkError: they are not within `_BACK_SECONDS`.
    """
    deadline = time.monotonic() + _BACK_SECONDS
    while True:
        status = fleet.simulator.send(GetStatus())
        if status.connected == machines and not status.waiting_events:
            return status
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the machines are not back, or events are not stored: {status}")
        time.sleep(0.1)


def _happened(load: Load, status: FleetStatus, deliveries: int) -> list[Figure]:
    server_errors = sum(
        count for outcome, count in load.outcomes.items() if outcome.endswith((": 500", ": 502"))
    )
    counts = {
        "sockets dropped": sum(status.closed.values()),
        "machines that came back": status.reconnected,
        "commands answered by machines": status.answered,
        "of them late": status.delayed,
        "webhook attempts received": deliveries,
    }
    return [
        Figure("requests answered with 500", "", [server_errors], target=_NONE),
        Figure("machines refused for good", "", [status.refused], target=_NONE),
        *(Figure(name, "", [count]) for name, count in counts.items()),
        *(
            Figure(f"requests, {outcome}", "", [count])
            for outcome, count in sorted(load.outcomes.items())
        ),
    ]


if __name__ == "__main__":
    main({"soak": benchmark})
