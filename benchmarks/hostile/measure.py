"""Measures a service at peace and under attack in turns, so that a busy moment hits both."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from benchmarks.command import Options
from benchmarks.hostile import bench
from benchmarks.hostile.attacks import MAX_SECONDS, Attack
from benchmarks.hostile.bench import Bench
from benchmarks.hostile.prober import Prober, probe
from benchmarks.processes import Stage, split_processors, stage
from benchmarks.report import Figure, Report, Section, Target, compared

_RECOVERY_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 0.5
_MEGABYTE: Final = 1e6

_MEDIAN: Final = Target("at most", 3, of="ratio")
_LONGEST: Final = Target("at most", 1000)
_NONE: Final = Target("at most", 0)

_ATTACKS: Final[dict[str, Callable[[Stage, str], AbstractContextManager[Bench]]]] = {
    "trailer_lines": bench.service,
    "trailer_value": bench.service,
    "pings": bench.service,
    "sockets": bench.service,
    "titles": bench.service,
    "events": bench.service,
    "timeouts": bench.machine,
    "redaction": bench.machine,
}
"""Methods of `Attack`, and what each is aimed at."""


def benchmark(options: Options) -> Report:
    """Measure under each attack, or under those of `--only`; each on a service of its own."""
    chosen = [name for name in _ATTACKS if name in options.only] or list(_ATTACKS)
    sections = []
    with stage() as here:
        for name in chosen:
            with _ATTACKS[name](here, name) as target:
                sections.append(_measure(name, target, here, options))
    return Report(benchmark="hostile", sections=sections)


def _measure(name: str, target: Bench, here: Stage, options: Options) -> Section:
    peace: list[Prober] = []
    attacked: list[Prober] = []
    counts = Counter[str]()
    probe(target.server, target.path, 1)  # warm up
    before, _ = target.victim.memory()
    target.victim.reset_peak()
    for number in options.each_round(f"{name}"):
        peace.append(probe(target.server, target.path, options.seconds))
        latencies, more = _under_attack(f"{name}-{number}", name, target, here, options.seconds)
        attacked.append(latencies)
        counts.update(more)
        _recovered(target)
    runs = attacked, peace
    peak = target.victim.peak_memory() - before
    return Section(
        title=f"{name}: {_description(name)}",
        figures=[
            compared("median latency", "ms", runs, lambda run: run.median, _MEDIAN),
            compared("99th percentile", "ms", runs, lambda run: run.p99),
            compared("longest", "ms", runs, lambda run: run.longest, _LONGEST),
            Figure(
                "requests of the other client that failed",
                "",
                [sum(run.failed for run in attacked)],
                target=_NONE,
            ),
            Figure("memory, above the start at most", "MB", [peak / _MEGABYTE]),
            *(
                Figure(f"the attack: {what}", "in all", [number])
                for what, number in sorted(counts.items())
            ),
        ],
    )


def _under_attack(
    run: str, name: str, target: Bench, here: Stage, seconds: int
) -> tuple[Prober, Counter[str]]:
    """Probe while the attack runs; return what was seen, and the attack's counts."""
    result = here.directory / f"{run}.json"
    lasting = min(seconds + 1, MAX_SECONDS)
    program = here.start(
        run,
        ["-m", "benchmarks.hostile.attacks", name, str(lasting), str(result)],
        {"AIM": msgspec.json.encode(target.aim).decode()},
        split_processors()[1],
    )
    program.wait_until(result.exists, "under way")
    time.sleep(_SETTLE_SECONDS)
    found = probe(target.server, target.path, seconds)
    program.wait_for_success(_RECOVERY_SECONDS)
    program.end()
    return found, Counter(msgspec.json.decode(result.read_bytes(), type=dict[str, int]))


def _recovered(target: Bench) -> None:
    """Wait until the status is answered again, so that the next run begins at peace."""
    target.server.program.wait_until(
        lambda: target.server.answers(target.path), "answering again", _RECOVERY_SECONDS
    )
    time.sleep(_SETTLE_SECONDS)


def _description(name: str) -> str:
    return (getattr(Attack, name).__doc__ or "").partition(".")[0]
