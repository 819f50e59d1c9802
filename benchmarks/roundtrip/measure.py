"""Measures the service and the baseline in turns, so that a busy moment hits both."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec
from rich.console import Console

from benchmarks.command import Effort
from benchmarks.processes import BenchmarkError, Stage, free_port, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.roundtrip import footprint
from benchmarks.roundtrip.wrk import Load, Request, load, require_wrk
from benchmarks.service import Installation, Server, enrol

ALONE: Final = 1
TOGETHER: Final = 32

_EMAIL: Final = "bench@outrider.invalid"


class Sides(msgspec.Struct, frozen=True):
    """What is compared, each with a machine of its own connected."""

    outrider: Server
    baseline: Server
    daemon_id: str

    def requests(self) -> dict[str, Request]:
        """Return the requests to measure, by the name that the report gives them."""
        return {
            "GET …/status": Request(
                "GET", f"/api/v1/shortcuts/{self.daemon_id}:cli:claude-code/status"
            ),
            "POST …/command read_chat": Request(
                "POST",
                f"/api/v1/daemons/{self.daemon_id}/command",
                '{"type":"read_chat","payload":{}}',
            ),
            "GET /daemons": Request("GET", "/api/v1/daemons"),
        }


def benchmark(effort: Effort, progress: Console) -> Report:
    """Measure what the programs cost at rest, then the round trip."""
    require_wrk()
    with stage() as here:
        at_rest = footprint.measure(here, progress)
        with _sides(here) as sides:
            _check_same(sides)
            compared = [
                _compare(name, request, sides, effort, progress)
                for name, request in sides.requests().items()
            ]
    return Report(benchmark="roundtrip", sections=[*compared, at_rest])


@contextmanager
def _sides(here: Stage) -> Iterator[Sides]:
    served, loading = split_processors()
    installation = Installation(here, "outrider")
    key = installation.new_key(_EMAIL)
    with ExitStack() as running:
        outrider = installation.serve(key, served)
        running.callback(outrider.program.end)
        daemon_id, token = enrol(outrider, installation.new_code(_EMAIL))
        port = free_port()
        baseline = Server(
            here.start(
                "baseline",
                ["-m", "benchmarks.roundtrip.baseline", str(port), daemon_id],
                {"KEY": key},
                served,
            ),
            f"http://127.0.0.1:{port}",
            key,
        )
        running.callback(baseline.program.end)
        baseline.program.wait_until(lambda: baseline.answers("/api/v1/daemons"), "ready")
        sides = Sides(outrider, baseline, daemon_id)
        path = sides.requests()["GET …/status"].path
        for server in (outrider, baseline):
            machine = here.start(
                "scripted machine",
                ["-m", "benchmarks.scripted_machine", server.websocket_url],
                {"TOKEN": token},
                loading,
            )
            running.callback(machine.end)
            machine.wait_until(lambda server=server: server.answers(path), "connected")  # type: ignore[misc]
        yield sides


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


def _compare(
    name: str, request: Request, sides: Sides, effort: Effort, progress: Console
) -> Section:
    """Measure one request on both sides, in turns."""
    figures = []
    for connections in (ALONE, TOGETHER):
        for server in (sides.outrider, sides.baseline):
            _run(server, request, connections, seconds=1)  # warm up
        ours, theirs = [], []
        for number in range(effort.rounds):
            progress.print(
                f"{name}, connections: {connections}, round {number + 1} of {effort.rounds}",
                style="dim",
            )
            ours.append(_run(sides.outrider, request, connections, effort.seconds))
            theirs.append(_run(sides.baseline, request, connections, effort.seconds))
        figures += [
            Figure(
                name=f"{what}, {connections} connection{'s'[: connections > 1]}",
                unit=unit,
                runs=[of(run) for run in ours],
                baseline=[of(run) for run in theirs],
                target=target,
            )
            for what, unit, of, target in _FIGURES[connections]
        ]
    return Section(title=name, figures=figures)


class _Run(msgspec.Struct):
    """One run: what wrk saw, and the processor time that the server used meanwhile."""

    load: Load
    cpu_seconds: float


def _run(server: Server, request: Request, connections: int, seconds: int) -> _Run:
    _, loading = split_processors()
    before = server.program.cpu_seconds()
    seen = load(server, request, connections=connections, seconds=seconds, cpus=loading)
    return _Run(seen, server.program.cpu_seconds() - before)


_THROUGHPUT: Final = Target("at least", 0.6, of="ratio")
_LATENCY: Final = Target("at most", 1.7, of="ratio")

_FIGURES: Final[dict[int, list[tuple[str, str, Callable[[_Run], float], Target | None]]]] = {
    ALONE: [
        ("median latency", "us", lambda run: run.load.p50, _LATENCY),
        ("99th percentile", "us", lambda run: run.load.p99, None),
    ],
    TOGETHER: [
        ("throughput", "requests/s", lambda run: run.load.per_second, _THROUGHPUT),
        ("median latency", "us", lambda run: run.load.p50, None),
        (
            "processor time",
            "us/request",
            lambda run: run.cpu_seconds * 1e6 / run.load.requests,
            None,
        ),
        (
            "server busy",
            "% of a processor",
            lambda run: run.cpu_seconds * 1e8 / run.load.microseconds,
            None,
        ),
    ],
}
"""What is told of the runs with each number of connections. The processor time tells the same
as the throughput, with less noise from others on the machine; a server that is not busy was
held back by its load."""
