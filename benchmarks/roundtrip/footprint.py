"""What the programs cost at rest: the time to start, the memory when idle."""

import importlib.util
import time
from typing import Final

from rich.console import Console

from benchmarks.processes import Program, Stage
from benchmarks.report import Figure, Section, Target
from benchmarks.service import Installation, Server

_EMAIL: Final = "idle@outrider.invalid"
_MEGABYTE: Final = 1e6
_SETTLE_SECONDS: Final = 2.0
_STARTS: Final = 5

_START: Final = Target("at most", 1.0)
_SERVICE_MEMORY: Final = Target("at most", 90)
_AGENT_MEMORY: Final = Target("at most", 70)


def measure(here: Stage, progress: Console) -> Section:
    """Measure starts and idle memory, on an installation of its own."""
    progress.print("start-up and idle memory", style="dim")
    empty, starts = [], []
    for number in range(_STARTS):
        installation = Installation(here, f"idle-{number}")
        empty.append(_start(installation))
        starts.append(_start(installation))
    key = installation.new_key(_EMAIL)
    server = installation.serve(key)
    resident, shared = _memory(server.program)
    figures = [
        Figure(name="service: start to /readyz", unit="s", runs=starts, target=_START),
        Figure(name="service: first start, with migrations", unit="s", runs=empty),
        Figure(
            name="service: idle memory (RSS)", unit="MB", runs=[resident], target=_SERVICE_MEMORY
        ),
        Figure(name="service: idle memory (PSS)", unit="MB", runs=[shared]),
        *_agent(here, installation, server),
    ]
    server.program.end()
    return Section(title="At rest", figures=figures)


def _start(installation: Installation) -> float:
    """Return the seconds from spawning the service to its first 200 on /readyz."""
    began = time.perf_counter()
    program = installation.start()
    server = Server(program, installation.url, key="")
    program.wait_until(lambda: server.answers("/readyz"), "ready")
    seconds = time.perf_counter() - began
    program.end()
    return seconds


def _memory(program: Program) -> tuple[float, float]:
    """Return the program's RSS and PSS in megabytes, once it has had time to settle."""
    time.sleep(_SETTLE_SECONDS)
    program.check()
    resident, shared = program.memory()
    return resident / _MEGABYTE, shared / _MEGABYTE


def _agent(here: Stage, installation: Installation, server: Server) -> list[Figure]:
    """Return the memory of the real machine agent, connected and idle."""
    name = "machine agent: idle memory (RSS)"
    if importlib.util.find_spec("outrider.daemon.app") is None:
        return [Figure(name=name, unit="MB", target=_AGENT_MEMORY, note="not built yet")]
    config = {
        "OUTRIDER_CONFIG_DIR": str(here.directory / "agent"),
        "OUTRIDER_LOG_LEVEL": "warning",
    }
    code = installation.new_code(_EMAIL)
    setup = here.start(
        "setup", ["-m", "outrider", "setup", "--server", server.url, "--code", code], config
    )
    setup.wait_for_success()
    agent = here.start("machine agent", ["-m", "outrider", "daemon"], config)
    agent.wait_until(lambda: b'"id"' in server.get("/api/v1/daemons"), "connected")
    resident, shared = _memory(agent)
    children = agent.children_memory() / _MEGABYTE
    agent.end()
    return [
        Figure(name=name, unit="MB", runs=[resident], target=_AGENT_MEMORY),
        Figure(name="machine agent: idle memory (PSS)", unit="MB", runs=[shared]),
        Figure(name="machine agent: its children (RSS)", unit="MB", runs=[children]),
    ]
