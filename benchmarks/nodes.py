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
from benchmarks.fleet import MACHINES, PER_ACCOUNT, enroll, status_request
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
from benchmarks.service import Installation, status_path
from benchmarks.simulator import simulated
from outrider.service.database.engine import Database

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
        self.machines = enroll(self._first, account, bench.machines or MACHINES)
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
    request = status_request(cluster.machines[:PER_ACCOUNT])
    figures = []
    with simulated(cluster.machines, cluster.one) as fleet:
        fleet.connect(PER_ACCOUNT)
        for connections in (1, 32):
            name = plural(connections, "connection")
            run = partial(
                load, request=request, connections=connections, seconds=bench.seconds, cpus=()
            )
            runs = bench.in_turns(
                f"across nodes, {name}", partial(run, cluster.other), partial(run, cluster.one)
            )
            figures += [measure.of(runs, f", {name}") for measure in _CROSSING]
    return Section("GET …/status by another node, the baseline being the machine's own", figures)


def _killed(cluster: Cluster, bench: Bench) -> Section:
    """Kill a node that has half of the machines, while commands go on."""
    count = len(cluster.machines)
    bench.progress(f"{count:,} machines connect to two nodes")
    # A webhook that nothing listens on, so that the account's events are stored.
    url = f"http://127.0.0.1:{free_port()}/"
    cluster.other.add_webhook(cluster.other.log_in(), url, "machine:disconnected")
    with simulated(cluster.machines, cluster.one, cluster.other) as fleet:
        seconds = fleet.connect(count)
        query = f"SELECT id FROM machines WHERE node = '{cluster.node}'"
        held = {row[0] for row in cluster.rows(query)}
        asked = [machine.daemon_id for machine in cluster.machines[:PER_ACCOUNT]]
        away = [daemon_id for daemon_id in asked if daemon_id in held][:_NOT_RECONNECTING]
        fleet.away = away
        staying = [status_path(daemon_id) for daemon_id in asked if daemon_id not in away]
        clients = Clients(cluster.one, 3 * _COMMAND_TIMEOUT)

        async def request_statuses() -> None:
            while not clients.is_ending:
                node = random.choice([cluster.one, cluster.other])
                await clients.request("commands", "GET", node.url + random.choice(staying))
                await asyncio.sleep(0.02)

        async def commands() -> None:
            await asyncio.gather(*(request_statuses() for _ in range(_CLIENTS)))

        with clients.running(commands()):
            time.sleep(2)
            bench.progress(f"a node with {len(held):,} machines is killed")
            cluster.one.program.process.kill()
            began = time.monotonic()
            time.sleep(1)  # until the machines have noticed
            fleet.wait_until_connected(count - len(away), _RECONNECT_SECONDS)
            seconds_away = time.monotonic() - began
            longest_away = fleet.status.longest_away
            bench.progress("waiting for the events of those that do not reconnect")
            events = _disconnected(cluster, len(away))
    not_once = sum(events[machine] != 1 for machine in away)
    others = events.total() - sum(events[machine] for machine in away)
    once = f"of {len(away)} that do not reconnect, without exactly one event"
    return Section(
        f"A node with {len(held):,} of {count:,} machines is killed",
        [
            Figure("connect, until all are welcome", "1/s", [count / seconds]),
            Figure("until all have reconnected", "s", [seconds_away], target=_RECONNECTED),
            Figure("longest absence of a machine", "s", [longest_away]),
            Figure("slowest answer to a command", "s", [max(clients.latencies)], target=_ANSWERED),
            *counted(clients.outcomes),
            Figure(once, "machines", [not_once], target=NONE),
            Figure("events of machines that reconnected", "", [others], target=NONE),
        ],
    )


def _disconnected(cluster: Cluster, expected: int) -> Counter[str]:
    """Return the number of events of each machine's end, once there are enough of them."""
    query = "SELECT body FROM events WHERE name = 'machine:disconnected'"
    deadline = time.monotonic() + _GONE_SECONDS
    while len(cluster.rows(query)) < expected and time.monotonic() < deadline:
        time.sleep(1)
    time.sleep(5)  # for any that would be too many
    return Counter(msgspec.json.decode(body)["daemonId"] for (body,) in cluster.rows(query))
