"""Measures the service with and without its access layer, in turns."""

from typing import Final

from rich.console import Console

from benchmarks.access import stages
from benchmarks.command import Effort
from benchmarks.processes import Stage, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.service import Installation, Server
from benchmarks.sides import Known, Sides, in_turns, side_by_side
from benchmarks.wrk import require_wrk

CONNECTIONS: Final = 32

_REQUESTS: Final = ("GET …/status", "POST …/command read_chat")
_TARGET: Final = Target("at least", 0.85, of="ratio")


def benchmark(effort: Effort, progress: Console) -> Report:
    """Measure the throughput that the access layer leaves, then each of its stages."""
    require_wrk()
    with stage() as here:
        with side_by_side(here, _bypassed) as sides:
            compared = [
                figure for name in _REQUESTS for figure in _compare(name, sides, effort, progress)
            ]
        costs = stages.measure(here.directory, effort.rounds)
    return Report(
        benchmark="access",
        sections=[
            Section(title="With the access layer; the baseline is without it", figures=compared),
            Section(title="Its stages, each alone", figures=costs),
        ],
    )


def _bypassed(here: Stage, installation: Installation, known: Known) -> Server:
    """Start the same build with the access layer bypassed, on a copy of the data."""
    copy = Installation(here, "bypassed", copy_of=installation)
    server = Server(
        here.start(
            "bypassed",
            ["-m", "benchmarks.access.bypassed", "serve"],
            {**copy.settings, "ACCOUNT": known.account},
            split_processors()[0],
        ),
        copy.url,
        known.key,
    )
    server.program.wait_until(lambda: server.answers("/readyz"), "ready")
    return server


def _compare(name: str, sides: Sides, effort: Effort, progress: Console) -> list[Figure]:
    guarded, bypassed = in_turns(name, sides, CONNECTIONS, effort, progress)
    return [
        Figure(
            f"{name}, {CONNECTIONS} connections",
            "requests/s",
            [run.load.per_second for run in guarded],
            baseline=[run.load.per_second for run in bypassed],
            target=_TARGET,
        ),
        Figure(
            f"{name}, processor time",
            "us/request",
            [run.cpu_per_request for run in guarded],
            baseline=[run.cpu_per_request for run in bypassed],
        ),
    ]
