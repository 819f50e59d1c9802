"""How soon and how exactly the status of real agents follows them; a stub is their model."""

import asyncio
import contextlib
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import httpx
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds import KINDS
from tests.daemon.agents.machine import StubModel, agent_environment, install_agent, stub_model

from benchmarks.bench import Bench, Sections
from benchmarks.load import Clients
from benchmarks.machine_agent import Agent, MachineAgent, machine_agent
from benchmarks.processes import BenchmarkError
from benchmarks.report import NONE, Figure, Section, Target
from benchmarks.service import Installation

FoundT = TypeVar("FoundT")

_INTERVAL: Final = 0.02
"""Seconds between two samples."""

_USUAL: Final = ("claude-code", "codex", "opencode", "gemini-cli", "aider")
"""The kinds that are measured unless others are chosen."""

_DIALOGS: Final = {
    "claude-code": r"Do you want to proceed\?",
    "codex": r"Would you like to run",
    "opencode": r"Permission required",
    "gemini-cli": r"Allow execution",
    "aider": r"\(Y\)es/\(N\)o[^\n]*\[Yes\]:\Z",
}
"""What is on the screen while an agent asks; without one, the last byte of the model counts."""

_LAUNCHES: Final = 3
_APPROVALS: Final = 5
_MESSAGES: Final = (
    *(f"hello number {number}" for number in range(1, 7)),
    *(f"take your time {number} SLOW:0.03" for number in range(1, 6)),
    "think about it in silence SILENT:20",
    "a long one LONG SLOW:0.005",
    "a neat one MD",
    "another neat one MD SLOW:0.05",
)
_PAUSE: Final = 0.5
_LIMIT: Final = 90.0
_DIALOG_SECONDS: Final = 5.0
_COST_SECONDS: Final = 15
_SETTLE: Final = 2.0

_IDLE: Final = Target("at most", 1.0)
_SOON: Final = Target("at most", 0.5)
_IDLE_COST: Final = Target("at most", 0.3)
_GENERATING_COST: Final = Target("at most", 3.0)
_RESTART: Final = Target("at most", 2.0)


def agents(bench: Bench) -> Sections:
    """Measure the kinds of `--only`, or the five that run in a terminal."""
    kinds = {kind.type: kind for kind in KINDS}
    wanted = bench.only or _USUAL
    if unknown := [name for name in wanted if name not in kinds]:
        raise BenchmarkError(f"unknown agents {unknown}: there are {', '.join(kinds)}")
    for name in wanted:
        yield _section(kinds[name], bench)


def _section(kind: AgentKind, bench: Bench) -> Section:
    found = _Measured()
    with _machine(kind, bench) as (machine, model, project):
        bench.progress(f"{kind.type}: launches")
        for number in range(_LAUNCHES):
            began = time.perf_counter()
            agent = machine.launch(kind.type, project)
            found.launch.append(time.perf_counter() - began)
            if number < _LAUNCHES - 1:
                agent.stop()
        bench.progress(f"{kind.type}: twenty turns")
        with _Sampler(agent) as sampler:
            turns = _Turns(kind, model, agent, sampler, found)
            for message in _MESSAGES:
                turns.take(message)
            for number in range(_APPROVALS):
                turns.approve(kind.wants(f"touch mark-{number}"))
        found.samples = len(sampler.samples)
        for wrong in found.wrong[:20]:
            bench.progress(f"{kind.type}: wrong: {wrong}")
        bench.progress(f"{kind.type}: cost")
        costs = _costs(agent)
        if not any("daemon_that_is_killed" in test for test in kind.cannot):
            bench.progress(f"{kind.type}: a daemon that is killed")
            found.restart = [_restart(agent) for _ in range(3)]
        agent.stop()
    return Section(f"Agents: {kind.type}", _figures(found, *costs))


@contextmanager
def _machine(kind: AgentKind, bench: Bench) -> Iterator[tuple[MachineAgent, StubModel, Path]]:
    """Provide a machine for agents of this kind, their model, and a project."""
    folder = bench.stage.directory / kind.type
    home, project = folder / "home", folder / "project"
    project.mkdir(parents=True)
    with stub_model(folder) as model:
        kind.seed(home, project, model.url)
        environment = agent_environment(home, install_agent(kind), kind.environment(model.url))
        installation = Installation(bench.stage, f"{kind.type}/service")
        with machine_agent(installation, settings=environment) as machine:
            yield machine, model, project


class _Sample(NamedTuple):
    """A status, and the seconds since the epoch between which it was given."""

    asked: float
    answered: float
    status: str


class _Sampler(Clients):
    """Polls an agent's status."""

    def __init__(self, agent: Agent) -> None:
        server = agent.machine.server
        super().__init__(server, 30)
        self._url = f"{server.url}/api/v1/shortcuts/{agent.target}/status"
        self.samples: list[_Sample] = []

    async def work(self) -> None:
        """Take samples."""
        while not self.is_ending:
            await asyncio.sleep(_INTERVAL)
            asked = time.time()
            state = await self.request("status", "GET", self._url)
            self.samples.append(_Sample(asked, time.time(), state.get("status", "no answer")))

    def first(self, status: str, after: float) -> _Sample:
        """Wait for the first sample of this status that was requested after a time."""
        position = 0

        def found() -> _Sample | None:
            nonlocal position
            self.check()
            for sample in self.samples[position:]:
                position += 1
                if sample.status == status and sample.asked >= after:
                    return sample
            return None

        return _until(found, f"{status} after {self.samples[-1:]}")

    def between(self, begin: float, end: float) -> list[_Sample]:
        """Return the samples that were requested and answered within these times."""
        return [s for s in self.samples if s.asked >= begin and s.answered <= end]


def _until(look: Callable[[], FoundT | None], what: str, seconds: float = _LIMIT) -> FoundT:
    """Return what `look` finds, as soon as it does."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(_INTERVAL / 2)
    raise BenchmarkError(f"within {seconds:g} s there was no {what}")


def _dialog_at(agent: Agent, pattern: str) -> float | None:
    """Return when an agent's screen shows a pattern, None if it does not soon."""
    machine = agent.machine
    target = f"=outrider:={agent.session}"
    command = ["tmux", "-L", machine.tmux_socket, "capture-pane", "-p", "-t", target]
    environment = machine.here.environment({})
    deadline = time.time() + _DIALOG_SECONDS
    while time.time() < deadline:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if re.search(pattern, done.stdout.rstrip()):
            return time.time()
        time.sleep(_INTERVAL)
    return None


@dataclass
class _Measured:
    """What was measured, in seconds for each turn; `wrong` has each sample that was, and why."""

    launch: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    generating: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    samples: int = 0


class _Turns:
    """Takes turns with an agent while its status is sampled."""

    def __init__(
        self, kind: AgentKind, model: StubModel, agent: Agent, sampler: _Sampler, found: _Measured
    ) -> None:
        self._kind, self._model, self._agent = kind, model, agent
        self._sampler, self._found = sampler, found

    def take(self, message: str) -> None:
        """Take a turn that ends in an answer."""
        sent, accepted, first, last = self._send(message)
        began = self._sampler.first("generating", sent)
        # An agent may have answered before its record has the message, upon which `send` waits.
        ended = self._sampler.first("idle", max(last, began.answered))
        self._found.generating.append(max(0.0, began.answered - first))
        self._found.idle.append(max(0.0, ended.answered - last))
        self._check(accepted, last, {"generating"}, message)
        self._check(last, ended.answered, {"generating", "idle"}, message)
        self._rest(ended, message)

    def approve(self, message: str) -> None:
        """Take a turn in which the agent asks for an approval, and gets it."""
        kind = self._kind.type
        sent, accepted, first, shown = self._send(message)
        if kind in _DIALOGS:
            shown = _dialog_at(self._agent, _DIALOGS[kind]) or shown
        asks = self._sampler.first("waiting_approval", sent)
        began = self._sampler.first("generating", sent)
        self._found.generating.append(max(0.0, began.answered - first))
        self._found.asking.append(max(0.0, asks.answered - shown))
        self._check(accepted, asks.asked, {"generating"}, message)
        time.sleep(_PAUSE)
        answering = time.time()
        self._check(asks.answered, answering, {"waiting_approval"}, message)
        self._agent.post("approve", {"action": "approve"})
        approved = time.time()
        ended = self._sampler.first("idle", approved)
        last = max(entry["t"] for entry in self._model.lines(ev="last"))
        if last > answering:  # the model got the command's result
            self._found.idle.append(max(0.0, ended.answered - last))
            self._check(approved, last, {"generating"}, message)
        self._rest(ended, message)

    def _send(self, message: str) -> tuple[float, float, float, float]:
        """Send a message.

        Returns:
            When it was sent and accepted, and when the first and last byte of the answer were sent.
        """
        sent = time.time()
        self._agent.send(message)
        accepted = time.time()
        self._found.accepted.append(accepted - sent)

        def answered() -> dict[str, float] | None:
            times = self._model.times(message, sent)
            return times if "last" in times else None

        times = _until(answered, f"answer of the model to {message!r}")
        return sent, accepted, times["first"], times["last"]

    def _rest(self, ended: _Sample, message: str) -> None:
        """Check that the agent stays idle after its turn."""
        time.sleep(_PAUSE)
        self._check(ended.answered, time.time(), {"idle"}, f"after {message}")

    def _check(self, begin: float, end: float, right: set[str], message: str) -> None:
        """Count the samples of a time that are not right."""
        samples = self._sampler.between(begin, end)
        wrong = [f"{s.status} in {message!r}" for s in samples if s.status not in right]
        self._found.wrong += wrong


def _costs(agent: Agent) -> tuple[float, float]:
    """Return what percentage of a processor the daemon uses for an idle and a busy session."""
    time.sleep(_SETTLE)
    idle = _cost(agent.machine)
    # 40 words of the answer, one by one, for longer than is measured
    agent.send(f"slowly now SLOW:{(_COST_SECONDS + 2 * _SETTLE) / 40:.2f}")
    time.sleep(_SETTLE)
    generating = _cost(agent.machine)
    if agent.status()["status"] != "generating":
        raise BenchmarkError(f"{agent.kind}: the turn was over before it was measured")
    _wait_for(agent, "idle", 30)
    return idle, generating


def _cost(machine: MachineAgent) -> float:
    before, began = machine.program.family_cpu_seconds(), time.perf_counter()
    time.sleep(_COST_SECONDS)
    used = machine.program.family_cpu_seconds() - before
    return used / (time.perf_counter() - began) * 100


def _restart(agent: Agent) -> float:
    """Kill the daemon in the middle of a turn; return the seconds from its start to the status."""
    agent.send("hold on SLOW:0.2")
    agent.machine.kill()
    began = time.perf_counter()
    agent.machine.start()
    _wait_for(agent, "generating", 10)
    seconds = time.perf_counter() - began
    _wait_for(agent, "idle", 30)
    return seconds


def _wait_for(agent: Agent, status: str, seconds: float) -> None:
    """Wait until the agent has this status; a machine that is away has none."""

    def has_status() -> bool | None:
        with contextlib.suppress(httpx.HTTPStatusError):
            return agent.status()["status"] == status or None
        return None

    _until(has_status, f"{status} of {agent.kind}", seconds)


def _figures(found: _Measured, idle: float, generating: float) -> list[Figure]:
    restarts = Figure("daemon killed, started: status right", "s", found.restart, target=_RESTART)
    wrong = f"wrong statuses of {found.samples:,} seen"
    busy = "daemon, a generating session"
    return [
        _tail("last byte to idle", found.idle, _IDLE),
        Figure("last byte to idle, median", "s", found.idle),
        _tail("first byte to generating", found.generating, _SOON),
        _tail("dialog to waiting_approval", found.asking, _SOON),
        Figure(wrong, "", [len(found.wrong)], target=NONE),
        *([restarts] if found.restart else []),
        Figure("daemon, an idle session", "% of a core", [idle], target=_IDLE_COST),
        Figure(busy, "% of a core", [generating], target=_GENERATING_COST),
        Figure("launch to ready", "s", found.launch),
        Figure("send to accepted, median", "s", found.accepted),
        _tail("send to accepted", found.accepted),
    ]


def _tail(name: str, values: list[float], target: Target | None = None) -> Figure:
    found = [statistics.quantiles(values, n=20, method="inclusive")[-1]] if values else []
    return Figure(f"{name}, 95th percentile", "s", found, target=target)
