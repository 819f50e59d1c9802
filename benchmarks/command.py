"""The command line that every benchmark has."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.processes import BenchmarkError, handled, interrupt

Benchmark = Callable[["Effort", Console], report.Report]


class Effort:
    """How long to measure.

    Args:
        seconds: the length of one run.
        rounds: how many runs a figure is the median of.
        only: what to measure of what a benchmark measures one by one; empty: what is usual.
        machines: how many machines the fleet has.
        minutes: the length of the soak.
    """

    def __init__(
        self,
        seconds: int,
        rounds: int,
        only: tuple[str, ...] = (),
        machines: int = 10_000,
        minutes: int = 30,
    ) -> None:
        self.seconds = seconds
        self.rounds = rounds
        self.only = only
        self.machines = machines
        self.minutes = minutes


def main(*benchmarks: Benchmark, machines: int = 10_000) -> None:
    """Run benchmarks as the command line asks, show what they find, and end the program.

    Args:
        machines: how many machines a fleet has where the command line does not say.
    """
    parser = argparse.ArgumentParser(description="Measure Outrider against its targets.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--seconds", type=int, default=3, help="length of a run (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each figure (default 5)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help="agents: measure this kind; hostile: this attack (as often as you like; "
        "default: the five CLI agents, all attacks)",
    )  # fmt: skip
    parser.add_argument(
        "--machines",
        type=int,
        default=machines,
        help=f"fleet, soak: how many machines (default {machines:,})",
    )
    parser.add_argument(
        "--minutes", type=int, default=30, help="soak: how long to run (default 30)"
    )
    options = parser.parse_args()
    if options.seconds < 1 or options.rounds < 1:
        parser.error("--seconds and --rounds are at least 1")
    if options.minutes < 3:
        parser.error("--minutes is at least 3")
    if options.machines < 100:
        parser.error("--machines is at least 100")
    console = Console(width=None if sys.stdout.isatty() else 120)
    progress = Console(stderr=True)
    facts = report.machine_facts()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    effort = Effort(
        options.seconds, options.rounds, tuple(options.only), options.machines, options.minutes
    )
    reports = []
    try:
        with handled([signal.SIGTERM], interrupt):
            for benchmark in benchmarks:
                reports.append(benchmark(effort, progress))
                report.show(console, reports[-1])
    except BenchmarkError as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if options.json is not None:
        report.write(options.json, reports)
