"""The command line of the benchmarks."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from benchmarks import report
from benchmarks.processes import BenchmarkError, interrupt

RunT = TypeVar("RunT")
Benchmark = Callable[["Options"], report.Report]

_progress: Final = Console(stderr=True, style="dim", highlight=False)


@dataclass(frozen=True)
class Options:
    """What to measure and for how long.

    Args:
        seconds: the length of one run.
        rounds: how many runs a figure is the median of.
        only: the agents, IDEs or attacks to measure; empty: the usual ones.
        machines: how many machines the fleet has, None for the benchmark's default.
        minutes: the length of the soak.
    """

    seconds: int
    rounds: int
    only: tuple[str, ...]
    machines: int | None
    minutes: int

    def progress(self, text: str) -> None:
        """Print to standard error what is measured now."""
        _progress.print(text, soft_wrap=True)

    def each_round(self, name: str) -> Iterator[int]:
        """Return the numbers of the rounds, and print the progress of each."""
        for number in range(self.rounds):
            self.progress(f"{name}, round {number + 1} of {self.rounds}")
            yield number

    def in_turns(
        self, name: str, first: Callable[[], RunT], second: Callable[[], RunT]
    ) -> tuple[list[RunT], list[RunT]]:
        """Measure both in each round, so that a busy moment of the computer affects both."""
        runs: tuple[list[RunT], list[RunT]] = [], []
        for _ in self.each_round(name):
            runs[0].append(first())
            runs[1].append(second())
        return runs


def main(benchmarks: Sequence[str], *, omitted: Sequence[str]) -> None:
    """Run benchmarks as the command line says, print their figures, and end the program.

    Args:
        benchmarks: their names; each is the module of that name, with a function `benchmark`.
        omitted: those that run only if the command line names them.
    """
    given = _arguments(benchmarks)
    if given.list:
        print(*benchmarks, sep="\n")
        return
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        if name != "OUTRIDER_TEST_AGENTS":
            del os.environ[name]  # nothing that this machine happens to have set is measured
    options = Options(given.seconds, given.rounds, tuple(given.only), given.machines, given.minutes)
    console = Console(width=None if sys.stdout.isatty() else 120)
    facts = report.machine_facts()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    signal.signal(signal.SIGTERM, interrupt)
    reports = []
    try:
        for name in given.names or [name for name in benchmarks if name not in omitted]:
            benchmark: Benchmark = importlib.import_module(f"benchmarks.{name}").benchmark
            reports.append(benchmark(options))
            report.show(console, reports[-1])
    except BenchmarkError as error:
        sys.exit(f"benchmarks: {error}")
    except KeyboardInterrupt:
        # The thread of a database connection that was interrupted may never end: do not join it.
        os._exit(130)
    if given.json is not None:
        report.write(given.json, reports)


def _arguments(benchmarks: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Outrider against its targets.")
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="what to run of: " + ", ".join(benchmarks))
    add("--list", action="store_true", help="list the benchmarks, run none")
    add("--json", type=Path, metavar="FILE", help="write the figures there too")
    add("--seconds", type=int, default=3, help="length of a run (default 3)")
    add("--rounds", type=int, default=5, help="runs of each figure (default 5)")
    add("--only", action="append", default=[], metavar="NAME",
        help="agents, ides: measure this kind; hostile: this attack (as often as you like; "
        "default: the five CLI agents, all IDEs, all attacks)")  # fmt: skip
    add("--machines", type=int,
        help="fleet, nodes, soak: how many machines (default 10,000, of soak 2,000)")  # fmt: skip
    add("--minutes", type=int, default=30, help="soak: how long to run (default 30)")
    given = parser.parse_args()
    for name, least in (("seconds", 1), ("rounds", 1), ("minutes", 3), ("machines", 100)):
        value = getattr(given, name)
        if value is not None and value < least:
            parser.error(f"--{name} is at least {least}")
    if unknown := [name for name in given.names if name not in benchmarks]:
        parser.error(f"unknown benchmarks {', '.join(unknown)}: there are {', '.join(benchmarks)}")
    return given
