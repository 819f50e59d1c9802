"""Runs the benchmarks that the command line names; without names, all but the soak."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Final

from rich.console import Console

from benchmarks.bench import Bench, Sections
from benchmarks.processes import interrupt, stage
from benchmarks.report import machine_facts, show
from outrider.cli.logs import set_up_logs
from outrider.contract.errors import OutriderError

BENCHMARKS: Final = {
    "roundtrip": "roundtrip",
    "sdk": "roundtrip",
    "webhooks": "webhooks",
    "fleet": "fleet",
    "nodes": "nodes",
    "acp": "acp",
    "terminals": "terminals",
    "agents": "agents",
    "live": "live",
    "workspace": "workspace",
    "dashboard": "dashboard",
    "soak": "soak",
}
"""The benchmarks and their modules. A benchmark is a generator of sections, under its name."""


def main() -> None:
    """Run the benchmarks, print their figures, and end the program."""
    given = _arguments()
    if given.list:
        print(*BENCHMARKS, sep="\n")
        return
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        if name != "OUTRIDER_TEST_AGENTS":
            del os.environ[name]  # nothing that this computer happens to have set is measured
    os.environ["OUTRIDER_LOG_LEVEL"] = "warning"
    set_up_logs()  # parts of Outrider run in this process
    console = Console(width=None if sys.stdout.isatty() else 120)
    facts = machine_facts()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    # A shell starts what runs in its background with an ignored SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        for name in given.names or [name for name in BENCHMARKS if name != "soak"]:
            _run(name, given, console)
    except OutriderError as error:
        sys.exit(f"benchmarks: {name}: {error}")
    except KeyboardInterrupt:
        # The thread of a database connection that was interrupted may never end: do not join it.
        os._exit(130)


def _run(name: str, given: argparse.Namespace, console: Console) -> None:
    """Run a benchmark; print its sections as they come."""
    module = importlib.import_module(f"benchmarks.{BENCHMARKS[name]}")
    benchmark: Callable[[Bench], Sections] = getattr(module, name)
    with stage() as here:
        bench = Bench(here, given.seconds, given.rounds, given.only, given.machines, given.minutes)
        with closing(benchmark(bench)) as sections:
            for section in sections:
                show(console, section)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Measure Outrider against its targets."
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="what to run of: " + ", ".join(BENCHMARKS))
    add("--list", action="store_true", help="list the benchmarks, run none")
    add("--seconds", type=_at_least(1), default=3, help="length of a run (default 3)")
    add("--rounds", type=_at_least(1), default=3, help="runs of each figure (default 3)")
    add("--only", action="append", default=[], metavar="NAME",
        help="agents: measure this kind; repeatable (default: the five CLI agents)")  # fmt: skip
    add("--machines", type=_at_least(100),
        help="fleet, soak: how many machines (default 10,000, of soak 2,000)")  # fmt: skip
    add("--minutes", type=_at_least(3), default=30, help="soak: how long to run (default 30)")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmarks {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    return given


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"it is at least {least}")
        return int(text)

    return number


main()
