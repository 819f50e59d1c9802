"""Figures, their targets, and the report of both: tables for people, JSON for programs."""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
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


class Figure(msgspec.Struct):
    """One thing that was measured, as many times as `runs` has values.

    Args:
        baseline: the same, measured of the baseline in the same minutes.
        note: why there is no value, or what to know about it.
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
        if self.target is None:
            return None
        value = self.ratio if self.target.of == "ratio" else self.value
        return None if value is None else self.target.met_by(value)


def compared(
    name: str,
    unit: str,
    runs: tuple[Sequence[RunT], Sequence[RunT]],
    value: Callable[[RunT], float],
    target: Target | None = None,
) -> Figure:
    """Return the figure of a value of each run; `runs` are Outrider's and the baseline's."""
    ours, baseline = ([*map(value, each)] for each in runs)
    return Figure(name, unit, ours, baseline=baseline, target=target)


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
        has_baseline = any(figure.baseline for figure in section.figures)
        table = Table(title=section.title, title_justify="left", title_style="bold")
        table.add_column("")
        table.add_column("Outrider", justify="right")
        if has_baseline:
            table.add_column("baseline", justify="right")
            table.add_column("ratio", justify="right")
        table.add_column("unit")
        table.add_column("target")
        table.add_column("")
        for figure in section.figures:
            comparison = (
                [_number(figure.baseline_value), _ratio(figure.ratio)] if has_baseline else []
            )
            table.add_row(
                figure.name,
                _number(figure.value),
                *comparison,
                figure.unit,
                _target(figure.target),
                {True: "[green]met[/]", False: "[red]not met[/]", None: figure.note}[figure.met],
            )
        console.print(table)

    for curve in report.curves:
        table = Table(*curve.columns, title=curve.title, title_justify="left", title_style="bold")
        for column in table.columns:
            column.justify = "right"
        for row in curve.rows:
            table.add_row(*map(_number, row))
        console.print(table)


def write(path: Path, reports: list[Report]) -> None:
    """Write the reports as JSON, with the machine and the moment they are of."""
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "reports": [
            {
                "benchmark": report.benchmark,
                "sections": [
                    {"title": section.title, "figures": [_plain(f) for f in section.figures]}
                    for section in report.sections
                ],
                "curves": report.curves,
            }
            for report in reports
        ],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def machine_facts() -> dict[str, str | int]:
    """Return what a reader must know of the machine to judge a figure."""
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _plain(figure: Figure) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(figure)
    return {**plain, "value": figure.value, "ratio": figure.ratio, "met": figure.met}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _target(target: Target | None) -> str:
    if target is None:
        return ""
    times = "x baseline" if target.of == "ratio" else ""
    return f"{target.bound} {target.limit:g}{times}"
