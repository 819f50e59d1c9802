"""Measures the service with and without its access layer, in turns."""

from typing import Final

from benchmarks.access import stages
from benchmarks.command import Options
from benchmarks.processes import Stage, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target, compared
from benchmarks.service import Installation, Server
from benchmarks.sides import Account, Sides, in_turns, side_by_side
from benchmarks.wrk import require_wrk

CONNECTIONS: Final = 32

_REQUESTS: Final = ("GET …/status", "POST …/command read_chat")
_TARGET: Final = Target("at least", 0.85, of="ratio")


def benchmark(options: Options) -> Report:
    """Measure the throughput that the access layer leaves, then each of its stages."""
    require_wrk()
    with stage() as here:
        with side_by_side(here, _bypassed) as sides:
            throughput = [figure for name in _REQUESTS for figure in _compare(name, sides, options)]
        costs = stages.measure(here.directory, options.rounds)
    return Report(
        benchmark="access",
        sections=[
            Section(title="With the access layer; the baseline is without it", figures=throughput),
            Section(title="Its stages, each alone", figures=costs),
        ],
    )


def _bypassed(here: Stage, installation: Installation, account: Account) -> Server:
    """Start the same build with the access layer bypassed, on a copy of the data."""
    copy = Installation(here, "bypassed", copy_of=installation)
    return copy.serve(
        account.key,
        split_processors()[0],
        module="benchmarks.access.bypassed",
        settings={"ACCOUNT": account.id},
    )


def _compare(name: str, sides: Sides, options: Options) -> list[Figure]:
    runs = in_turns(name, sides, CONNECTIONS, options)
    return [
        compared(
            f"{name}, {CONNECTIONS} connections",
            "requests/s",
            runs,
            lambda run: run.load.per_second,
            _TARGET,
        ),
        compared(
            f"{name}, processor time",
            "us/request",
            runs,
            lambda run: run.cpu_per_request,
        ),
    ]
