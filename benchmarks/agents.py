"""How soon and how exactly the status of real agents follows them; a stub is their model."""

import asyncio
import contextlib
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx
import psutil
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds import KINDS
from tests.daemon.agents.machine import StubModel, agent_environment, install_agent, stub_model

from benchmarks.clients import Clients
from benchmarks.command import Options
from benchmarks.machine_agent import Agent, MachineAgent, machine_agent
from benchmarks.processes import BenchmarkError, Stage, stage
from benchmarks.report import NONE, Figure, Report, Section, Target
from benchmarks.service import Installation

_INTERVAL: Final = 0.02
"""Seconds between two samples."""

DIALOGS: Final = {
    "claude-code": r"Do you want to proceed\?",
    "codex": r"Would you like to run",
    "opencode": r"Permission required",
    "gemini-cli": r"Allow execution",
    "aider": r"\(Y\)es/\(N\)o[^\n]*\[Yes\]:\Z",
}
"""What is on the screen while an agent asks; without one, the last byte of the model counts."""

APPROVALS: Final = 5
MESSAGES: Final = (
    *(f"hello number {number}" for number in range(1, 7)),
    *(f"take your time {number} SLOW:0.03" for number in range(1, 6)),
    "think about it in silence SILENT:20",
    "a long one LONG SLOW:0.005",
    "a neat one MD",
    "another neat one MD SLOW:0.05",
)
_PAUSE: Final = 0.5
_LIMIT: Final = 90.0


class Sample(NamedTuple):
    """A status, and the seconds since the epoch between which it was given."""

    asked: float
    answered: float
    status: str


class Sampler(Clients):
    """Polls an agent's status."""

    def __init__(self, agent: Agent) -> None:
        server = agent.machine.server
        super().__init__(server, 30)
        self._url = f"{server.url}/api/v1/shortcuts/{agent.target}/status"
        self.samples: list[Sample] = []

    async def work(self) -> None:
        """Take samples."""
        while not self.is_ending:
            await asyncio.sleep(_INTERVAL)
            asked = time.time()
            state = await self.request("status", "GET", self._url)
            self.samples.append(Sample(asked, time.time(), state.get("status", "no answer")))

    def first(self, status: str, after: float) -> Sample:
        """Wait for the first sample of this status asked for behind a time."""
        deadline = time.time() + _LIMIT
        position = 0
        while time.time() < deadline:
            self.check()
            while position < len(self.samples):
                sample = self.samples[position]
                if sample.status == status and sample.asked >= after:
                    return sample
                position += 1
            time.sleep(_INTERVAL / 2)
        raise BenchmarkError(f"never {status}, but {self.samples[-1:]}")

    def between(self, begin: float, end: float) -> list[Sample]:
        """Return the samples that were asked for and answered within these times."""
        return [s for s in self.samples if s.asked >= begin and s.answered <= end]


class Screen:
    """Watches an agent's screen for a pattern, in a thread of its own.

    `seen` is when it first was there, None before.
    """

    def __init__(self, agent: Agent, pattern: str) -> None:
        machine = agent.machine
        target = f"=outrider:={agent.session}"
        self._command = ["tmux", "-L", machine.tmux_socket, "capture-pane", "-p", "-t", target]
        self._pattern = re.compile(pattern)
        self._environment = machine.here.environment({})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self.seen: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def _run(self) -> None:
        while self.seen is None and not self._ending.wait(_INTERVAL):
            shown = subprocess.run(
                self._command, check=False, capture_output=True, text=True, env=self._environment
            ).stdout
            if self._pattern.search(shown.rstrip()):
                self.seen = time.time()


@dataclass
class Measured:
    """What was measured, in seconds for each turn; `wrong` has each sample that was, and why."""

    launch: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    generating: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    samples: int = 0

    def check(self, samples: list[Sample], right: set[str], message: str) -> None:
        """Count the samples that are not right."""
        self.wrong += [f"{s.status} in {message!r}" for s in samples if s.status not in right]


class Turns:
    """Takes turns with an agent while its status is sampled."""

    def __init__(
        self, kind: AgentKind, model: StubModel, agent: Agent, sampler: Sampler, found: Measured
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
        with Screen(self._agent, DIALOGS.get(kind, r"(?!)")) as screen:
            sent, accepted, first, shown = self._send(message)
            asks = self._sampler.first("waiting_approval", sent)
            deadline = time.time() + (2 if kind in DIALOGS else 0)
            while screen.seen is None and time.time() < deadline:
                time.sleep(0.005)
        began = self._sampler.first("generating", sent)
        self._found.generating.append(max(0.0, began.answered - first))
        self._found.asking.append(max(0.0, asks.answered - (screen.seen or shown)))
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
        while time.time() < sent + _LIMIT:
            times = self._model.times(message, sent)
            if "last" in times:
                return sent, accepted, times["first"], times["last"]
            time.sleep(0.01)
        raise BenchmarkError(f"{self._kind.type}: the model has not answered {message!r}")

    def _rest(self, ended: Sample, message: str) -> None:
        """Check that the agent stays idle after its turn."""
        time.sleep(_PAUSE)
        self._check(ended.answered, time.time(), {"idle"}, f"after {message}")

    def _check(self, begin: float, end: float, right: set[str], message: str) -> None:
        self._found.check(self._sampler.between(begin, end), right, message)


USUAL: Final = ("claude-code", "codex", "opencode", "gemini-cli", "aider")
"""The kinds that are measured unless others are asked for."""

_IDLE: Final = Target("at most", 1.0)
_SOON: Final = Target("at most", 0.5)
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


@contextmanager
def _machine(here: Stage, kind: AgentKind) -> Iterator[tuple[MachineAgent, StubModel, Path]]:
    """Provide a machine for agents of this kind, their model, and a project."""
    folder = here.directory / kind.type
    home, project = folder / "home", folder / "project"
    project.mkdir(parents=True)
    with stub_model(folder) as model:
        kind.seed(home, project, model.url)
        environment = agent_environment(home, install_agent(kind), kind.environment(model.url))
        installation = Installation(here, f"{kind.type}/service")
        with machine_agent(installation, settings=environment) as machine:
            yield machine, model, project


def _section(here: Stage, kind: AgentKind, options: Options) -> Section:
    found = Measured()
    with _machine(here, kind) as (machine, model, project):
        options.progress(f"{kind.type}: launches")
        agent = _launched(machine, kind, project, found)
        for _ in range(2):
            agent.stop()
            agent = _launched(machine, kind, project, found)
        options.progress(f"{kind.type}: twenty turns")
        with Sampler(agent) as sampler:
            turns = Turns(kind, model, agent, sampler, found)
            for message in MESSAGES:
                turns.take(message)
            for number in range(APPROVALS):
                turns.approve(kind.wants(f"touch mark-{number}"))
        found.samples = len(sampler.samples)
        for wrong in found.wrong[:20]:
            options.progress(f"{kind.type}: wrong: {wrong}")
        options.progress(f"{kind.type}: cost")
        costs = _costs(agent)
        if not any("daemon_that_is_killed" in test for test in kind.cannot):
            options.progress(f"{kind.type}: a daemon that is killed")
            found.restart = [_restart(agent) for _ in range(3)]
        agent.stop()
    return Section(f"Agents: {kind.type}", _figures(found, *costs))


def _launched(machine: MachineAgent, kind: AgentKind, project: Path, found: Measured) -> Agent:
    began = time.perf_counter()
    agent = machine.launch(kind.type, project)
    found.launch.append(time.perf_counter() - began)
    return agent


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
    before, began = _daemon_seconds(machine), time.perf_counter()
    time.sleep(_COST_SECONDS)
    return (_daemon_seconds(machine) - before) / (time.perf_counter() - began) * 100


def _daemon_seconds(machine: MachineAgent) -> float:
    """Return the processor seconds of the daemon so far, those of its tmux client with it."""
    total = machine.program.cpu_seconds()
    for process in machine.program.process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.cpu_times().user + process.cpu_times().system
    return total


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
    """Ask for the status until it is this one; a machine that is away has none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPStatusError):
            if agent.status()["status"] == status:
                return
        time.sleep(0.01)
    raise BenchmarkError(f"{agent.kind}: not {status} within {seconds:g} s")


def _figures(found: Measured, idle: float, generating: float) -> list[Figure]:
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
