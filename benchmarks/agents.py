"""How soon and how exactly the status of real agents follows them; a stub is their model."""

import re
import statistics
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds import KINDS
from tests.machine.agents.machine import StubModel, agent_environment, install_agent, stub_model

from benchmarks.bench import Bench, Sections
from benchmarks.machine_agent import MachineAgent, machine_agent
from benchmarks.processes import BenchmarkError
from benchmarks.report import NONE, Figure, Section, Target
from benchmarks.service import Installation
from outrider.contract.errors import OutriderError
from outrider.sdk import Agent

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
_RESTARTS: Final = 3
_PAUSE: Final = 0.5
_LIMIT: Final = 90.0
_DIALOG_SECONDS: Final = 5.0
_COST_SECONDS: Final = 15
_SETTLE: Final = 2.0


def agents(bench: Bench) -> Sections:
    """Measure the kinds of `--only`, or the five that run in a terminal."""
    kinds = {kind.type: kind for kind in KINDS}
    wanted = bench.only or _USUAL
    if unknown := [name for name in wanted if name not in kinds]:
        raise BenchmarkError(f"unknown agents {unknown}: there are {', '.join(kinds)}")
    for name in wanted:
        yield _section(kinds[name], bench)


def _section(kind: AgentKind, bench: Bench) -> Section:
    with _machine(kind, bench) as (machine, model, project):
        bench.progress(f"{kind.type}: launches")
        launches = []
        for number in range(_LAUNCHES):
            began = time.perf_counter()
            agent = machine.launch(kind.type, project)
            launches.append(time.perf_counter() - began)
            if number < _LAUNCHES - 1:
                agent.stop()
        bench.progress(f"{kind.type}: twenty turns")
        turns = _Turns(kind, model, machine, agent)
        with turns.sampled():
            for message in _MESSAGES:
                turns.take(message)
            for number in range(_APPROVALS):
                turns.approve(kind.wants(f"touch mark-{number}"))
        for wrong in turns.wrong[:20]:
            bench.progress(f"{kind.type}: wrong: {wrong}")
        bench.progress(f"{kind.type}: cost")
        idle, generating = _costs(machine, agent)
        restarts = []
        if not any("daemon_that_is_killed" in test for test in kind.cannot):
            bench.progress(f"{kind.type}: a daemon that is killed")
            restarts = [_restart(machine, agent) for _ in range(_RESTARTS)]
    times, soon = turns.times, Target("at most", 0.5)
    wrong = f"wrong statuses of {len(turns.samples):,} seen"
    figures = [
        _tail("last byte to idle", times["idle"], Target("at most", 1.0)),
        Figure("last byte to idle, median", "s", times["idle"]),
        _tail("first byte to generating", times["generating"], soon),
        _tail("dialog to waiting_approval", times["asking"], soon),
        Figure(wrong, "", [len(turns.wrong)], target=NONE),
        Figure(
            "daemon killed, started: status right", "s", restarts, target=Target("at most", 2.0)
        ),
        Figure("daemon, an idle session", "% of a core", [idle], target=Target("at most", 0.3)),
        Figure(
            "daemon, a generating session", "% of a core", [generating], target=Target("at most", 3)
        ),
        Figure("launch to ready", "s", launches),
        Figure("send to accepted, median", "s", times["accepted"]),
        _tail("send to accepted", times["accepted"]),
    ]
    return Section(f"Agents: {kind.type}", [figure for figure in figures if figure.runs])


def _tail(name: str, values: list[float], target: Target | None = None) -> Figure:
    found = [statistics.quantiles(values, n=20, method="inclusive")[-1]] if values else []
    return Figure(f"{name}, 95th percentile", "s", found, target=target)


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


class _Turns:
    """Takes turns with an agent while its status is sampled.

    Attributes:
        samples: the statuses that were given, in their order.
        wrong: those that were, and in which turn.
        times: the seconds of each turn until it was accepted, generating, asking and idle.
    """

    def __init__(
        self, kind: AgentKind, model: StubModel, machine: MachineAgent, agent: Agent
    ) -> None:
        self._kind, self._model, self._machine, self._agent = kind, model, machine, agent
        self.samples: list[_Sample] = []
        self.wrong: list[str] = []
        self.times: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample the status in a thread, for the length of a block."""
        ending = threading.Event()

        def sample() -> None:
            while not ending.wait(_INTERVAL):
                asked, status = time.time(), "no answer"
                with suppress(OutriderError):
                    status = self._agent.status().status
                self.samples.append(_Sample(asked, time.time(), status))

        with ThreadPoolExecutor(1) as pool:
            sampling = pool.submit(sample)
            try:
                yield
            finally:
                ending.set()
                sampling.result()

    def take(self, message: str) -> None:
        """Take a turn that ends in an answer."""
        sent, accepted, first, last = self._send(message)
        began = self._began(sent, accepted, last)
        ended = self._first("idle", max(last, began))
        self.times["generating"].append(max(0.0, began - first))
        self.times["idle"].append(max(0.0, ended.answered - last))
        self._check(accepted, last, {"generating"}, message)
        self._check(last, ended.answered, {"generating", "idle"}, message)
        self._rest(ended, message)

    def approve(self, message: str) -> None:
        """Take a turn in which the agent asks for an approval, and gets it."""
        sent, accepted, first, last = self._send(message)
        shown = self._dialog_at() or last
        asks = self._first("waiting_approval", sent)
        began = self._began(sent, accepted, last)
        self.times["generating"].append(max(0.0, began - first))
        self.times["asking"].append(max(0.0, asks.answered - shown))
        self._check(accepted, asks.asked, {"generating"}, message)
        time.sleep(_PAUSE)
        answering = time.time()
        self._check(asks.answered, answering, {"waiting_approval"}, message)
        self._agent.approve()
        approved = time.time()
        ended = self._first("idle", approved)
        last = max(entry["t"] for entry in self._model.lines(ev="last"))
        if last > answering:  # the model got the command's result
            self.times["idle"].append(max(0.0, ended.answered - last))
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
        self.times["accepted"].append(accepted - sent)

        def answered() -> dict[str, float] | None:
            times = self._model.times(message, sent)
            return times if "last" in times else None

        times = _until(answered, f"answer of the model to {message!r}")
        return sent, accepted, times["first"], times["last"]

    def _began(self, sent: float, accepted: float, last: float) -> float:
        """Return when the agent was seen generating.

        It may have answered before its record has the message, which `send` waits for. Then it is
        generating for a moment only, perhaps between two samples, and the end of `send` counts.
        """
        return accepted if last < accepted else self._first("generating", sent).answered

    def _dialog_at(self) -> float | None:
        """Return when the agent's screen shows its dialog, None if it does not soon."""
        pattern = _DIALOGS.get(self._kind.type)
        deadline = time.time() + _DIALOG_SECONDS
        while pattern and time.time() < deadline:
            window = f"=outrider:={self._agent.session_id}"
            screen = self._machine.tmux("capture-pane", "-p", "-t", window)
            if re.search(pattern, screen.rstrip()):
                return time.time()
            time.sleep(_INTERVAL)
        return None

    def _first(self, status: str, after: float) -> _Sample:
        """Wait for the first sample of this status that was requested after a time."""

        def found() -> _Sample | None:
            return next((sample for sample in self._since(after) if sample.status == status), None)

        return _until(found, f"{status} after {self.samples[-1:]}")

    def _rest(self, ended: _Sample, message: str) -> None:
        """Check that the agent stays idle after its turn."""
        time.sleep(_PAUSE)
        self._check(ended.answered, time.time(), {"idle"}, f"after {message}")

    def _check(self, begin: float, end: float, right: set[str], message: str) -> None:
        """Note the samples within these times that are not right."""
        samples = [sample for sample in self._since(begin) if sample.answered <= end]
        self.wrong += [
            f"{sample.status} in {message!r}" for sample in samples if sample.status not in right
        ]

    def _since(self, begin: float) -> list[_Sample]:
        """Return the samples that were requested since a time."""
        return self.samples[bisect_left(self.samples, begin, key=itemgetter(0)) :]


def _until(look: Callable[[], FoundT | None], what: str, seconds: float = _LIMIT) -> FoundT:
    """Return what `look` finds, as soon as it does."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(_INTERVAL / 2)
    raise BenchmarkError(f"within {seconds:g} s there was no {what}")


def _wait_for(agent: Agent, status: str, seconds: float) -> None:
    """Wait until the agent has this status; a machine that is away has none."""

    def has_status() -> bool | None:
        with suppress(OutriderError):
            return agent.status().status == status or None
        return None

    _until(has_status, f"{status} of {agent.type}", seconds)


def _costs(machine: MachineAgent, agent: Agent) -> tuple[float, float]:
    """Return what percentage of a processor the daemon uses for an idle and a busy session."""
    time.sleep(_SETTLE)
    idle = machine.program.busy(_COST_SECONDS)
    # 40 words of the answer, one by one, for longer than is measured
    agent.send(f"slowly now SLOW:{(_COST_SECONDS + 2 * _SETTLE) / 40:.2f}")
    time.sleep(_SETTLE)
    generating = machine.program.busy(_COST_SECONDS)
    if agent.status().status != "generating":
        raise BenchmarkError(f"{agent.type}: the turn was over before it was measured")
    _wait_for(agent, "idle", 30)
    return idle, generating


def _restart(machine: MachineAgent, agent: Agent) -> float:
    """Kill the daemon in the middle of a turn; return the seconds from its start to the status."""
    agent.send("hold on SLOW:0.2")
    machine.kill()
    began = time.perf_counter()
    machine.start()
    _wait_for(agent, "generating", 10)
    seconds = time.perf_counter() - began
    _wait_for(agent, "idle", 30)
    return seconds
