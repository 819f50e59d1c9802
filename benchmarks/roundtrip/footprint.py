"""What the programs cost at rest: the time to start, the memory when idle."""

import time
from typing import Final, NamedTuple

from benchmarks.command import Options
from benchmarks.machine_agent import MachineAgent
from benchmarks.processes import Program, Stage
from benchmarks.report import Figure, Section, Target
from benchmarks.service import Installation

_EMAIL: Final = "idle@outrider.invalid"
_MEGABYTE: Final = 1e6
_SETTLE_SECONDS: Final = 2.0
_STARTS: Final = 3

_START: Final = Target("at most", 1.0)
_SERVICE_MEMORY: Final = Target("at most", 85)
_AGENT_MEMORY: Final = Target("at most", 70)


class Start(NamedTuple):
    """A start of the service: seconds to a 200 on /readyz, of a processor, and idle memory."""

    seconds: float
    cpu: float
    resident: float
    shared: float


def measure(here: Stage, options: Options) -> Section:
    """Measure starts and idle memory, on installations of their own."""
    options.progress("start-up and idle memory")
    figures = []
    first: list[Start] = []
    second: list[Start] = []
    for number in range(_STARTS):
        installation = Installation(here, f"idle-{number}")
        first.append(_start(installation))
        second.append(_start(installation))
    for name, starts, target in (
        ("second start", second, _START),
        ("first start, with migrations,", first, None),
    ):
        figures += [
            Figure(f"service: {name} to /readyz", "s", [s.seconds for s in starts], target=target),
            Figure("  of it processor time", "s", [start.cpu for start in starts]),
            Figure(
                "  then idle memory (RSS)",
                "MB",
                [start.resident for start in starts],
                target=_SERVICE_MEMORY,
            ),
            Figure("  then idle memory (PSS)", "MB", [start.shared for start in starts]),
        ]
    return Section("At rest", [*figures, *_agent(here, installation)])


def _start(installation: Installation) -> Start:
    began = time.perf_counter()
    program = installation.serve("").program
    seconds, cpu = time.perf_counter() - began, program.cpu_seconds()
    start = Start(seconds, cpu, *_memory(program))
    program.end()
    return start


def _memory(program: Program) -> tuple[float, float]:
    """Return the program's RSS and PSS in megabytes, once it has had time to settle."""
    time.sleep(_SETTLE_SECONDS)
    program.check()
    resident, shared = program.memory()
    return resident / _MEGABYTE, shared / _MEGABYTE


def _agent(here: Stage, installation: Installation) -> list[Figure]:
    """Return the memory of the real machine agent, connected and idle."""
    server = installation.serve(installation.new_key(_EMAIL))
    code = installation.new_code(_EMAIL)
    agent = MachineAgent(here, server, code, here.directory / "agent")
    resident, shared = _memory(agent.program)
    children = agent.program.children_memory() / _MEGABYTE
    agent.end()
    server.program.end()
    return [
        Figure("machine agent: idle memory (RSS)", "MB", [resident], target=_AGENT_MEMORY),
        Figure("machine agent: idle memory (PSS)", "MB", [shared]),
        Figure("machine agent: its children (RSS)", "MB", [children]),
    ]
