"""Two nodes that share a private PostgreSQL and Redis: a command between them, and a node's death.

Everything, the load and the machines too, shares the processors.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import text
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError, free_port

from benchmarks.bench import Bench, Sections
from benchmarks.fleet import MACHINES, PER_ACCOUNT, Machines
from benchmarks.load import Clients, load
from benchmarks.report import (
    NONE,
    Figure,
    Measure,
    Section,
    Target,
    counted,
    not_measured,
    plural,
)
from benchmarks.service import Installation, Server, status_path
from benchmarks.simulator import Order
from outrider.cloud.store.database import Database

_COMMAND_TIMEOUT: Final = 10.0
_NOT_RECONNECTING: Final = 10
_CLIENTS: Final = 8
_RECONNECT_SECONDS: Final = 120.0
_GONE_SECONDS: Final = 120.0

_CROSSING: Final = (
    Measure("median", "us", lambda run: run.p50, Target("at most", 2.5, of="ratio")),
    Measure("99th percentile", "us", lambda run: run.p99),
)
_RECONNECTED: Final = Target("at most", 60)
_ANSWERED: Final = Target("at most", _COMMAND_TIMEOUT + 1)


class Cluster:
    """Two nodes, and the machines that are enrolled there."""

    def __init__(self, bench: Bench, postgres: Postgres, redis: Redis) -> None:
        settings = {
            "OUTRIDER_DATABASE_URL": postgres.create("fleet"),
            "OUTRIDER_REDIS_URL": redis.url(),
            "OUTRIDER_SECRET_KEY": "a secret key of the benchmark, long enough",
            "OUTRIDER_COMMAND_TIMEOUT": str(_COMMAND_TIMEOUT),
            "OUTRIDER_DRAIN_DELAY": "0",
        }
        installations = [
            Installation(bench.stage, f"node-{n}", settings=settings) for n in range(2)
        ]
        self._first = installations[0]
        account, key = self._first.new_account()
        self.machines = Machines(self._first, account, bench.machines or MACHINES)
        self.one = installations[0].serve(key)
        (self.node,) = self.rows("SELECT id FROM nodes")[0]
        self.other = installations[1].serve(key)

    def rows(self, query: str) -> Sequence[Any]:
        """Return the rows that a query finds."""

        async def find(database: Database) -> Sequence[Any]:
            async with database.read() as transaction:
                return list(await transaction.execute(text(query)))

        return self._first.in_database(find)


def nodes(bench: Bench) -> Sections:
    """Measure a command that crosses nodes, then the death of a node."""
    with ExitStack() as running:
        try:
            postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())
        except NotInstalledError as error:
            yield not_measured("Several nodes", str(error))
            return
        cluster = Cluster(bench, postgres, redis)
        yield _crossing(cluster, bench)
        yield _killed(cluster, bench)


def _crossing(cluster: Cluster, bench: Bench) -> Section:
    """Request the status of machines of one node through that one and the other, in turns."""
    fleet = cluster.machines.simulated(cluster.one)
    fleet.connect(PER_ACCOUNT)
    request = cluster.machines.status_request()
    figures = []
    for connections in (1, 32):
        name = plural(connections, "connection")
        settings = {"connections": connections, "seconds": bench.seconds, "cpus": ()}
        other, one = (
            partial(load, node, request, **settings)  # type: ignore[arg-type]
            for node in (cluster.other, cluster.one)
        )
        runs = bench.in_turns(f"across nodes, {name}", other, one)
        figures += [measure.of(runs, f", {name}") for measure in _CROSSING]
    fleet.end()
    return Section("GET …/status by another node, the baseline being the machine's own", figures)


def _killed(cluster: Cluster, bench: Bench) -> Section:
    """Kill a node that has half of the machines, while commands go on."""
    count = len(cluster.machines.all)
    bench.progress(f"{count:,} machines connect to two nodes")
    # A webhook that nothing listens on, so that the account's events are stored.
    url = f"http://127.0.0.1:{free_port()}/"
    cluster.other.add_webhook(cluster.other.log_in(), url, "machine:disconnected")
    fleet = cluster.machines.simulated(cluster.one, cluster.other)
    seconds = fleet.connect(count)
    query = f"SELECT id FROM machines WHERE node = '{cluster.node}'"
    held = {row[0] for row in cluster.rows(query)}
    asked = [machine.daemon_id for machine in cluster.machines.all[:PER_ACCOUNT]]
    away = [daemon_id for daemon_id in asked if daemon_id in held][:_NOT_RECONNECTING]
    fleet.order(Order(away=away))
    staying = [daemon_id for daemon_id in asked if daemon_id not in away]
    with _StatusClients([cluster.one, cluster.other], staying) as clients:
        time.sleep(2)
        bench.progress(f"a node with {len(held):,} machines is killed")
        cluster.one.program.process.kill()
        began = time.monotonic()
        time.sleep(1)  # until the simulator has noticed
        status = fleet.wait_for(
            lambda status: status.connected >= count - len(away), _RECONNECT_SECONDS
        )
        seconds_away = time.monotonic() - began
        bench.progress("waiting for the events of those that do not reconnect")
        events = _disconnected(cluster, len(away))
    clients.check()
    not_once = sum(events[machine] != 1 for machine in away)
    others = events.total() - sum(events[machine] for machine in away)
    once = f"of {len(away)} that do not reconnect, without exactly one event"
    return Section(
        f"A node with {len(held):,} of {count:,} machines is killed",
        [
            Figure("connect, until all are welcome", "1/s", [count / seconds]),
            Figure("until all have reconnected", "s", [seconds_away], target=_RECONNECTED),
            Figure("longest absence of a machine", "s", [status.longest_away]),
            Figure("slowest answer to a command", "s", [max(clients.latencies)], target=_ANSWERED),
            *counted(clients.outcomes),
            Figure(once, "machines", [not_once], target=NONE),
            Figure("events of machines that reconnected", "", [others], target=NONE),
        ],
    )


class _StatusClients(Clients):
    """Clients that request machines' status through any of these nodes."""

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
    """Return the number of events of each machine's end, once there are enough of them."""
    query = "SELECT body FROM events WHERE name = 'machine:disconnected'"
    deadline = time.monotonic() + _GONE_SECONDS
    while len(cluster.rows(query)) < expected and time.monotonic() < deadline:
        time.sleep(1)
    time.sleep(5)  # for any that would be too many
    return Counter(msgspec.json.decode(body)["daemonId"] for (body,) in cluster.rows(query))
