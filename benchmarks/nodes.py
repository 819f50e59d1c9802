"""Measures several nodes: a command that crosses them, one that is killed, and workers.

The nodes share a private PostgreSQL and Redis. Everything, the load and the machines too, shares
the processors.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import msgspec
from redis import Redis as Client
from sqlalchemy import text
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError, free_port

from benchmarks.clients import Clients
from benchmarks.command import Options
from benchmarks.fleet import MACHINES, PER_ACCOUNT, Machines
from benchmarks.processes import BenchmarkError, Stage, stage
from benchmarks.report import (
    NONE,
    Figure,
    Report,
    Section,
    Target,
    compared,
    counted,
    plural,
)
from benchmarks.roundtrip import start_baseline
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator import Order
from benchmarks.wrk import Request, Run, load, require_wrk
from outrider.cloud.store.database import Database

_COMMAND_TIMEOUT: Final = 10.0
_NOT_RECONNECTING: Final = 10
_CLIENTS: Final = 8
_RECONNECT_SECONDS: Final = 120.0
_GONE_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 10.0
_REST_SECONDS: Final = 20.0
_WORKERS: Final = (1, 2, 4)

_CROSSING: Final = Target("at most", 2.5, of="ratio")
_RECONNECTED: Final = Target("at most", 60)
_ANSWERED: Final = Target("at most", _COMMAND_TIMEOUT + 1)


class Used(NamedTuple):
    """What PostgreSQL and Redis have done by a moment (seconds), and Redis' memory in bytes."""

    at: float
    commits: int
    rows: int
    commands: int
    memory: int


class Cluster:
    """Nodes that share a PostgreSQL and a Redis, and the machines that are enrolled there."""

    def __init__(self, here: Stage, postgres: Postgres, redis: Redis, machines: int) -> None:
        self.here = here
        self._redis = Client.from_url(redis.url())
        self._settings = {
            "OUTRIDER_DATABASE_URL": postgres.create("fleet"),
            "OUTRIDER_REDIS_URL": redis.url(),
            "OUTRIDER_SECRET_KEY": "a secret key of the benchmark, long enough",
            "OUTRIDER_COMMAND_TIMEOUT": str(_COMMAND_TIMEOUT),
            "OUTRIDER_DRAIN_DELAY": "0",
        }
        self._first = Installation(here, "first", settings=self._settings)
        account, self.key = self._first.new_account()
        self.machines = Machines(self._first, account, machines)

    def node(self, name: str, *options: str) -> Server:
        """Start a node."""
        installation = Installation(self.here, name, settings=self._settings)
        return installation.serve(self.key, options=options)

    def rows(self, query: str) -> Sequence[Any]:
        """Return what a query finds."""

        async def find(database: Database) -> Sequence[Any]:
            async with database.read() as transaction:
                return list(await transaction.execute(text(query)))

        return self._first.in_database(find)

    def used(self) -> Used:
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


def benchmark(options: Options) -> Report:
    """Measure a command that crosses nodes, the death of a node, and several workers."""
    require_wrk()
    with ExitStack() as running:
        here = running.enter_context(stage())
        try:
            postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())
        except NotInstalledError as error:
            raise BenchmarkError(str(error)) from error
        cluster = Cluster(here, postgres, redis, options.machines or MACHINES)
        one = cluster.node("one")
        (node,) = cluster.rows("SELECT id FROM nodes")[0]
        other = cluster.node("other")
        crossing = _crossing(cluster, one, other, options)
        killed = _killed(cluster, one, node, other, options)
        other.program.end()
        workers = _workers(cluster, options)
    return Report(benchmark="nodes", sections=[crossing, killed, workers])


def _crossing(cluster: Cluster, one: Server, other: Server, options: Options) -> Section:
    """Ask machines of one node by that one and by the other, in turns."""
    fleet = cluster.machines.simulated(one)
    fleet.connect(PER_ACCOUNT)
    request = cluster.machines.status_request()
    figures = []
    for connections in (1, 32):
        name = plural(connections, "connection")

        def run(server: Server, connections: int = connections) -> Run:
            return _load(server, request, connections, options)

        runs = options.in_turns(f"across nodes, {name}", lambda: run(other), lambda: run(one))
        figures += [
            compared(f"median, {name}", "us", runs, lambda run: run.p50, _CROSSING),
            compared(f"99th percentile, {name}", "us", runs, lambda run: run.p99),
        ]
    fleet.end()
    return Section("GET …/status by another node, the baseline being the machine's own", figures)


def _killed(cluster: Cluster, one: Server, node: str, other: Server, options: Options) -> Section:
    """Kill a node that holds half of the machines, while commands go on."""
    count = len(cluster.machines)
    options.progress(f"{count:,} machines connect to two nodes")
    # A webhook that nothing listens on, so that the account's events are stored.
    url = f"http://127.0.0.1:{free_port()}/"
    other.add_webhook(other.log_in(), url, "machine:disconnected")
    fleet = cluster.machines.simulated(one, other)
    before = cluster.used()
    seconds = fleet.connect(count)
    stores = _stores(cluster, before, count, options)
    held = {row[0] for row in cluster.rows(f"SELECT id FROM machines WHERE node = '{node}'")}
    asked = [machine.daemon_id for machine in cluster.machines.all[:PER_ACCOUNT]]
    away = [daemon_id for daemon_id in asked if daemon_id in held][:_NOT_RECONNECTING]
    fleet.order(Order(away=away))
    staying = [daemon_id for daemon_id in asked if daemon_id not in away]
    with StatusClients([one, other], staying) as clients:
        time.sleep(2)
        options.progress(f"a node with {len(held):,} machines is killed")
        one.program.process.kill()
        began = time.monotonic()
        time.sleep(1)  # until the simulator has noticed
        status = fleet.wait_for(count - len(away), _RECONNECT_SECONDS)
        seconds_away = time.monotonic() - began
        options.progress("waiting for the events of those that do not reconnect")
        events = _disconnected(cluster, len(away))
    clients.check()
    fleet.end()
    not_once = sum(events[machine] != 1 for machine in away)
    others = events.total() - sum(events[machine] for machine in away)
    once = f"of {len(away)} that do not reconnect, without exactly one event"
    return Section(
        f"A node with {len(held):,} of {count:,} machines is killed",
        [
            Figure("connect, until all are welcome", "1/s", [count / seconds]),
            *stores,
            Figure("until all have reconnected", "s", [seconds_away], target=_RECONNECTED),
            Figure("longest absence of a machine", "s", [status.longest_away]),
            Figure("slowest answer to a command", "s", [max(clients.latencies)], target=_ANSWERED),
            *counted(clients.outcomes),
            Figure(once, "machines", [not_once], target=NONE),
            Figure("events of machines that reconnected", "", [others], target=NONE),
        ],
    )


def _stores(cluster: Cluster, before: Used, count: int, options: Options) -> list[Figure]:
    """Return what the machines cost PostgreSQL and Redis: to connect, and at rest."""
    options.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)  # until the statistics have come in, too
    there = cluster.used()
    time.sleep(_REST_SECONDS)
    later = cluster.used()
    seconds = later.at - there.at
    commits = (later.commits - there.commits) / seconds
    return [
        Figure("Redis memory of a machine", "KB", [(there.memory - before.memory) / count / 1000]),
        Figure("connect: rows written to PostgreSQL", "each", [(there.rows - before.rows) / count]),
        Figure("connect: Redis commands", "each", [(there.commands - before.commands) / count]),
        Figure("at rest: PostgreSQL transactions", "1/s", [commits]),
        Figure("at rest: rows written to PostgreSQL", "1/s", [(later.rows - there.rows) / seconds]),
        Figure("at rest: Redis commands", "1/s", [(later.commands - there.commands) / seconds]),
    ]


def _workers(cluster: Cluster, options: Options) -> Section:
    """Measure one, two and four processes on one port, beside the bare baseline of one."""
    figures = []
    options.progress("the bare baseline")
    daemon_id = cluster.machines.all[0].daemon_id
    baseline = _throughput(
        cluster, start_baseline(cluster.here, daemon_id, cluster.key), 1, options
    )
    for workers in _WORKERS:
        options.progress(f"workers: {workers}")
        arguments = ["--workers", str(workers)] if workers > 1 else []
        server = cluster.node(f"workers-{workers}", *arguments)
        runs = _throughput(cluster, server, PER_ACCOUNT, options)
        name = f"{workers} process{'es'[: 2 * (workers > 1)]}, 32 connections"
        figures.append(Figure(name, "requests/s", runs, baseline))
    return Section(
        "GET …/status by several processes, PostgreSQL and Redis; the baseline is one "
        "bare process (benchmarks/programs/bare_service.py)",
        figures,
    )


def _throughput(cluster: Cluster, server: Server, machines: int, options: Options) -> list[float]:
    """Return the requests per second that a server answers, and end it."""
    fleet = cluster.machines.simulated(server)
    fleet.connect(machines)
    request = cluster.machines.status_request(machines)
    runs = [_load(server, request, 32, options) for _ in range(options.rounds)]
    fleet.end()
    server.program.end()
    return [run.per_second for run in runs]


class StatusClients(Clients):
    """Clients that ask machines for their status through any of these nodes, one by one."""

    def __init__(self, servers: list[Server], machines: list[str]) -> None:
        super().__init__(servers[0], 3 * _COMMAND_TIMEOUT)
        self._urls = [server.url for server in servers]
        self._machines = machines

    async def work(self) -> None:
        """Make requests on `_CLIENTS` connections."""
        await asyncio.gather(*(self._ask() for _ in range(_CLIENTS)))

    async def _ask(self) -> None:
        while not self.is_ending:
            url = random.choice(self._urls) + status_path(random.choice(self._machines))
            await self.request("commands", "GET", url)
            await asyncio.sleep(0.02)


def _disconnected(cluster: Cluster, expected: int) -> Counter[str]:
    """Return how many events tell of each machine's end, once there are enough of them."""
    query = "SELECT body FROM events WHERE name = 'machine:disconnected'"
    deadline = time.monotonic() + _GONE_SECONDS
    while len(cluster.rows(query)) < expected and time.monotonic() < deadline:
        time.sleep(1)
    time.sleep(5)  # for any that would be too many
    return Counter(msgspec.json.decode(body)["daemonId"] for (body,) in cluster.rows(query))


def _load(server: Server, request: Request, connections: int, options: Options) -> Run:
    return load(server, request, connections=connections, seconds=options.seconds, cpus=())
