"""Measures several nodes: a command that crosses them, one that is killed, and workers.

The nodes share a private PostgreSQL and Redis. Everything, the load and the machines too, shares
the processors.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from redis import Redis as Client
from sqlalchemy import text
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError

from benchmarks.clients import Clients
from benchmarks.command import Options, main
from benchmarks.fleet import (
    MACHINES,
    PER_ACCOUNT,
    Fleet,
    enroll,
    raise_file_limit,
    status_request,
)
from benchmarks.processes import BenchmarkError, Stage, free_port, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.roundtrip import start_baseline
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator.control import DisableReconnect
from benchmarks.simulator.machine import Enrolled
from benchmarks.wrk import Load, Request, load, require_wrk
from outrider.cloud.settings import Settings
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
        account, self.key = first.new_account()
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


class Used(NamedTuple):
    """What PostgreSQL and Redis have done by a moment (seconds), and Redis' memory in bytes."""

    at: float
    commits: int
    rows: int
    commands: int
    memory: int


def benchmark(options: Options) -> Report:
    """Measure a command that crosses nodes, the death of a node, and several workers."""
    require_wrk()
    machines = options.machines or MACHINES
    raise_file_limit(machines + 500)
    with ExitStack() as running:
        here = running.enter_context(stage())
        try:
            postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())
        except NotInstalledError as error:
            raise BenchmarkError(str(error)) from error
        cluster = Cluster(here, postgres, redis, machines)
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
    fleet = Fleet(cluster.here, cluster.machines, cluster.file, [one.websocket_url])
    fleet.connect(PER_ACCOUNT)
    request = status_request(cluster.machines[:PER_ACCOUNT])
    figures = []
    for connections in (1, 32):
        runs = options.in_turns(
            f"across nodes, {plural(connections, 'connection')}",
            partial(_load, other, request, connections, options.seconds),
            partial(_load, one, request, connections, options.seconds),
        )
        name = plural(connections, "connection")
        figures += [
            compared(f"median, {name}", "us", runs, lambda run: run.p50, _CROSSING),
            compared(f"99th percentile, {name}", "us", runs, lambda run: run.p99),
        ]
    fleet.end()
    return Section(
        title="GET …/status by another node, the baseline being the machine's own", figures=figures
    )


def _killed(cluster: Cluster, one: Server, node: str, other: Server, options: Options) -> Section:
    """Kill a node that holds half of the machines, while commands go on."""
    count = len(cluster.machines)
    options.progress(f"{count:,} machines connect to two nodes")
    _subscribe(other)
    fleet = Fleet(
        cluster.here, cluster.machines, cluster.file, [one.websocket_url, other.websocket_url]
    )
    before = cluster.used()
    seconds, _ = fleet.connect(count)
    stores = _stores(cluster, before, count, options)
    held = {row[0] for row in cluster.rows(f"SELECT id FROM machines WHERE node = '{node}'")}
    asked = cluster.machines[:PER_ACCOUNT]
    away = [machine.daemon_id for machine in asked if machine.daemon_id in held][:_NOT_RECONNECTING]
    fleet.simulator.send(DisableReconnect(away))
    reconnecting = count - len(away)
    with StatusClients([one, other], [m for m in asked if m.daemon_id not in away]) as clients:
        time.sleep(2)
        options.progress(f"a node with {len(held):,} machines is killed")
        os.kill(one.program.pid, signal.SIGKILL)
        began = time.monotonic()
        time.sleep(1)  # until the simulator has noticed
        status = fleet.simulator.wait_for(reconnecting, _RECONNECT_SECONDS)
        seconds_away = time.monotonic() - began
        if status.connected < reconnecting:
            raise BenchmarkError(f"after {seconds_away:.0f} s not all are back: {status}")
        options.progress("waiting for the events of those that do not reconnect")
        events = _disconnected(cluster, len(away))
    clients.check()
    fleet.end()
    return Section(
        title=f"A node with {len(held):,} of {count:,} machines is killed",
        figures=[
            Figure("connect, until all are welcome", "1/s", [count / seconds]),
            *stores,
            Figure("until all have reconnected", "s", [seconds_away], target=_RECONNECTED),
            Figure("longest absence of a machine", "s", [status.longest_away]),
            Figure("slowest answer to a command", "s", [max(clients.latencies)], target=_ANSWERED),
            *(
                Figure(outcome, "", [number])
                for outcome, number in sorted(clients.outcomes.items())
            ),
            Figure(
                f"of {len(away)} that do not reconnect, without exactly one event",
                "machines",
                [sum(events[machine] != 1 for machine in away)],
                target=_NONE,
            ),
            Figure(
                "events of machines that reconnected",
                "",
                [sum(events.values()) - sum(events[machine] for machine in away)],
                target=_NONE,
            ),
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


def _workers(cluster: Cluster, options: Options) -> Section:
    """Measure one, two and four processes on one port, beside the bare baseline of one."""
    request = status_request(cluster.machines[:PER_ACCOUNT])
    figures = []
    for workers in _WORKERS:
        options.progress(f"workers: {workers}")
        installation = cluster.installation(f"workers-{workers}")
        arguments = ["--workers", str(workers)] if workers > 1 else []
        server = installation.serve(cluster.key, options=arguments)
        fleet = Fleet(cluster.here, cluster.machines, cluster.file, [server.websocket_url])
        fleet.connect(PER_ACCOUNT)
        runs = [_load(server, request, 32, options.seconds) for _ in range(options.rounds)]
        figures.append(
            Figure(
                f"{workers} process{'es'[: 2 * (workers > 1)]}, 32 connections",
                "requests/s",
                [run.per_second for run in runs],
            )
        )
        fleet.end()
        server.program.end()
    baseline = _bare(cluster, options)
    for figure in figures:
        figure.baseline = baseline
    return Section(
        title="GET …/status by several processes, PostgreSQL and Redis; the baseline is one "
        "bare process (benchmarks/programs/bare_service.py)",
        figures=figures,
    )


def _bare(cluster: Cluster, options: Options) -> list[float]:
    options.progress("the bare baseline")
    machine = cluster.machines[0]
    server = start_baseline(cluster.here, machine.daemon_id, cluster.key)
    fleet = Fleet(cluster.here, cluster.machines, cluster.file, [server.websocket_url])
    fleet.connect(1)
    runs = [
        _load(server, status_request([machine]), 32, options.seconds) for _ in range(options.rounds)
    ]
    fleet.end()
    server.program.end()
    return [run.per_second for run in runs]


class StatusClients(Clients):
    """Clients that ask machines for their status through any of these nodes, one by one."""

    def __init__(self, servers: list[Server], machines: list[Enrolled]) -> None:
        super().__init__(servers[0].headers, 3 * _COMMAND_TIMEOUT)
        self._urls = [server.url for server in servers]
        self._machines = machines

    async def work(self) -> None:
        """Make requests on `_CLIENTS` connections."""
        await asyncio.gather(*(self._ask() for _ in range(_CLIENTS)))

    async def _ask(self) -> None:
        while not self.is_ending:
            url = random.choice(self._urls) + status_path(random.choice(self._machines).daemon_id)
            await self.request("commands", "GET", url)
            await asyncio.sleep(0.02)


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
    """Add a webhook that nothing listens on, so that the account's events are stored."""
    session = server.log_in()
    server.add_webhook(session, f"http://127.0.0.1:{free_port()}/", "machine:disconnected")


def _load(server: Server, request: Request, connections: int, seconds: int) -> Load:
    return load(server, request, connections=connections, seconds=seconds, cpus=[])


async def _rows(url: str, query: str) -> list[Any]:
    database = Database(url)
    try:
        async with database.read() as transaction:
            return list(await transaction.execute(text(query)))
    finally:
        await database.close()


if __name__ == "__main__":
    main({"nodes": benchmark})
