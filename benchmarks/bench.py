"""What a benchmark runs with: its length, its programs, and its progress on standard error."""

import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from rich.console import Console

from benchmarks.processes import Stage
from benchmarks.report import Section

RunT = TypeVar("RunT")
Sections = Generator[Section, None, None]
"""What a benchmark yields."""

_console: Final = Console(stderr=True, style="dim", highlight=False)


@dataclass(frozen=True)
class Bench:
    """What to measure and for how long.

    Args:
        stage: starts the benchmark's programs, and ends them with it.
        seconds: the length of one run.
        rounds: how many runs a figure is the median of.
        only: the agents to measure; empty: the usual ones.
        machines: how many machines the fleet has, None for the benchmark's default.
        minutes: the length of the soak.
    """

    stage: Stage
    seconds: int
    rounds: int
    only: Sequence[str]
    machines: int | None
    minutes: int

    def progress(self, text: str) -> None:
        """Print to standard error what is measured now."""
        _console.print(text, soft_wrap=True)

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


def median_latency(call: Callable[[], object], seconds: float) -> float:
    """Return the median milliseconds of calls, one after the other for so many seconds."""
    found = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call()
        found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)
