"""Runs the soak, and compares what the node holds at the end with what it held early on."""

import time
from collections.abc import Callable
from typing import Final

import httpx

from benchmarks.command import Options
from benchmarks.fleet.control import FleetStatus, GetStatus, InjectFaults, SetTurnRate
from benchmarks.fleet.enrollment import PER_ACCOUNT
from benchmarks.fleet.site import EMAIL, Fleet, started
from benchmarks.processes import BenchmarkError, stage
from benchmarks.report import Curve, Figure, Report, Section, Target
from benchmarks.service import start_receiver
from benchmarks.soak.load import Load
from benchmarks.soak.samples import Sample, Sampler, typical

_MACHINES: Final = 2_000
_SAMPLE_SECONDS: Final = 5.0
_EARLY_MINUTES: Final = 5
_TURN_SECONDS: Final = 60
"""A machine's agent begins or ends a turn that often."""

_FAULTS: Final = 0.01
"""The share of machines whose socket drops in a minute, and of answers that are late."""

_LATE_SECONDS: Final = 5.0
_BACK_SECONDS: Final = 60.0
_MEGABYTE: Final = 1e6

_NO_GROWTH: Final = Target("at most", 1.1, of="ratio")
_NONE: Final = Target("at most", 0)

_HELD: Final[tuple[tuple[str, str, Callable[[Sample], float]], ...]] = (
    ("least memory (RSS)", "MB", lambda sample: sample.memory / _MEGABYTE),
    ("asyncio tasks", "", lambda sample: sample.tasks),
    ("sockets", "", lambda sample: sample.sockets),
    ("open files", "", lambda sample: sample.files),
)


def benchmark(options: Options) -> Report:
    """Run for `options.minutes`; the early minute is the sixth, of a short run the second."""
    machines = options.machines or _MACHINES
    early = min(_EARLY_MINUTES, options.minutes - 2)
    with stage() as here:
        options.progress(f"{machines:,} machines are enrolled and connect")
        server, fleet = started(here, machines)
        receiver, receiver_url = start_receiver(here)
        session = server.log_in(EMAIL)
        for path in ("well", "flaky"):  # the second one fails now and then
            server.add_webhook(session, f"{receiver_url}/{path}")
        fleet.connect(machines)
        fleet.simulator.send(SetTurnRate(machines / _TURN_SECONDS))
        fleet.simulator.send(InjectFaults(machines * _FAULTS / 60, _FAULTS, _LATE_SECONDS))
        sampler = Sampler(server, here.directory / "fleet" / "outrider.db")
        with Load(server, fleet.machines[:PER_ACCOUNT]) as load:

            def check() -> None:
                load.check()
                receiver.check()

            minutes, rows = _run(options.minutes, sampler, check, options)
        fleet.simulator.send(InjectFaults(0, 0, 0))
        fleet.simulator.send(SetTurnRate(0))
        status = _settled(fleet, machines)
        deliveries = int(httpx.get(f"{receiver_url}/count", trust_env=False).text)
        fleet.end()
    return Report(
        benchmark="soak",
        sections=[
            Section(
                title=f"{machines:,} machines: the last of {options.minutes} minutes, "
                f"the baseline being minute {early + 1}",
                figures=[
                    Figure(
                        name,
                        unit,
                        [of(minutes[-1])],
                        baseline=[of(minutes[early])],
                        target=_NO_GROWTH,
                    )
                    for name, unit, of in _HELD
                ],
            ),
            Section(
                title="Rows; events, deliveries, audit and usage are history, kept by age",
                figures=[
                    Figure(table, "", [count], baseline=[rows[early][table]])
                    for table, count in rows[-1].items()
                ],
            ),
            Section(title="What happened", figures=_happened(load, status, deliveries)),
        ],
        curves=[
            Curve(
                title="Each minute: the medians, of the memory the least",
                columns=["minute", *(f"{name} {unit}".strip() for name, unit, _ in _HELD), "rows"],
                rows=[
                    [number + 1.0, *(of(sample) for _, _, of in _HELD), sum(counts.values())]
                    for number, (sample, counts) in enumerate(zip(minutes, rows, strict=True))
                ],
            )
        ],
    )


def _run(
    length: int, sampler: Sampler, check: Callable[[], None], options: Options
) -> tuple[list[Sample], list[dict[str, int]]]:
    """Return for each minute what is typical of its samples, and the rows at its end."""
    minutes: list[Sample] = []
    rows: list[dict[str, int]] = []
    begin = time.monotonic()
    for number in range(length):
        samples: list[Sample] = []
        while time.monotonic() < begin + 60 * (number + 1):
            time.sleep(_SAMPLE_SECONDS)
            samples.append(sampler.take())
            check()
        minutes.append(typical(samples))
        rows.append(sampler.rows())
        held = ", ".join(f"{name} {of(minutes[-1]):.0f}" for name, _, of in _HELD)
        options.progress(f"minute {number + 1} of {length}: {held}")
    return minutes, rows


def _settled(fleet: Fleet, machines: int) -> FleetStatus:
    """Wait until the machines are back and every event is stored; return how the fleet is.

    Raises:
        BenchmarkError: they are not within `_BACK_SECONDS`.
    """
    deadline = time.monotonic() + _BACK_SECONDS
    while True:
        status = fleet.simulator.send(GetStatus())
        if status.connected == machines and not status.waiting_events:
            return status
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the machines are not back, or events are not stored: {status}")
        time.sleep(0.1)


def _happened(load: Load, status: FleetStatus, deliveries: int) -> list[Figure]:
    server_errors = sum(
        count for outcome, count in load.outcomes.items() if outcome.endswith((": 500", ": 502"))
    )
    counts = {
        "sockets dropped": sum(status.closed.values()),
        "machines that came back": status.reconnected,
        "commands answered by machines": status.answered,
        "of them late": status.delayed,
        "webhook attempts received": deliveries,
    }
    return [
        Figure("requests answered with 500", "", [server_errors], target=_NONE),
        Figure("machines refused for good", "", [status.refused], target=_NONE),
        *(Figure(name, "", [count]) for name, count in counts.items()),
        *(
            Figure(f"requests, {outcome}", "", [count])
            for outcome, count in sorted(load.outcomes.items())
        ),
    ]
