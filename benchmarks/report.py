"""Figures, their targets, and the report of both: tables for people, JSON for programs."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

RunT = TypeVar("RunT")


class Target(msgspec.Struct, frozen=True):
    """What a figure (or its ratio to the baseline's) is to reach.

    `of` is "ratio" where the target is a multiple of the baseline.
    """

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
        baseline: the same, measured of the baseline in the same minutes.
        note: why there is no value, or what to know about it.
    """

    name: str
    unit: str
    runs: Sequence[float] = []
    baseline: Sequence[float] = []
    target: Target | None = None
    note: str = ""

    @property
    def value(self) -> float | None:
        """The median of the runs."""
        return statistics.median(self.runs) if self.runs else None

    @property
    def baseline_value(self) -> float | None:
        """The median of the baseline's runs."""
        return statistics.median(self.baseline) if self.baseline else None

    @property
    def ratio(self) -> float | None:
        """The median of the runs over the baseline's median, None where that is 0."""
        value, baseline = self.value, self.baseline_value
        return None if value is None or not baseline else value / baseline

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing was measured."""
        value = self.ratio if self.target and self.target.of == "ratio" else self.value
        return None if self.target is None or value is None else self.target.met_by(value)


def compared(
    name: str,
    unit: str,
    runs: tuple[Sequence[RunT], Sequence[RunT]],
    value: Callable[[RunT], float],
    target: Target | None = None,
) -> Figure:
    """Return the figure of a value of each run; `runs` are Outrider's and the baseline's."""
    ours, baseline = ([*map(value, each)] for each in runs)
    return Figure(name, unit, ours, baseline, target)


def spread(
    name: str,
    unit: str,
    values: Sequence[float],
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
    """Figures that belong together, a table of them."""

    title: str
    figures: list[Figure]


class Curve(msgspec.Struct, kw_only=True):
    """Figures over time: a row for each moment."""

    title: str
    columns: list[str]
    rows: list[list[float]]


class Report(msgspec.Struct, kw_only=True):
    """What a benchmark has found."""

    benchmark: str
    sections: list[Section]
    curves: list[Curve] = []


def show(console: Console, report: Report) -> None:
    """Print the report's tables."""
    for section in report.sections:
        compares = any(figure.baseline for figure in section.figures)
        columns = ["", "Outrider", *(["baseline", "ratio"] if compares else []), "unit", "target"]
        rows = [
            [
                one.name,
                _number(one.value),
                *([_number(one.baseline_value), _number(one.ratio)] if compares else []),
                one.unit,
                str(one.target or ""),
                {True: "[green]met[/]", False: "[red]not met[/]", None: one.note}[one.met],
            ]
            for one in section.figures
        ]
        console.print(_table(section.title, [*columns, ""], rows))
    for curve in report.curves:
        numbers = [[_number(value) for value in row] for row in curve.rows]
        console.print(_table(curve.title, curve.columns, numbers))


def _table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "unit", "target") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def write(path: Path, reports: list[Report]) -> None:
    """Write the reports as JSON, with the machine and the moment they are of."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "reports": msgspec.to_builtins(reports),
    }
    for report, plain in zip(reports, document["reports"], strict=True):
        for section, plain_section in zip(report.sections, plain["sections"], strict=True):
            for one, figure in zip(section.figures, plain_section["figures"], strict=True):
                figure.update(value=one.value, ratio=one.ratio, met=one.met)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def machine_facts() -> dict[str, str | int]:
    """Return what a reader must know of the machine to judge a figure."""
    processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [
        line.partition(":")[2].strip() for line in processors if line.startswith("model name")
    ]
    return {
        "processor": models[0] if models else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
