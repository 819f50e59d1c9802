"""Measures one node with a large fleet: what a machine costs it, and what it costs the others."""

import time
from typing import Final

from benchmarks.command import Options
from benchmarks.fleet.control import GetStatus, SetTurnRate
from benchmarks.fleet.enrollment import MACHINES, PER_ACCOUNT
from benchmarks.fleet.site import Fleet, started, status_request
from benchmarks.processes import BenchmarkError, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.service import Server
from benchmarks.sides import Run
from benchmarks.wrk import Request, load, require_wrk

FEW: Final = 10

_CONNECTIONS: Final = (1, 32)
_SETTLE_SECONDS: Final = 25
"""Beyond one round of heartbeats."""

_ROUND_SECONDS: Final = 20
_TURN_SECONDS: Final = 300
"""A machine's agent begins or ends a turn that often, where the fleet is at work."""

_MEMORY: Final = Target("at most", 40)
_LATENCY: Final = Target("at most", 1.5, of="ratio")


def benchmark(options: Options) -> Report:
    """Measure with ten machines, then with all of them."""
    require_wrk()
    machines = options.machines or MACHINES
    with stage() as here:
        options.progress(f"{machines:,} machines are enrolled")
        server, fleet = started(here, machines)
        fleet.connect(FEW)
        few = _latencies(server, fleet, f"{FEW} machines", options)
        costs = _costs(server, fleet, machines, options)
        at_rest = next(f.value or 0 for f in costs if f.name.startswith("at rest"))
        many = _latencies(server, fleet, f"{machines:,} machines", options)
        status = fleet.simulator.send(GetStatus())
        if status.connected < machines or status.closed:
            raise BenchmarkError(f"machines were lost: {status}")
    return Report(
        benchmark="fleet",
        sections=[
            Section(title=f"{machines:,} machines on one node, SQLite", figures=costs),
            Section(
                title=f"GET …/status with {machines:,} machines, the baseline being with {FEW}",
                figures=[
                    figure
                    for connections in _CONNECTIONS
                    for figure in _compared(connections, many, few, at_rest)
                ],
            ),
        ],
    )


def _costs(server: Server, fleet: Fleet, count: int, options: Options) -> list[Figure]:
    """Connect every machine; return what that costs, and what they cost at rest and at work."""
    program = server.program
    before, cpu = program.memory(), program.cpu_seconds()
    options.progress(f"{count:,} machines connect")
    seconds, _ = fleet.connect(count)
    connecting = program.cpu_seconds() - cpu
    options.progress("they are at rest")
    time.sleep(_SETTLE_SECONDS)
    at_rest = _busy(server)
    resident, shared = (
        (now - then) / (count - FEW) / 1000
        for now, then in zip(program.memory(), before, strict=True)
    )
    options.progress("they are at work")
    fleet.simulator.send(SetTurnRate(count / _TURN_SECONDS))
    at_work = _busy(server)
    fleet.simulator.send(SetTurnRate(0))
    return [
        Figure("memory of a machine (RSS)", "KB", [resident], target=_MEMORY),
        Figure("memory of a machine (PSS)", "KB", [shared]),
        Figure("connect, until all are welcome", "1/s", [(count - FEW) / seconds]),
        Figure("connect, processor time", "us each", [connecting / (count - FEW) * 1e6]),
        Figure("at rest: heartbeats and pings", "% of a processor", at_rest),
        Figure(
            f"at work: a turn begins or ends every {_TURN_SECONDS} s", "% of a processor", at_work
        ),
    ]


def _busy(server: Server) -> list[float]:
    """Return how busy the service is in two rounds of heartbeats."""
    found = []
    for _ in range(2):
        before, began = server.program.cpu_seconds(), time.perf_counter()
        time.sleep(_ROUND_SECONDS)
        used = server.program.cpu_seconds() - before
        found.append(used / (time.perf_counter() - began) * 100)
    return found


def _latencies(server: Server, fleet: Fleet, name: str, options: Options) -> dict[int, list[Run]]:
    """Ask the account's connected machines for their agent's status, in turns."""
    connected = fleet.simulator.send(GetStatus()).connected
    request = status_request(fleet.machines[: min(connected, PER_ACCOUNT)])
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        _load(server, request, connections, seconds=1)  # warm up
        for _ in options.each_round(f"{name}, connections: {connections}"):
            run = _load(server, request, connections, options.seconds)
            runs.setdefault(connections, []).append(run)
    return runs


def _load(server: Server, request: Request, connections: int, seconds: int) -> Run:
    before = server.program.cpu_seconds()
    seen = load(
        server, request, connections=connections, seconds=seconds, cpus=split_processors()[1]
    )
    return Run(seen, server.program.cpu_seconds() - before)


def _own_cost(run: Run, at_rest: float) -> float:
    """Return the microseconds of a processor for each request, without the share of the rest.

    On a busy computer there are few requests in a run, and as many heartbeats as ever.
    """
    rest = run.load.microseconds * at_rest / 100
    return run.cpu_per_request - rest / run.load.requests


def _compared(
    connections: int, many: dict[int, list[Run]], few: dict[int, list[Run]], at_rest: float
) -> list[Figure]:
    name = plural(connections, "connection")
    runs = many[connections], few[connections]
    return [
        compared(f"median latency, {name}", "us", runs, lambda run: run.load.p50, _LATENCY),
        compared(f"99th percentile, {name}", "us", runs, lambda run: run.load.p99, _LATENCY),
        Figure(
            f"processor time beside that at rest, {name}",
            "us/request",
            [_own_cost(run, at_rest) for run in many[connections]],
            baseline=[run.cpu_per_request for run in few[connections]],
        ),
    ]
