"""Measures one node with a large fleet: what a machine costs it, and what it costs the others."""

import time
from typing import Final

from rich.console import Console

from benchmarks.command import Effort
from benchmarks.fleet.enrollment import PER_ACCOUNT
from benchmarks.fleet.orders import Tell, Work
from benchmarks.fleet.site import Fleet, started
from benchmarks.processes import BenchmarkError, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target
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


def benchmark(effort: Effort, progress: Console) -> Report:
    """Measure with ten machines, then with all of them."""
    require_wrk()
    with stage() as here:
        progress.print(f"{effort.machines:,} machines are enrolled", style="dim")
        server, fleet = started(here, effort.machines)
        fleet.connect(FEW)
        few = _latencies(server, fleet, f"{FEW} machines", effort, progress)
        costs = _costs(server, fleet, effort.machines, progress)
        at_rest = next(f.value or 0 for f in costs if f.name.startswith("at rest"))
        many = _latencies(server, fleet, f"{effort.machines:,} machines", effort, progress)
        told = fleet.orders.give(Tell())
        if told.connected < effort.machines or told.closed:
            raise BenchmarkError(f"machines were lost: {told}")
    return Report(
        benchmark="fleet",
        sections=[
            Section(title=f"{effort.machines:,} machines on one node, SQLite", figures=costs),
            Section(
                title=f"GET …/status with {effort.machines:,} machines, "
                f"the baseline being with {FEW}",
                figures=[
                    figure
                    for connections in _CONNECTIONS
                    for figure in _compared(connections, many, few, at_rest)
                ],
            ),
        ],
    )


def _costs(server: Server, fleet: Fleet, count: int, progress: Console) -> list[Figure]:
    """Have every machine connect, and return what that costs, then and at rest."""
    program = server.program
    before, cpu = program.memory(), program.cpu_seconds()
    progress.print(f"{count:,} machines connect", style="dim")
    seconds, _ = fleet.connect(count)
    connecting = program.cpu_seconds() - cpu
    progress.print("they are at rest", style="dim")
    time.sleep(_SETTLE_SECONDS)
    at_rest = _busy(server)
    resident, shared = (
        (now - then) / (count - FEW) / 1000
        for now, then in zip(program.memory(), before, strict=True)
    )
    progress.print("they are at work", style="dim")
    fleet.orders.give(Work(count / _TURN_SECONDS))
    at_work = _busy(server)
    fleet.orders.give(Work(0))
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


def _latencies(
    server: Server, fleet: Fleet, name: str, effort: Effort, progress: Console
) -> dict[int, list[Run]]:
    """Ask the account's connected machines for their agent's status, in turns."""
    connected = fleet.orders.give(Tell()).connected
    paths = [
        f"/api/v1/shortcuts/{machine.daemon_id}:cli:claude-code/status"
        for machine in fleet.machines[: min(connected, PER_ACCOUNT)]
    ]
    request = Request("GET", paths[0], others=tuple(paths[1:]))
    runs: dict[int, list[Run]] = {}
    for connections in _CONNECTIONS:
        _load(server, request, connections, seconds=1)  # warm up
        for number in range(effort.rounds):
            progress.print(
                f"{name}, connections: {connections}, round {number + 1} of {effort.rounds}",
                style="dim",
            )
            run = _load(server, request, connections, effort.seconds)
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
    name = f"{connections} connection{'s'[: connections > 1]}"
    return [
        Figure(
            f"median latency, {name}",
            "us",
            [run.load.p50 for run in many[connections]],
            baseline=[run.load.p50 for run in few[connections]],
            target=_LATENCY,
        ),
        Figure(
            f"99th percentile, {name}",
            "us",
            [run.load.p99 for run in many[connections]],
            baseline=[run.load.p99 for run in few[connections]],
            target=_LATENCY,
        ),
        Figure(
            f"processor time beside that at rest, {name}",
            "us/request",
            [_own_cost(run, at_rest) for run in many[connections]],
            baseline=[run.cpu_per_request for run in few[connections]],
        ),
    ]
