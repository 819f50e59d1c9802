"""Figures, their targets, and the tables that show both."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table


class Target(msgspec.Struct, frozen=True):
    """The bound of a figure; with `of="ratio"`, of its ratio to the baseline's."""

    bound: Literal["at least", "at most"]
    limit: float
    of: Literal["value", "ratio"] = "value"

    def met_by(self, value: float) -> bool:
        """Return whether `value` is within the bound."""
        return value >= self.limit if self.bound == "at least" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.bound} {self.limit:g}{'x baseline' if self.of == 'ratio' else ''}"


NONE = Target("at most", 0)
"""For counts of what must not happen."""


class Figure(msgspec.Struct):
    """One thing that was measured, as many times as `runs` has values.

    Args:
        baseline: the same of the baseline, measured in the same minutes.
        note: shown if there is no target.
    """

    name: str
    unit: str
    runs: list[float] = []
    baseline: list[float] = []
    target: Target | None = None
    note: str = ""

    @property
    def value(self) -> float | None:
        """The median of the runs."""
        return _median(self.runs)

    @property
    def ratio(self) -> float | None:
        """The median of the runs over the baseline's median, None if that is 0."""
        value, baseline = _median(self.runs), _median(self.baseline)
        return None if value is None or not baseline else value / baseline

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none, or nothing was measured."""
        value = self.ratio if self.target and self.target.of == "ratio" else self.value
        return None if self.target is None or value is None else self.target.met_by(value)


class Measure(NamedTuple):
    """A figure as a benchmark declares it: `value` reads it off one run."""

    name: str
    unit: str
    value: Callable[[Any], float]
    target: Target | None = None

    def of(self, runs: tuple[Sequence[Any], Sequence[Any]], suffix: str = "") -> Figure:
        """Return the figure of these runs, Outrider's and the baseline's."""
        ours, baseline = ([*map(self.value, each)] for each in runs)
        return Figure(self.name + suffix, self.unit, ours, baseline, self.target)


def spread(
    name: str,
    unit: str,
    values: list[float],
    median: Target | None = None,
    tail: Target | None = None,
) -> list[Figure]:
    """Return the figures of the values' median and 99th percentile."""
    return [
        Figure(f"{name}, median", unit, values, target=median),
        Figure(f"{name}, 99th percentile", unit, [percentile(values, 99)], target=tail),
    ]


def counted(counts: Mapping[str, int], prefix: str = "") -> list[Figure]:
    """Return a figure for each count, by name."""
    return [Figure(prefix + name, "", [count]) for name, count in sorted(counts.items())]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that `percent` % of the values are below."""
    return sorted(values)[len(values) * percent // 100]


def plural(count: int, noun: str) -> str:
    """Return a count with its noun in the right number: "1 connection", "1,000 webhooks"."""
    return f"{count:,} {noun}{'s'[: count != 1]}"


class Section(msgspec.Struct):
    """Figures that belong together: one table."""

    title: str
    figures: list[Figure]


def not_measured(title: str, why: str) -> Section:
    """Return the section of what cannot be measured here."""
    return Section(title, [Figure("not measured", "", note=why)])


def show(console: Console, section: Section) -> None:
    """Print a section as a table."""
    compares = any(figure.baseline for figure in section.figures)
    baseline = ("baseline", "ratio") if compares else ()
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for name in ("", "Outrider", *baseline, "unit", "target", ""):
        table.add_column(name, justify="left" if name in ("", "unit", "target") else "right")
    for figure in section.figures:
        values = [figure.value, *((_median(figure.baseline), figure.ratio) if compares else ())]
        met = {True: "[green]met[/]", False: "[red]not met[/]", None: figure.note}[figure.met]
        target = str(figure.target or "")
        table.add_row(figure.name, *map(_number, values), figure.unit, target, met)
    console.print(table)


def machine_facts() -> dict[str, str | int]:
    """Return what a reader must know of the computer to judge a figure."""
    processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2] for line in processors if line.startswith("model name")]
    return {
        "processor": models[0].strip() if models else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
