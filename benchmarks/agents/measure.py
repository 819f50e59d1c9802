"""Measures each kind of agent: how soon its status follows it, how often it was wrong, its cost."""

import statistics
import time
from typing import Final

from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds import KINDS

from benchmarks.agents.rig import Rig, rig
from benchmarks.agents.turns import Turns, take_turns
from benchmarks.command import Options
from benchmarks.processes import BenchmarkError, Stage, stage
from benchmarks.report import Figure, Report, Section, Target

USUAL: Final = ("claude-code", "codex", "opencode", "gemini-cli", "aider")
"""The kinds that are measured unless others are asked for."""

_IDLE: Final = Target("at most", 1.0)
_SOON: Final = Target("at most", 0.5)
_NEVER: Final = Target("at most", 0)
_IDLE_COST: Final = Target("at most", 0.3)
_GENERATING_COST: Final = Target("at most", 3.0)
_RESTART: Final = Target("at most", 2.0)

_COST_SECONDS: Final = 15
_SETTLE: Final = 2.0


def benchmark(options: Options) -> Report:
    """Measure the kinds that `options.only` names, or the five that run in a terminal."""
    kinds = {kind.type: kind for kind in KINDS}
    wanted = options.only or USUAL
    if unknown := [name for name in wanted if name not in kinds]:
        raise BenchmarkError(f"unknown agents {unknown}: there are {', '.join(kinds)}")
    with stage() as here:
        sections = [_section(here, kinds[name], options) for name in wanted]
    return Report(benchmark="agents", sections=sections)


def _section(here: Stage, kind: AgentKind, options: Options) -> Section:
    with rig(here, kind) as machine:
        options.progress(f"{kind.type}: launches")
        launches = []
        for _ in range(2):
            launches.append(machine.launch())
            machine.agent.stop()
        launches.append(machine.launch())
        options.progress(f"{kind.type}: twenty turns")
        turns = take_turns(machine, here.environment({}))
        for wrong in turns.wrong[:20]:
            options.progress(f"{kind.type}: wrong: {wrong}")
        options.progress(f"{kind.type}: cost")
        costs = _costs(machine)
        restarts = []
        if not any("daemon_that_is_killed" in test for test in kind.cannot):
            options.progress(f"{kind.type}: a daemon that is killed")
            restarts = [_restart(machine) for _ in range(3)]
        machine.agent.stop()
    return Section(title=f"Agents: {kind.type}", figures=_figures(launches, turns, costs, restarts))


def _costs(machine: Rig) -> tuple[float, float]:
    """Return what percentage of a processor the daemon uses for an idle and a busy session."""
    time.sleep(_SETTLE)
    idle = _cost(machine)
    # 40 words of the answer, one by one, for longer than is measured
    pause = (_COST_SECONDS + 2 * _SETTLE) / 40
    machine.agent.send(f"slowly now SLOW:{pause:.2f}")
    time.sleep(_SETTLE)
    generating = _cost(machine)
    if machine.agent.status()["status"] != "generating":
        raise BenchmarkError(f"{machine.kind.type}: the turn was over before it was measured")
    _wait_for(machine, "idle", 30)
    return idle, generating


def _cost(machine: Rig) -> float:
    before, began = machine.daemon_seconds(), time.perf_counter()
    time.sleep(_COST_SECONDS)
    return (machine.daemon_seconds() - before) / (time.perf_counter() - began) * 100


def _restart(machine: Rig) -> float:
    """Kill the daemon in the middle of a turn; return the seconds from its start to the status."""
    machine.agent.send("hold on SLOW:0.2")
    machine.machine.kill()
    began = time.perf_counter()
    machine.machine.start()
    _wait_for(machine, "generating", 10)
    seconds = time.perf_counter() - began
    _wait_for(machine, "idle", 30)
    return seconds


def _wait_for(machine: Rig, status: str, seconds: float) -> None:
    """Ask for the status until it is this one; a machine that is away has none."""
    path = f"/api/v1/shortcuts/{machine.agent.target}/status"
    wanted = f'"status":"{status}"'
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = machine.machine.client.get(f"{machine.server.url}{path}")
        if answer.status_code == 200 and wanted in answer.text.replace('": "', '":"'):
            return
        time.sleep(0.01)
    raise BenchmarkError(f"{machine.kind.type}: not {status} within {seconds:g} s: {answer.text}")


def _figures(
    launches: list[float], turns: Turns, costs: tuple[float, float], restarts: list[float]
) -> list[Figure]:
    idle, generating = costs
    killed = (
        [Figure("daemon killed, started: status right", "s", restarts,
                target=_RESTART)]
        if restarts
        else []
    )  # fmt: skip
    return [
        _percentile("last byte to idle", turns.idle, _IDLE),
        Figure("last byte to idle, median", "s", turns.idle),
        _percentile("first byte to generating", turns.generating, _SOON),
        _percentile("dialog to waiting_approval", turns.asking, _SOON),
        Figure(
            f"wrong statuses of {turns.samples:,} seen",
            "",
            [float(len(turns.wrong))],
            target=_NEVER,
        ),
        *killed,
        Figure("daemon, an idle session", "% of a core", [idle], target=_IDLE_COST),
        Figure(
            "daemon, a generating session", "% of a core", [generating], target=_GENERATING_COST
        ),
        Figure("launch to ready", "s", launches),
        Figure("send to accepted, median", "s", turns.accepted),
        _percentile("send to accepted", turns.accepted, None),
    ]


def _percentile(name: str, values: list[float], target: Target | None) -> Figure:
    found = [statistics.quantiles(values, n=20, method="inclusive")[-1]] if values else []
    return Figure(f"{name}, 95th percentile", "s", found, target=target)
