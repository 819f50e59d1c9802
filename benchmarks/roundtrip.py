"""The cost of a request to a machine and back, and of the programs at rest."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from benchmarks.command import Options, main
from benchmarks.machine_agent import machine_agent
from benchmarks.processes import SERVING, BenchmarkError, Program, Stage, free_port, stage
from benchmarks.report import Figure, Report, Section, Target, compared, plural
from benchmarks.service import Installation, Server
from benchmarks.sides import Account, Run, Sides, in_turns, side_by_side
from benchmarks.wrk import Request, require_wrk

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
    figures = []
    first: list[Start] = []
    second: list[Start] = []
    for number in range(_STARTS):
        installation = Installation(here, f"idle-{number}")
        first.append(_start(installation))
        second.append(_start(installation))
    for name, starts, target in (
        ("second start", second, _START),
        ("first start, with migrations,", first, None),
    ):
        figures += [
            Figure(f"service: {name} to /readyz", "s", [s.seconds for s in starts], target=target),
            Figure("  of it processor time", "s", [start.cpu for start in starts]),
            Figure(
                "  then idle memory (RSS)",
                "MB",
                [start.resident for start in starts],
                target=_SERVICE_MEMORY,
            ),
            Figure("  then idle memory (PSS)", "MB", [start.shared for start in starts]),
        ]
    return Section("At rest", [*figures, *_agent(installation)])


def _start(installation: Installation) -> Start:
    began = time.perf_counter()
    program = installation.serve("").program
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


def _agent(installation: Installation) -> list[Figure]:
    """Return the memory of the real machine agent, connected and idle."""
    with machine_agent(installation) as agent:
        resident, shared = _memory(agent.program)
        children = agent.program.children_memory() / _MEGABYTE
    return [
        Figure("machine agent: idle memory (RSS)", "MB", [resident], target=_AGENT_MEMORY),
        Figure("machine agent: idle memory (PSS)", "MB", [shared]),
        Figure("machine agent: its children (RSS)", "MB", [children]),
    ]


ALONE: Final = 1
TOGETHER: Final = 32


def benchmark(options: Options) -> Report:
    """Measure what the programs cost at rest, then the round trip."""
    require_wrk()
    with stage() as here:
        at_rest = _at_rest(here, options)
        with side_by_side(here, _bare) as sides:
            _check_same(sides)
            sections = [_compare(name, sides, options) for name in sides.requests()]
    return Report(benchmark="roundtrip", sections=[*sections, at_rest])


def _bare(here: Stage, _: Installation, account: Account) -> Server:
    return start_baseline(here, account.daemon_id, account.key, SERVING)


def start_baseline(here: Stage, daemon_id: str, key: str, cpus: Sequence[int] = ()) -> Server:
    """Start the bare baseline with one machine, and wait until it is ready."""
    port = free_port()
    baseline = Server(
        here.start(
            "baseline",
            ["-m", "benchmarks.programs.bare_service", str(port), daemon_id],
            {"KEY": key},
            cpus,
        ),
        f"http://127.0.0.1:{port}",
        key,
    )
    baseline.program.wait_until(lambda: baseline.answers("/api/v1/daemons"), "ready")
    return baseline


def _check_same(sides: Sides) -> None:
    """See that both sides give the same answers, but for the moments in them."""
    for name, request in sides.requests().items():
        ours, theirs = (
            msgspec.json.decode(_ask(server, request))
            for server in (sides.outrider, sides.baseline)
        )
        for daemon in (d for body in (ours, theirs) for d in body.get("daemons", ())):
            del daemon["connectedAt"], daemon["lastSeenAt"]
        if ours != theirs:
            raise BenchmarkError(f"{name}: the baseline does not answer what the service answers")


def _ask(server: Server, request: Request) -> bytes:
    if request.body is None:
        return server.get(request.path)
    return server.post(request.path, request.body.encode())


def _compare(name: str, sides: Sides, options: Options) -> Section:
    """Measure one request on both sides, in turns."""
    figures = []
    for connections in (ALONE, TOGETHER):
        runs = in_turns(name, sides, connections, options)
        figures += [
            compared(f"{what}, {plural(connections, 'connection')}", unit, runs, value, target)
            for what, unit, value, target in _FIGURES[connections]
        ]
    return Section(title=name, figures=figures)


_THROUGHPUT: Final = Target("at least", 0.6, of="ratio")
_LATENCY: Final = Target("at most", 1.7, of="ratio")

_FIGURES: Final[dict[int, list[tuple[str, str, Callable[[Run], float], Target | None]]]] = {
    ALONE: [
        ("median latency", "us", lambda run: run.load.p50, _LATENCY),
        ("99th percentile", "us", lambda run: run.load.p99, None),
    ],
    TOGETHER: [
        ("throughput", "requests/s", lambda run: run.load.per_second, _THROUGHPUT),
        ("median latency", "us", lambda run: run.load.p50, None),
        ("processor time", "us/request", lambda run: run.cpu_per_request, None),
        (
            "server busy",
            "% of a processor",
            lambda run: run.cpu_seconds * 1e8 / run.load.microseconds,
            None,
        ),
    ],
}
"""The figures for each number of connections. The processor time measures the same as the
throughput, with less noise from others on the machine; a server that is not busy was limited by
its load."""


if __name__ == "__main__":
    main({"roundtrip": benchmark})
