"""A node and a machine agent under load, with faults, for half an hour: what grows is a leak."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import aiohttp
from sqlalchemy import func, select

from benchmarks.bench import Bench, Sections
from benchmarks.fleet import PER_ACCOUNT, enroll
from benchmarks.machine_agent import MachineAgent, machine_agent
from benchmarks.processes import LOADING, MEGABYTE, SERVING, BenchmarkError, Program
from benchmarks.report import NONE, Figure, Section, Target, counted
from benchmarks.service import (
    EMAIL,
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
"""The share of machine agents that are killed and started again in a minute."""

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
            fleet.at_work(count / _TURN_SECONDS, restarts=count * _FAULTS / 60),
            load.running(),
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
        fleet.wait_until_connected(count, _BACK_SECONDS)
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
        "machine agents killed and started": fleet.status.restarted,
        "commands answered by machines": fleet.status.answered,
        "webhook attempts received": int(receiver.get("/count")),
    }
    happened = [
        Figure("requests answered with 500", "", [failed], target=NONE),
        Figure("machines refused for good", "", [fleet.status.refused], target=NONE),
        *(Figure(name, "", [number]) for name, number in counts.items()),
        *counted(load.outcomes, "requests, "),
    ]
    yield Section("What happened", happened)


class _Load:
    """Clients that make random requests, and launch and end agents.

    Attributes:
        outcomes: how many requests of each kind had each outcome, such as "status: 200".
    """

    def __init__(self, agent: MachineAgent, machines: list[Enrolled]) -> None:
        self._server = agent.server
        self._agent = agent.machine.id
        self._machines = machines
        self._is_ending = False
        self._client: aiohttp.ClientSession
        self._running: Future[None]
        self.outcomes: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make requests in a thread, until the end of this block."""
        with ThreadPoolExecutor(1, "clients") as thread:
            self._running = thread.submit(lambda: asyncio.run(self._work()))
            try:
                yield
            finally:
                self._is_ending = True
        self._running.result()

    def check(self) -> None:
        """Raise the error that ended the clients, if there was one."""
        if self._running.done():
            self._running.result()

    async def _work(self) -> None:
        read_chat = {"json": {"type": "read_chat", "payload": {}}}
        limit = asyncio.Semaphore(_AT_ONCE)
        timeout = aiohttp.ClientTimeout(total=_LONGEST)
        async with (
            aiohttp.ClientSession(
                self._server.url, headers=self._server.headers, timeout=timeout
            ) as self._client,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(_LAUNCHING):
                group.create_task(self._agents())
            while not self._is_ending:
                await asyncio.sleep(random.expovariate(_REQUESTS_PER_SECOND))
                await limit.acquire()
                machine = random.choice(self._machines).daemon_id
                unique = f"{random.getrandbits(128):032x}"
                command = f"/daemons/{machine}/command"
                status = status_path(machine).removeprefix("/api/v1")
                soon = aiohttp.ClientTimeout(total=_CANCEL_SECONDS)
                wrong = {"Authorization": f"Bearer ork_{unique}"}
                kinds: list[tuple[int, str, str, str, dict[str, Any]]] = [
                    (60, "status", "GET", status, {}),
                    (10, "list", "GET", "/daemons", {}),
                    (20, "command", "POST", command, read_chat),
                    (1, "not found", "GET", f"/{unique}", {}),
                    (1, "wrong key", "GET", "/daemons", {"headers": wrong}),
                    (1, "cancelled", "GET", status, {"timeout": soon}),
                ]
                weights = [weight for weight, *_ in kinds]
                ((_, kind, method, path, options),) = random.choices(kinds, weights)
                task = group.create_task(self._request(kind, method, path, **options))
                task.add_done_callback(lambda _: limit.release())

    async def _agents(self) -> None:
        """Launch agents one after the other, every other one with the session of the last."""
        path = f"/shortcuts/{self._agent}"
        resumed = None
        for message in itertools.cycle(_MESSAGES):
            if self._is_ending:
                return
            agent = {"type": "demo", "resume": resumed}
            launched = await self._request("launch", "POST", f"{path}/launch", json=agent)
            session, target = launched.get("sessionId"), launched.get("sessionTargetId")
            own = f"/shortcuts/{target}"
            await self._request("message", "POST", f"{own}/chat", json={"message": message})
            await self._request("wait", "GET", f"{own}/wait")
            await self._request("chat", "GET", f"{own}/chat")
            ended = {"type": "demo", "target": target}
            await self._request("stop", "POST", f"{path}/stop", json=ended)
            resumed = None if resumed else session
            await asyncio.sleep(1)

    async def _request(self, kind: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request; return the answer's body, an empty one if it failed."""
        try:
            async with self._client.request(method, f"/api/v1{path}", **options) as answer:
                body = await answer.read()
                self.outcomes[f"{kind}: {answer.status}"] += 1
                return await answer.json() if answer.ok and body else {}
        except TimeoutError:
            self.outcomes[f"{kind}: no answer in time"] += 1
        except aiohttp.ClientError as error:
            self.outcomes[f"{kind}: {type(error).__name__}"] += 1
        return {}


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
