"""Measures the service and the baseline in turns, so that a busy moment hits both."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benchmarks.command import Options
from benchmarks.processes import BenchmarkError, Stage, free_port, split_processors, stage
from benchmarks.report import Report, Section, Target, compared, plural
from benchmarks.roundtrip import footprint
from benchmarks.service import Installation, Server
from benchmarks.sides import Account, Run, Sides, in_turns, side_by_side
from benchmarks.wrk import Request, require_wrk

ALONE: Final = 1
TOGETHER: Final = 32


def benchmark(options: Options) -> Report:
    """Measure what the programs cost at rest, then the round trip."""
    require_wrk()
    with stage() as here:
        at_rest = footprint.measure(here, options)
        with side_by_side(here, _bare) as sides:
            _check_same(sides)
            sections = [_compare(name, sides, options) for name in sides.requests()]
    return Report(benchmark="roundtrip", sections=[*sections, at_rest])


def _bare(here: Stage, _: Installation, account: Account) -> Server:
    return start_baseline(here, account.daemon_id, account.key, split_processors()[0])


def start_baseline(here: Stage, daemon_id: str, key: str, cpus: Sequence[int] = ()) -> Server:
    """Start the bare baseline with one machine, and wait until it is ready."""
    port = free_port()
    baseline = Server(
        here.start(
            "baseline",
            ["-m", "benchmarks.roundtrip.baseline", str(port), daemon_id],
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
