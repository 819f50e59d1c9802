"""The cost of a request to a machine and back, and of the programs at rest."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from tests.servers.server import free_port

from benchmarks.command import Options
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import SERVING, BenchmarkError, Program, Stage, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.service import Installation, Server
from benchmarks.sides import Sides, side_by_side
from benchmarks.wrk import Run, require_wrk

_MEGABYTE: Final = 1e6
_SETTLE_SECONDS: Final = 2.0
_STARTS: Final = 3

_START: Final = Target("at most", 1.0)
_SERVICE_MEMORY: Final = Target("at most", 85)
_AGENT_MEMORY: Final = Target("at most", 70)


class Start(NamedTuple):
    """A start of the service: seconds to a 200 on /readyz, of a processor, and idle memory."""

    seconds: float
    cpu: float
    resident: float
    shared: float


def _at_rest(here: Stage, options: Options) -> Section:
    """Measure starts and idle memory, on installations of their own."""
    options.progress("start-up and idle memory")
    installations = [Installation(here, f"idle-{number}") for number in range(_STARTS)]
    first = [_start(installation) for installation in installations]
    second = [_start(installation) for installation in installations]
    figures = []
    for name, starts, target in (
        ("second start", second, _START),
        ("first start, of an empty directory,", first, None),
    ):
        seconds, cpu, resident, shared = map(list, zip(*starts, strict=True))
        figures += [
            Figure(f"service: {name} to /readyz", "s", seconds, target=target),
            Figure("  of it processor time", "s", cpu),
            Figure("  then idle memory (RSS)", "MB", resident, target=_SERVICE_MEMORY),
            Figure("  then idle memory (PSS)", "MB", shared),
        ]
    with machine_agent(Installation(here, "agent")) as agent:
        resident_agent, shared_agent = _memory(agent.program)
        children = agent.program.process.children(recursive=True)
        of_children = sum(child.memory_info().rss for child in children) / _MEGABYTE
    figures += [
        Figure("machine agent: idle memory (RSS)", "MB", [resident_agent], target=_AGENT_MEMORY),
        Figure("machine agent: idle memory (PSS)", "MB", [shared_agent]),
        Figure("machine agent: its children (RSS)", "MB", [of_children]),
    ]
    return Section("At rest", figures)


def _start(installation: Installation) -> Start:
    began = time.perf_counter()
    program = installation.serve().program
    seconds, cpu = time.perf_counter() - began, program.cpu_seconds()
    start = Start(seconds, cpu, *_memory(program))
    program.end()
    return start


def _memory(program: Program) -> tuple[float, float]:
    """Return the program's RSS and PSS in megabytes, once it has had time to settle."""
    time.sleep(_SETTLE_SECONDS)
    program.check()
    resident, shared = program.memory()
    return resident / _MEGABYTE, shared / _MEGABYTE


ALONE: Final = 1
TOGETHER: Final = 32


def benchmark(options: Options) -> Report:
    """Measure what the programs cost at rest, then the round trip."""
    require_wrk()
    with stage() as here:
        at_rest = _at_rest(here, options)
        with side_by_side(
            here,
            lambda _, account, daemons: start_baseline(
                here, account.daemon_id, account.key, daemons, SERVING
            ),
        ) as sides:
            _check_same(sides)
            sections = [_compare(name, sides, options) for name in sides.requests]
    return Report(benchmark="roundtrip", sections=[*sections, at_rest])


def start_baseline(
    here: Stage, daemon_id: str, key: str, daemons: bytes = b"{}", cpus: Sequence[int] = ()
) -> Server:
    """Start the bare baseline for one machine, and wait until it is ready.

    Args:
        daemons: what it answers to `GET /daemons`.
    """
    port = free_port()
    arguments = ["-m", "benchmarks.programs.bare_service", str(port), daemon_id]
    program = here.start("baseline", arguments, {"KEY": key, "DAEMONS": daemons.decode()}, cpus)
    baseline = Server(program, f"http://127.0.0.1:{port}", key)
    program.wait_until(lambda: baseline.answers("/api/v1/daemons"), "ready")
    return baseline


def _check_same(sides: Sides) -> None:
    """See that both sides give the same answers."""
    for name, request in sides.requests.items():
        ours, theirs = (
            msgspec.json.decode(
                server.request(request.method, request.path, content=request.body).content
            )
            for server in (sides.outrider, sides.baseline)
        )
        for daemon in (d for body in (ours, theirs) for d in body.get("daemons", ())):
            del daemon["lastSeenAt"]
        if ours != theirs:
            raise BenchmarkError(f"{name}: the baseline does not answer what the service answers")


def _compare(name: str, sides: Sides, options: Options) -> Section:
    """Measure one request on both sides, in turns."""
    figures = []
    for connections in (ALONE, TOGETHER):
        runs = sides.in_turns(name, connections, options)
        figures += [
            compared(f"{what}, {plural(connections, 'connection')}", unit, runs, value, target)
            for what, unit, value, target in _FIGURES[connections]
        ]
    return Section(title=name, figures=figures)


_THROUGHPUT: Final = Target("at least", 0.6, of="ratio")
_LATENCY: Final = Target("at most", 1.7, of="ratio")

_FIGURES: Final[dict[int, list[tuple[str, str, Callable[[Run], float], Target | None]]]] = {
    ALONE: [
        ("median latency", "us", lambda run: run.p50, _LATENCY),
        ("99th percentile", "us", lambda run: run.p99, None),
    ],
    TOGETHER: [
        ("throughput", "requests/s", lambda run: run.per_second, _THROUGHPUT),
        ("median latency", "us", lambda run: run.p50, None),
        ("processor time", "us/request", lambda run: run.cpu_per_request, None),
        (
            "server busy",
            "% of a processor",
            lambda run: run.cpu_seconds * 1e8 / run.microseconds,
            None,
        ),
    ],
}
"""The figures for each number of connections. The processor time measures the same as the
throughput, with less noise from others on the machine; a server that is not busy was limited by
its load."""
