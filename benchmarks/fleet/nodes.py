"""Measures several nodes: a command that crosses them, one that is killed, and workers.

The nodes share a private PostgreSQL and Redis. Everything, the load and the machines too, shares
the processors.
"""

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
from redis import Redis as Client
from rich.console import Console
from sqlalchemy import text
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError

from benchmarks.command import Effort
from benchmarks.fleet.enrollment import PER_ACCOUNT, enroll
from benchmarks.fleet.machine import Enrolled
from benchmarks.fleet.orders import StayAway
from benchmarks.fleet.site import EMAIL, Fleet, raise_file_limit
from benchmarks.processes import BenchmarkError, Stage, free_port, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.roundtrip.measure import start_baseline
from benchmarks.service import Installation, Server
from benchmarks.wrk import Load, Request, load, require_wrk
from outrider.cloud.settings import Settings
from outrider.cloud.store.database import Database

_COMMAND_TIMEOUT: Final = 10.0
_STAY_AWAY: Final = 10
_ASKING: Final = 8
_BACK_SECONDS: Final = 120.0
_GONE_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 10.0
_REST_SECONDS: Final = 20.0
_WORKERS: Final = (1, 2, 4)

_CROSSING: Final = Target("at most", 2.5, of="ratio")
_BACK: Final = Target("at most", 60)
_ANSWERED: Final = Target("at most", _COMMAND_TIMEOUT + 1)
_NONE: Final = Target("at most", 0)


class Cluster:
    """Nodes that share a PostgreSQL and a Redis, and the machines that are enrolled there."""

    def __init__(self, here: Stage, postgres: Postgres, redis: Redis, machines: int) -> None:
        self.here = here
        self._redis = Client.from_url(redis.url())
        self._shared = {
            "OUTRIDER_DATABASE_URL": postgres.create("fleet"),
            "OUTRIDER_REDIS_URL": redis.url(),
            "OUTRIDER_SECRET_KEY": "a secret key of the benchmark, long enough",
            "OUTRIDER_COMMAND_TIMEOUT": str(_COMMAND_TIMEOUT),
            "OUTRIDER_DRAIN_DELAY": "0",
        }
        self._database = Settings(database_url=self._shared["OUTRIDER_DATABASE_URL"]).sqlalchemy_url
        first = self.installation("first")
        account, self.key = first.new_account(EMAIL)
        self.file = here.directory / "machines.jsonl"
        self.machines = enroll(self._database, account, machines, self.file)

    def installation(self, name: str) -> Installation:
        """Return what a node is started from."""
        installation = Installation(self.here, name)
        installation.settings = {**installation.settings, **self._shared}
        return installation

    def node(self, name: str) -> Server:
        """Start a node."""
        return self.installation(name).serve(self.key)

    def rows(self, query: str) -> list[Any]:
        """Return what a query finds."""
        return asyncio.run(_rows(self._database, query))

    def used(self) -> "Used":
        """Return what the stores have been used for so far."""
        query = (
            "SELECT xact_commit, tup_inserted + tup_updated FROM pg_stat_database "
            "WHERE datname = current_database()"
        )
        ((commits, rows),) = self.rows(query)
        info: dict[str, Any] = self._redis.info()
        return Used(
            time.monotonic(), commits, rows, info["total_commands_processed"], info["used_memory"]
        )

    def paths(self, machines: list[Enrolled]) -> Request:
        """Return the request for the status of these machines' agents, in turns."""
        first, *others = (_path(machine) for machine in machines)
        return Request("GET", first, others=tuple(others))


class Used(NamedTuple):
    """What PostgreSQL and Redis have done by a moment (seconds), and Redis' memory in bytes."""

    at: float
    commits: int
    rows: int
    commands: int
    memory: int


def benchmark(effort: Effort, progress: Console) -> Report:
    """Measure a command that crosses nodes, the death of a node, and several workers."""
    require_wrk()
    raise_file_limit(effort.machines + 500)
    with ExitStack() as running:
        here = running.enter_context(stage())
        try:
            postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())
        except NotInstalledError as error:
            raise BenchmarkError(str(error)) from error
        cluster = Cluster(here, postgres, redis, effort.machines)
        one = cluster.node("one")
        (node,) = cluster.rows("SELECT id FROM nodes")[0]
        other = cluster.node("other")
        crossing = _crossing(cluster, one, other, effort, progress)
        killed = _killed(cluster, one, node, other, progress)
        other.program.end()
        workers = _workers(cluster, effort, progress)
    return Report(benchmark="nodes", sections=[crossing, killed, workers])


def _crossing(
    cluster: Cluster, one: Server, other: Server, effort: Effort, progress: Console
) -> Section:
    """Ask machines of one node by that one and by the other, in turns."""
    fleet = Fleet(cluster.here, cluster.machines, cluster.file, [one.websocket_url])
    fleet.connect(PER_ACCOUNT)
    request = cluster.paths(cluster.machines[:PER_ACCOUNT])
    figures = []
    for connections in (1, 32):
        there: list[Load] = []
        same: list[Load] = []
        for number in range(effort.rounds):
            progress.print(f"across nodes, connections: {connections}, {number + 1}", style="dim")
            for server, runs in ((other, there), (one, same)):
                runs.append(_load(server, request, connections, effort.seconds))
        figures += [
            Figure(
                f"median, {connections} connection{'s'[: connections > 1]}",
                "us",
                [run.p50 for run in there],
                baseline=[run.p50 for run in same],
                target=_CROSSING,
            ),
            Figure(
                f"99th percentile, {connections} connection{'s'[: connections > 1]}",
                "us",
                [run.p99 for run in there],
                baseline=[run.p99 for run in same],
            ),
        ]
    fleet.end()
    return Section(
        title="GET …/status by another node, the baseline being the machine's own", figures=figures
    )


def _killed(cluster: Cluster, one: Server, node: str, other: Server, progress: Console) -> Section:
    """Kill a node that holds half of the machines, while commands go on."""
    count = len(cluster.machines)
    progress.print(f"{count:,} machines connect to two nodes", style="dim")
    _subscribe(other)
    fleet = Fleet(
        cluster.here, cluster.machines, cluster.file, [one.websocket_url, other.websocket_url]
    )
    before = cluster.used()
    seconds, _ = fleet.connect(count)
    stores = _stores(cluster, before, count, progress)
    held = {row[0] for row in cluster.rows(f"SELECT id FROM machines WHERE node = '{node}'")}
    asked = cluster.machines[:PER_ACCOUNT]
    away = [machine.daemon_id for machine in asked if machine.daemon_id in held][:_STAY_AWAY]
    fleet.orders.give(StayAway(away))
    asker = Asker([one, other], [m for m in asked if m.daemon_id not in away])
    time.sleep(2)
    progress.print(f"a node with {len(held):,} machines is killed", style="dim")
    os.kill(one.program.pid, signal.SIGKILL)
    began = time.monotonic()
    time.sleep(1)  # until the simulator has noticed
    told = fleet.orders.wait_for(count - len(away), _BACK_SECONDS)
    back = time.monotonic() - began
    if told.connected < count - len(away):
        raise BenchmarkError(f"after {back:.0f} s not all are back: {told}")
    progress.print("those that stayed away are waited for", style="dim")
    events = _disconnected(cluster, len(away))
    asker.end()
    fleet.end()
    answers = asker.statuses
    return Section(
        title=f"A node with {len(held):,} of {count:,} machines is killed",
        figures=[
            Figure("connect, until all are welcome", "1/s", [count / seconds]),
            *stores,
            Figure("until all are back", "s", [back], target=_BACK),
            Figure("longest absence of a machine", "s", [told.longest_away]),
            Figure("slowest answer to a command", "s", [asker.slowest], target=_ANSWERED),
            *(
                Figure(f"answered {status}", "commands", [n])
                for status, n in sorted(answers.items())
            ),
            Figure(
                f"of {len(away)} that stayed away, not told of exactly once",
                "machines",
                [sum(events[machine] != 1 for machine in away)],
                target=_NONE,
            ),
            Figure(
                "events of machines that came back",
                "",
                [sum(events.values()) - sum(events[machine] for machine in away)],
                target=_NONE,
            ),
        ],
    )


def _stores(cluster: Cluster, before: Used, count: int, progress: Console) -> list[Figure]:
    """Return what the machines cost PostgreSQL and Redis: to connect, and at rest."""
    progress.print("they are at rest", style="dim")
    time.sleep(_SETTLE_SECONDS)  # until the statistics have come in, too
    there = cluster.used()
    time.sleep(_REST_SECONDS)
    later = cluster.used()
    seconds = later.at - there.at
    return [
        Figure("Redis memory of a machine", "KB", [(there.memory - before.memory) / count / 1000]),
        Figure("connect: rows written to PostgreSQL", "each", [(there.rows - before.rows) / count]),
        Figure("connect: Redis commands", "each", [(there.commands - before.commands) / count]),
        Figure(
            "at rest: PostgreSQL transactions", "1/s", [(later.commits - there.commits) / seconds]
        ),
        Figure("at rest: rows written to PostgreSQL", "1/s", [(later.rows - there.rows) / seconds]),
        Figure("at rest: Redis commands", "1/s", [(later.commands - there.commands) / seconds]),
    ]


def _workers(cluster: Cluster, effort: Effort, progress: Console) -> Section:
    """Measure one, two and four processes on one port, beside the bare baseline of one."""
    request = cluster.paths(cluster.machines[:PER_ACCOUNT])
    figures = []
    for workers in _WORKERS:
        progress.print(f"workers: {workers}", style="dim")
        installation = cluster.installation(f"workers-{workers}")
        arguments = ["-m", "outrider", "serve"]
        if workers > 1:
            arguments += ["--workers", str(workers)]
        program = cluster.here.start("workers", arguments, installation.settings)
        server = Server(program, installation.url, cluster.key)
        program.wait_until(lambda: server.answers("/readyz"), "ready", 60)  # noqa: B023
        fleet = Fleet(cluster.here, cluster.machines, cluster.file, [server.websocket_url])
        fleet.connect(PER_ACCOUNT)
        runs = [_load(server, request, 32, effort.seconds) for _ in range(effort.rounds)]
        figures.append(
            Figure(
                f"{workers} process{'es'[: 2 * (workers > 1)]}, 32 connections",
                "requests/s",
                [run.per_second for run in runs],
            )
        )
        fleet.end()
        program.end()
    baseline = _bare(cluster, effort, progress)
    for figure in figures:
        figure.baseline = baseline
    return Section(
        title="GET …/status by several processes, PostgreSQL and Redis; the baseline is one "
        "bare process (benchmarks/roundtrip/baseline.py)",
        figures=figures,
    )


def _bare(cluster: Cluster, effort: Effort, progress: Console) -> list[float]:
    progress.print("the bare baseline", style="dim")
    machine = cluster.machines[0]
    server = start_baseline(cluster.here, machine.daemon_id, cluster.key)
    fleet = Fleet(cluster.here, cluster.machines, cluster.file, [server.websocket_url])
    fleet.connect(1)
    runs = [
        _load(server, cluster.paths([machine]), 32, effort.seconds) for _ in range(effort.rounds)
    ]
    fleet.end()
    server.program.end()
    return [run.per_second for run in runs]


class Asker:
    """Asks machines for their status by these nodes until told to end, as fast as they answer."""

    def __init__(self, servers: list[Server], machines: list[Enrolled]) -> None:
        self._urls = [(server.url, server.headers) for server in servers]
        self._machines = machines
        self._is_over = False
        self.statuses: Counter[str] = Counter()
        self.slowest = 0.0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask no more; return when the last answer has come."""
        self._is_over = True
        self._thread.join(timeout=60)

    async def _run(self) -> None:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(self._ask(session) for _ in range(_ASKING)))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        while not self._is_over:
            url, headers = random.choice(self._urls)
            began = time.monotonic()
            try:
                path = url + _path(random.choice(self._machines))
                async with session.get(path, headers=headers, timeout=_patience) as answer:
                    await answer.read()
                    outcome = str(answer.status)
            except TimeoutError:
                outcome = "none"
            except aiohttp.ClientError:
                outcome = "by a dead node"
            self.statuses[outcome] += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)


_patience: Final = aiohttp.ClientTimeout(total=3 * _COMMAND_TIMEOUT)


def _disconnected(cluster: Cluster, expected: int) -> Counter[str]:
    """Return how many events tell of each machine's end, once there are enough of them."""
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        rows = cluster.rows("SELECT body FROM events WHERE name = 'machine:disconnected'")
        if len(rows) >= expected or time.monotonic() > deadline:
            break
        time.sleep(1)
    time.sleep(5)  # for any that would be too many
    rows = cluster.rows("SELECT body FROM events WHERE name = 'machine:disconnected'")
    return Counter(_daemon_of(body) for (body,) in rows)


def _daemon_of(body: bytes) -> str:
    found: str = msgspec.json.decode(body)["daemonId"]
    return found


def _subscribe(server: Server) -> None:
    """Have the account's events stored, for a receiver that is not there."""
    session = server.log_in(EMAIL)
    server.add_webhook(session, f"http://127.0.0.1:{free_port()}/", "machine:disconnected")


def _load(server: Server, request: Request, connections: int, seconds: int) -> Load:
    return load(server, request, connections=connections, seconds=seconds, cpus=[])


def _path(machine: Enrolled) -> str:
    return f"/api/v1/shortcuts/{machine.daemon_id}:cli:claude-code/status"


async def _rows(url: str, query: str) -> list[Any]:
    database = Database(url)
    try:
        async with database.read() as transaction:
            return list(await transaction.execute(text(query)))
    finally:
        await database.close()
