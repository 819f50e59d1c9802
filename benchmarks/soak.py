"""One node under a mixed load with faults for half an hour: what grows is a leak."""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import aiohttp
import msgspec
from sqlalchemy import func, select

from benchmarks.clients import Clients
from benchmarks.command import Options
from benchmarks.fleet import PER_ACCOUNT, Fleet, started
from benchmarks.processes import BenchmarkError, stage
from benchmarks.report import NONE, Curve, Figure, Report, Section, Target, counted
from benchmarks.service import EMAIL, PASSWORD, Server, start_receiver
from benchmarks.simulator import Enrolled, FleetStatus, Order
from outrider.cloud.store.database import Database
from outrider.cloud.store.tables import metadata

REQUESTS_PER_SECOND: Final = 40

_AT_ONCE: Final = 100
_CANCEL_SECONDS: Final = 0.002
_LONGEST: Final = 70.0
_READ_CHAT: Final = {"type": "read_chat", "payload": {}}


class Load(Clients):
    """Clients of every kind under way, for the length of a context."""

    def __init__(self, server: Server, machines: list[Enrolled]) -> None:
        super().__init__(server, _LONGEST)
        self._url = f"{server.url}/api/v1"
        self._machines = machines

    async def work(self) -> None:
        """Make random requests at random times."""
        kinds: list[tuple[float, Callable[[], Coroutine[Any, Any, object]]]] = [
            (60, self._status),
            (10, lambda: self._send("list", "GET", "/daemons")),
            (10, lambda: self._send("command", "POST", self._command, json=_READ_CHAT)),
            (10, self._repeated_command),
            (1, self._session),
            (1, self._webhook),
            (1, self._wrong_key),
            (1, lambda: self._send("not found", "GET", f"/{random.getrandbits(64):x}")),
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

    @property
    def _machine(self) -> str:
        return random.choice(self._machines).daemon_id

    @property
    def _command(self) -> str:
        return f"/daemons/{self._machine}/command"

    async def _status(self, kind: str = "status", **options: Any) -> None:
        path = f"/shortcuts/{self._machine}:cli:claude-code/status"
        await self._send(kind, "GET", path, **options)

    async def _cancelled(self) -> None:
        await self._status("cancelled", timeout=aiohttp.ClientTimeout(total=_CANCEL_SECONDS))

    async def _repeated_command(self) -> None:
        headers = {"Idempotency-Key": f"{random.getrandbits(64):x}"}
        path = self._command
        for _ in range(2):
            await self._send("repeated command", "POST", path, json=_READ_CHAT, headers=headers)

    async def _session(self) -> None:
        if headers := await self._logged_in():
            await self._send("account", "GET", "/account", headers=headers)
            await self._send("logout", "POST", "/auth/logout", headers=headers)

    async def _webhook(self) -> None:
        if headers := await self._logged_in():
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

    async def _send(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        return await self.request(kind, method, self._url + path, **options)


class Sample(msgspec.Struct, frozen=True):
    """Figures of one moment: what the service holds. Memory is in megabytes."""

    memory: float
    tasks: float
    sockets: float
    files: float


_HELD: Final = {
    "memory": "least memory (RSS) MB",
    "tasks": "asyncio tasks",
    "sockets": "sockets",
    "files": "open files",
}
_TASKS: Final = "outrider_tasks "


def _sample(server: Server) -> Sample:
    """Return the figures of now.

    Raises:
        BenchmarkError: the node has ended.
    """
    server.program.check()
    metrics = server.get("/metrics").decode().splitlines()
    (tasks,) = (line.removeprefix(_TASKS) for line in metrics if line.startswith(_TASKS))
    process = server.program.process
    return Sample(
        process.memory_info().rss / 1e6,
        float(tasks),
        len(process.net_connections()),
        process.num_fds(),
    )


def _typical(samples: Sequence[Sample]) -> Sample:
    """Return the medians of these samples, of the memory the least.

    Checking a password takes 64 MiB for a moment, so the median of the memory says how many of them
    were under way. What leaks is in the least too.
    """
    if not samples:
        raise BenchmarkError("there are no samples of a minute: the computer is too busy")
    medians = {name: statistics.median(getattr(one, name) for one in samples) for name in _HELD}
    return Sample(**medians | {"memory": min(one.memory for one in samples)})


async def _rows(database: Database) -> dict[str, int]:
    """Return the number of rows of every table."""
    async with database.read() as transaction:
        return {
            table.name: await transaction.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }


_MACHINES: Final = 2_000
_SAMPLE_SECONDS: Final = 5.0
_EARLY_MINUTES: Final = 5
_TURN_SECONDS: Final = 60
"""A machine's agent begins or ends a turn that often."""

_FAULTS: Final = 0.01
"""The share of machines whose socket drops in a minute, and of answers that are late."""

_BACK_SECONDS: Final = 60.0

_NO_GROWTH: Final = Target("at most", 1.1, of="ratio")


def benchmark(options: Options) -> Report:
    """Run for `options.minutes`; the early minute is the sixth, of a short run the second."""
    count = options.machines or _MACHINES
    early = min(_EARLY_MINUTES, options.minutes - 2)
    minutes: list[Sample] = []
    rows: list[dict[str, int]] = []
    with stage() as here:
        options.progress(f"{count:,} machines are enrolled and connect")
        installation, server, machines, fleet = started(here, count)
        receiver = start_receiver(here)
        session = server.log_in()
        for path in ("well", "flaky"):  # the second one fails now and then
            server.add_webhook(session, f"{receiver.url}/{path}")
        fleet.connect(count)
        fleet.order(
            Order(turns=count / _TURN_SECONDS, drops=count * _FAULTS / 60, late_share=_FAULTS)
        )
        with Load(server, machines.all[:PER_ACCOUNT]) as load:
            begin = time.monotonic()
            for minute in range(1, options.minutes + 1):
                samples = []
                while time.monotonic() < begin + 60 * minute:
                    time.sleep(_SAMPLE_SECONDS)
                    samples.append(_sample(server))
                    load.check()
                    receiver.program.check()
                minutes.append(_typical(samples))
                rows.append(installation.in_database(_rows))
                held = ", ".join(
                    f"{name} {getattr(minutes[-1], of):.0f}" for of, name in _HELD.items()
                )
                options.progress(f"minute {minute} of {options.minutes}: {held}")
        fleet.order(Order(turns=0, drops=0, late_share=0))
        status = _settled(fleet, count)
        deliveries = int(receiver.get("/count"))
        fleet.end()
    growth = [
        Figure(name, "", [getattr(minutes[-1], of)], [getattr(minutes[early], of)], _NO_GROWTH)
        for of, name in _HELD.items()
    ]
    history = [Figure(table, "", [n], [rows[early][table]]) for table, n in rows[-1].items()]
    title = f"{count:,} machines: the last of {options.minutes} minutes, the baseline being minute"
    curve = Curve(
        title="Each minute: the medians, of the memory the least",
        columns=["minute", *_HELD.values(), "rows"],
        rows=[
            [number, *msgspec.structs.astuple(sample), sum(counts.values())]
            for number, (sample, counts) in enumerate(zip(minutes, rows, strict=True), 1)
        ],
    )
    return Report(
        benchmark="soak",
        sections=[
            Section(f"{title} {early + 1}", growth),
            Section("Rows; events, deliveries, audit and usage are history, kept by age", history),
            Section("What happened", _happened(load, status, deliveries)),
        ],
        curves=[curve],
    )


def _settled(fleet: Fleet, machines: int) -> FleetStatus:
    """Wait until the machines are back and every event is stored; return how the fleet is.

    Raises:
        BenchmarkError: they are not within `_BACK_SECONDS`.
    """
    deadline = time.monotonic() + _BACK_SECONDS
    while (status := fleet.wait_for(machines, _BACK_SECONDS)).waiting_events:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"events are not stored: {status}")
        time.sleep(0.1)
    return status


def _happened(load: Load, status: FleetStatus, deliveries: int) -> list[Figure]:
    failed = sum(n for name, n in load.outcomes.items() if name.endswith((": 500", ": 502")))
    counts = {
        "sockets dropped": status.closed,
        "machines that came back": status.reconnected,
        "commands answered by machines": status.answered,
        "of them late": status.delayed,
        "webhook attempts received": deliveries,
    }
    return [
        Figure("requests answered with 500", "", [failed], target=NONE),
        Figure("machines refused for good", "", [status.refused], target=NONE),
        *(Figure(name, "", [count]) for name, count in counts.items()),
        *counted(load.outcomes, "requests, "),
    ]
