"""A node and a machine agent under load, with faults, for half an hour: what grows is a leak."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import aiohttp
from sqlalchemy import func, select

from benchmarks.bench import Bench, Sections
from benchmarks.fleet import PER_ACCOUNT, enroll
from benchmarks.load import Clients
from benchmarks.machine_agent import MachineAgent, machine_agent
from benchmarks.processes import LOADING, MEGABYTE, SERVING, BenchmarkError, Program
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
_LAUNCHING: Final = 3
"""How many clients launch agents of the machine agent, one after the other."""

_FILES_OF_AGENT: Final = 4
_MESSAGES: Final = ("plan", "fail", "messages 200", "crash", "think")
_READ_CHAT: Final = {"type": "read_chat", "payload": {}}
_TASKS: Final = "outrider_tasks "
_NO_GROWTH: Final = Target("at most", 1.1, of="ratio")

Sample = dict[str, float]
"""What the service holds at one moment, by name."""


def soak(bench: Bench) -> Sections:
    """Run for `--minutes`; the early minute is the sixth, of a short run the second."""
    count = bench.machines or _MACHINES
    bench.progress(f"{count:,} machines are enrolled and connect")
    installation = Installation(bench.stage, "soak")
    with machine_agent(installation, service_cpus=SERVING, cpus=LOADING) as agent:
        yield from _soak(bench, installation, agent, count)


def _soak(bench: Bench, installation: Installation, agent: MachineAgent, count: int) -> Sections:
    early = min(_EARLY_MINUTES, bench.minutes - 2)
    minutes: list[Sample] = []
    rows: list[dict[str, int]] = []
    server = agent.server
    machines = enroll(installation, installation.accounts[EMAIL], count)
    receiver = start_receiver(bench.stage)
    session = server.log_in()
    for path in ("well", "flaky"):  # the second one fails now and then
        server.add_webhook(session, f"{receiver.url}/{path}")
    load = _Load(agent, machines[:PER_ACCOUNT])
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
                    samples.append(_sample(server, agent.program))
                    load.check()
                    receiver.program.check()
                minutes.append(_least(samples))
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

    def __init__(self, agent: MachineAgent, machines: list[Enrolled]) -> None:
        super().__init__(agent.server, _LONGEST)
        self._agent = agent.machine.id
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
            for _ in range(_LAUNCHING):
                group.create_task(self._agents())
            while not self.is_ending:
                await asyncio.sleep(random.expovariate(_REQUESTS_PER_SECOND))
                await limit.acquire()
                (call,) = random.choices(calls, weights)
                task = group.create_task(call())
                task.add_done_callback(lambda _: limit.release())

    async def _agents(self) -> None:
        """Launch agents one after the other, every other one with the session of the last."""
        path = f"/shortcuts/{self._agent}"
        resumed = None
        for message in itertools.cycle(_MESSAGES):
            if self.is_ending:
                return
            agent = {"type": "demo", "resume": resumed}
            launched = await self._send("launch", "POST", f"{path}/launch", json=agent)
            session, target = launched.get("sessionId"), launched.get("sessionTargetId")
            own = f"/shortcuts/{target}"
            await self._send("message", "POST", f"{own}/chat", json={"message": message})
            await self._send("wait", "GET", f"{own}/wait")
            await self._send("chat", "GET", f"{own}/chat")
            ended = {"type": "demo", "target": target}
            await self._send("stop", "POST", f"{path}/stop", json=ended)
            resumed = None if resumed else session
            await asyncio.sleep(1)

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


def _sample(server: Server, agent: Program) -> Sample:
    """Return what the service and the machine agent hold now.

    Raises:
        BenchmarkError: one of them has ended.
    """
    server.program.check()
    agent.check()
    metrics = server.get("/metrics").decode().splitlines()
    (tasks,) = (line.removeprefix(_TASKS) for line in metrics if line.startswith(_TASKS))
    service, machine = server.program.process, agent.process
    agents = min(len(machine.children()), _LAUNCHING)  # what is left of others counts
    return {
        "memory (RSS) MB": service.memory_info().rss / MEGABYTE,
        "asyncio tasks": float(tasks),
        "sockets": len(service.net_connections()),
        "open files": service.num_fds(),
        "machine agent: memory (RSS) MB": machine.memory_info().rss / MEGABYTE,
        "machine agent: open files of its own": machine.num_fds() - _FILES_OF_AGENT * agents,
        "machine agent: threads": machine.num_threads(),
    }


def _least(samples: Sequence[Sample]) -> Sample:
    """Return the least of each: what leaks is in it, and what is used for a moment is not."""
    if not samples:
        raise BenchmarkError("there are no samples of a minute: the computer is too busy")
    return {name: min(sample[name] for sample in samples) for name in samples[0]}


async def _rows(database: Database) -> dict[str, int]:
    """Return the number of rows of every table."""
    async with database.read() as transaction:
        return {
            str(table.name): await transaction.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }
