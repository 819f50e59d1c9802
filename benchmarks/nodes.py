"""Two nodes that share a private PostgreSQL and Redis: what a command between them costs.

Everything, the load and the machines too, shares the processors.
"""

from contextlib import ExitStack
from functools import partial
from typing import Final

from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import NotInstalledError

from benchmarks.bench import Bench, Sections
from benchmarks.fleet import PER_ACCOUNT, enroll, status_request
from benchmarks.load import load
from benchmarks.report import (
    Measure,
    Section,
    Target,
    not_measured,
    plural,
)
from benchmarks.service import Installation, Server
from benchmarks.simulator import simulated
from outrider.contract.enrollment import Enrolled

_CROSSING: Final = (
    Measure("median", "us", lambda run: run.p50, Target("at most", 2.5, of="ratio")),
    Measure("99th percentile", "us", lambda run: run.p99),
)


def nodes(bench: Bench) -> Sections:
    """Measure a command that crosses nodes."""
    with ExitStack() as running:
        try:
            postgres, redis = running.enter_context(Postgres()), running.enter_context(Redis())
        except NotInstalledError as error:
            yield not_measured("Several nodes", str(error))
            return
        settings = {
            "OUTRIDER_DATABASE_URL": postgres.create("fleet"),
            "OUTRIDER_REDIS_URL": redis.url(),
            "OUTRIDER_SECRET_KEY": "a secret key of the benchmark, long enough",
            "OUTRIDER_DRAIN_DELAY": "0",
        }
        first, second = (
            Installation(bench.stage, f"node-{number}", settings=settings) for number in range(2)
        )
        account, key = first.new_account()
        machines = enroll(first, account, PER_ACCOUNT)
        yield _crossing(machines, first.serve(key), second.serve(key), bench)


def _crossing(machines: list[Enrolled], own: Server, other: Server, bench: Bench) -> Section:
    """Request the status of machines of one node through that one and the other, in turns."""
    request = status_request(machines)
    figures = []
    with simulated(machines, own) as fleet:
        fleet.connect(len(machines))
        for connections in (1, 32):
            name = plural(connections, "connection")
            run = partial(
                load, request=request, connections=connections, seconds=bench.seconds, cpus=()
            )
            runs = bench.in_turns(f"across nodes, {name}", partial(run, other), partial(run, own))
            figures += [measure.of(runs, f", {name}") for measure in _CROSSING]
    return Section("GET …/status by another node, the baseline being the machine's own", figures)
