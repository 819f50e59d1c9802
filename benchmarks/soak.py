"""One node under a mixed load with faults for half an hour: what grows is a leak."""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import aiohttp
from sqlalchemy import func, select

from benchmarks.bench import Bench, Sections
from benchmarks.fleet import PER_ACCOUNT, enroll
from benchmarks.load import Clients
from benchmarks.processes import MEGABYTE, SERVING, BenchmarkError
from benchmarks.report import NONE, Figure, Section, Target, counted
from benchmarks.service import (
    EMAIL,
    PASSWORD,
    Installation,
    Server,
    start_receiver,
    status_path,
)
from benchmarks.simulator import simulated
from outrider.contract.enrollment import Enrolled
from outrider.service.database.engine import Database
from outrider.service.database.tables import metadata

_MACHINES: Final = 2_000
_REQUESTS_PER_SECOND: Final = 40
_AT_ONCE: Final = 100
_CANCEL_SECONDS: Final = 0.002
_LONGEST: Final = 70.0
_SAMPLE_SECONDS: Final = 5.0
_EARLY_MINUTES: Final = 5
_TURN_SECONDS: Final = 60
"""A machine's agent begins or ends a turn that often."""

_FAULTS: Final = 0.01
"""The share of machines whose socket drops in a minute, and of answers that are late."""

_BACK_SECONDS: Final = 60.0
_READ_CHAT: Final = {"type": "read_chat", "payload": {}}
_TASKS: Final = "outrider_tasks "
_MEMORY: Final = "least memory (RSS) MB"
_NO_GROWTH: Final = Target("at most", 1.1, of="ratio")

Sample = dict[str, float]
"""What the service holds at one moment, by name."""


def soak(bench: Bench) -> Sections:
    """Run for `--minutes`; the early minute is the sixth, of a short run the second."""
    count = bench.machines or _MACHINES
    early = min(_EARLY_MINUTES, bench.minutes - 2)
    minutes: list[Sample] = []
    rows: list[dict[str, int]] = []
    bench.progress(f"{count:,} machines are enrolled and connect")
    installation = Installation(bench.stage, "soak")
    account, key = installation.new_account()
    machines = enroll(installation, account, count)
    server = installation.serve(key, SERVING)
    receiver = start_receiver(bench.stage)
    session = server.log_in()
    for path in ("well", "flaky"):  # the second one fails now and then
        server.add_webhook(session, f"{receiver.url}/{path}")
    load = _Load(server, machines[:PER_ACCOUNT])
    with simulated(machines, server) as fleet:
        fleet.connect(count)
        with (
            fleet.at_work(count / _TURN_SECONDS, drops=count * _FAULTS / 60, late_share=_FAULTS),
            load.running(load.work()),
        ):
            begin = time.monotonic()
            for minute in range(1, bench.minutes + 1):
                samples = []
                while time.monotonic() < begin + 60 * minute:
                    time.sleep(_SAMPLE_SECONDS)
                    samples.append(_sample(server))
                    load.check()
                    receiver.program.check()
                minutes.append(_typical(samples))
                rows.append(installation.in_database(_rows))
                held = ", ".join(f"{name} {value:.0f}" for name, value in minutes[-1].items())
                total = sum(rows[-1].values())
                bench.progress(f"minute {minute} of {bench.minutes}: {held}, rows {total}")
        fleet.wait_until_connected(count, _BACK_SECONDS, stored=True)
    title = f"{count:,} machines: the last of {bench.minutes} minutes, the baseline being minute"
    growth = [
        Figure(name, "", [value], [minutes[early][name]], _NO_GROWTH)
        for name, value in minutes[-1].items()
    ]
    yield Section(f"{title} {early + 1}", growth)
    history = [Figure(table, "", [n], [rows[early][table]]) for table, n in rows[-1].items()]
    yield Section("Rows; events, deliveries, audit and usage are history, kept by age", history)
    failed = sum(n for name, n in load.outcomes.items() if name.endswith((": 500", ": 502")))
    counts = {
        "sockets dropped": fleet.status.closed,
        "machines that came back": fleet.status.reconnected,
        "commands answered by machines": fleet.status.answered,
        "of them late": fleet.status.late,
        "webhook attempts received": int(receiver.get("/count")),
    }
    happened = [
        Figure("requests answered with 500", "", [failed], target=NONE),
        Figure("machines refused for good", "", [fleet.status.refused], target=NONE),
        *(Figure(name, "", [number]) for name, number in counts.items()),
        *counted(load.outcomes, "requests, "),
    ]
    yield Section("What happened", happened)


class _Load(Clients):
    """Clients of every kind."""

    def __init__(self, server: Server, machines: list[Enrolled]) -> None:
        super().__init__(server, _LONGEST)
        self._machines = machines

    async def work(self) -> None:
        """Make random requests at random times, until the load is to end."""
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
                await asyncio.sleep(random.expovariate(_REQUESTS_PER_SECOND))
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
        await self.request(kind, "GET", status_path(self._machine), **options)

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
        return await self.request(kind, method, f"/api/v1{path}", **options)


def _sample(server: Server) -> Sample:
    """Return what the service holds now.

    Raises:
        BenchmarkError: the node has ended.
    """
    server.program.check()
    metrics = server.get("/metrics").decode().splitlines()
    (tasks,) = (line.removeprefix(_TASKS) for line in metrics if line.startswith(_TASKS))
    process = server.program.process
    return {
        _MEMORY: process.memory_info().rss / MEGABYTE,
        "asyncio tasks": float(tasks),
        "sockets": len(process.net_connections()),
        "open files": process.num_fds(),
    }


def _typical(samples: Sequence[Sample]) -> Sample:
    """Return the medians of these samples, of the memory the least.

    Checking a password takes 64 MiB for a moment, so the median of the memory says how many of them
    were under way. What leaks is in the least too.
    """
    if not samples:
        raise BenchmarkError("there are no samples of a minute: the computer is too busy")
    medians = {name: statistics.median(one[name] for one in samples) for name in samples[0]}
    return medians | {_MEMORY: min(one[_MEMORY] for one in samples)}


async def _rows(database: Database) -> dict[str, int]:
    """Return the number of rows of every table."""
    async with database.read() as transaction:
        return {
            table.name: await transaction.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }
