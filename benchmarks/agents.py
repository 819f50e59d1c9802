"""How soon and how exactly the status of real agents follows them; a stub is their model."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psutil
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds import KINDS
from tests.daemon.agents.machine import StubModel, agent_environment, stub_model

from benchmarks.command import Options, main
from benchmarks.machine_agent import Agent, MachineAgent, machine_agent
from benchmarks.processes import REPOSITORY, BenchmarkError, Stage, stage
from benchmarks.report import Figure, Report, Section, Target
from benchmarks.service import Installation

_INSTALL: Final = REPOSITORY / "tests" / "daemon" / "agents" / "install.sh"
_INSTALL_SECONDS: Final = 600


class Rig:
    """A machine with one kind of agent, driven over REST. Make it with `rig`."""

    def __init__(
        self, kind: AgentKind, model: StubModel, machine: MachineAgent, project: Path
    ) -> None:
        self.kind = kind
        self.model = model
        self.machine = machine
        self.server = machine.server
        self._project = project
        self.agent: Agent

    def launch(self) -> float:
        """Launch an agent; return the seconds until it was ready for a message."""
        began = time.perf_counter()
        self.agent = self.machine.launch(self.kind.type, self._project)
        return time.perf_counter() - began

    def daemon_seconds(self) -> float:
        """Return the processor seconds of the daemon so far, those of its tmux client with it."""
        own = psutil.Process(self.machine.program.pid)
        total = 0.0
        for process in [own, *own.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


@contextmanager
def rig(here: Stage, kind: AgentKind) -> Iterator[Rig]:
    """Provide a machine for agents of this kind, for the length of a block."""
    folder = here.directory / kind.type
    home, project = folder / "home", folder / "project"
    project.mkdir(parents=True)
    with stub_model(folder) as model:
        kind.seed(home, project, model.url)
        environment = agent_environment(home, _installed(kind), kind.environment(model.url))
        installation = Installation(here, f"{kind.type}/service")
        with machine_agent(installation, settings=environment) as machine:
            yield Rig(kind, model, machine, project)


def _installed(kind: AgentKind) -> Path:
    """Return the folder with the agent's command, installed if need be (minutes)."""
    cached = Path(os.environ.get("OUTRIDER_TEST_AGENTS") or REPOSITORY / ".cache" / "agents")
    done = subprocess.run(
        ["sh", str(_INSTALL), str(cached), kind.type],
        check=False, capture_output=True, text=True, timeout=_INSTALL_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise BenchmarkError(f"{kind.type} cannot be installed: {done.stderr[-1000:]}")
    return cached / kind.type / kind.bin


def as_json(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log, each a line; the last may still be on its way."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


INTERVAL: Final = 0.02
"""Seconds between two samples; the issue asks for 0.1, these are as many again and more."""


class Sample(NamedTuple):
    """A status, and the seconds since the epoch between which it was given."""

    asked: float
    answered: float
    status: str


class Sampler:
    """Polls an agent's status, in a thread of its own."""

    def __init__(self, rig: Rig) -> None:
        self._url = urlsplit(rig.server.url)
        self._path = f"/api/v1/shortcuts/{rig.agent.target}/status"
        self._headers = rig.server.headers
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.failure: Exception | None = None

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def first(self, status: str, after: float, seconds: float = 60) -> Sample | None:
        """Wait for the first sample of this status asked for behind a time; None without one."""
        deadline = time.time() + seconds
        position = 0
        while time.time() < deadline and self.failure is None:
            while position < len(self.samples):
                sample = self.samples[position]
                if sample.status == status and sample.asked >= after:
                    return sample
                position += 1
            time.sleep(INTERVAL / 2)
        return None

    def between(self, begin: float, end: float) -> list[Sample]:
        """Return the samples that were asked for and answered within these times."""
        return [s for s in self.samples if s.asked >= begin and s.answered <= end]

    def _run(self) -> None:
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=30)
        try:
            while not self._ending.wait(INTERVAL):
                asked = time.time()
                connection.request("GET", self._path, headers=self._headers)
                body = connection.getresponse().read()
                status = json.loads(body).get("status") or body.decode()
                self.samples.append(Sample(asked, time.time(), status))
        except Exception as error:  # noqa: BLE001  # who waits for a sample reports it
            self.failure = error
        finally:
            connection.close()


class Screen:
    """Watches an agent's screen for a pattern, in a thread of its own.

    `seen` is when it first was there, None before.
    """

    def __init__(self, rig: Rig, pattern: str, environment: Mapping[str, str]) -> None:
        target = f"=outrider:={rig.agent.session}"
        self._command = ["tmux", "-L", rig.machine.tmux_socket, "capture-pane", "-p", "-t", target]
        self._pattern = re.compile(pattern)
        self._environment = environment
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self.seen: float | None = None

    def __enter__(self) -> "Screen":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            shown = subprocess.run(
                self._command, check=False, capture_output=True, text=True, env=self._environment
            ).stdout
            if self._pattern.search(shown.rstrip()):
                self.seen = time.time()
                return


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


@dataclass
class Turns:
    """What was measured: seconds for each turn; `wrong` has each sample that was, and why."""

    accepted: list[float] = field(default_factory=list)
    generating: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    samples: int = 0


def take_turns(rig: Rig, environment: dict[str, str]) -> Turns:
    """Take twenty turns with an idle agent.

    Raises:
        BenchmarkError: the agent does not do what it was asked to.
    """
    turns = Turns()
    with Sampler(rig) as sampler:
        for message in MESSAGES:
            _plain(rig, sampler, turns, message)
        for number in range(APPROVALS):
            _approval(rig, sampler, turns, rig.kind.wants(f"touch mark-{number}"), environment)
        turns.samples = len(sampler.samples)
    return turns


def _plain(rig: Rig, sampler: Sampler, turns: Turns, message: str) -> None:
    sent, accepted = _send(rig, turns, message)
    first, last = _answer(rig, sent, message)
    began = _until(rig, sampler, "generating", sent)
    # An agent may have answered before its record has the message, upon which `send` waits.
    ended = _until(rig, sampler, "idle", max(last, began.answered))
    turns.generating.append(max(0.0, began.answered - first))
    turns.idle.append(max(0.0, ended.answered - last))
    _check(turns, sampler.between(accepted, last), {"generating"}, message)
    _check(turns, sampler.between(last, ended.answered), {"generating", "idle"}, message)
    _rest(turns, sampler, ended, message)


def _approval(
    rig: Rig, sampler: Sampler, turns: Turns, message: str, environment: dict[str, str]
) -> None:
    pattern = DIALOGS.get(rig.kind.type, r"(?!)")
    with Screen(rig, pattern, environment) as screen:
        sent, accepted = _send(rig, turns, message)
        first, shown = _answer(rig, sent, message)
        asks = _until(rig, sampler, "waiting_approval", sent)
        deadline = time.time() + (2 if rig.kind.type in DIALOGS else 0)
        while screen.seen is None and time.time() < deadline:
            time.sleep(0.005)
    turns.generating.append(max(0.0, _until(rig, sampler, "generating", sent).answered - first))
    turns.asking.append(max(0.0, asks.answered - (screen.seen or shown)))
    _check(turns, sampler.between(accepted, asks.asked), {"generating"}, message)
    time.sleep(_PAUSE)
    answering = time.time()
    _check(turns, sampler.between(asks.answered, answering), {"waiting_approval"}, message)
    rig.agent.post("approve", {"action": "approve"})
    approved = time.time()
    ended = _until(rig, sampler, "idle", approved)
    last = max(entry["t"] for entry in as_json(rig.model.log) if entry["ev"] == "last")
    if last > answering:  # the model got the command's result
        turns.idle.append(max(0.0, ended.answered - last))
        _check(turns, sampler.between(approved, last), {"generating"}, message)
    _rest(turns, sampler, ended, message)


def _send(rig: Rig, turns: Turns, message: str) -> tuple[float, float]:
    """Send a message; return when, and when it was accepted."""
    sent = time.time()
    rig.agent.send(message)
    accepted = time.time()
    turns.accepted.append(accepted - sent)
    return sent, accepted


def _answer(rig: Rig, sent: float, message: str) -> tuple[float, float]:
    """Wait for the model's answer; return when its first and its last byte were sent.

    An agent may ask the model for a title as well, with the same words: the request with the
    most tools is the one that counts.
    """
    deadline = time.time() + _LIMIT
    while time.time() < deadline:
        log = as_json(rig.model.log)
        asked = [
            entry
            for entry in log
            if entry["ev"] == "req" and entry["t"] >= sent and message in entry["text"]
        ]
        if asked:
            chosen = max(asked, key=lambda entry: len(entry["tools"]))["id"]
            times = {e["ev"]: float(e["t"]) for e in log if e["id"] == chosen}
            if "last" in times:
                return times["first"], times["last"]
        time.sleep(0.01)
    raise BenchmarkError(f"{rig.kind.type}: the model was not asked {message!r}, or not to the end")


def _until(rig: Rig, sampler: Sampler, status: str, after: float) -> Sample:
    sample = sampler.first(status, after, _LIMIT)
    if sample is None:
        newest = sampler.samples[-1].status if sampler.samples else "nothing"
        shown = rig.agent.get("chat/debug")["bundle"]["parser"]
        raise BenchmarkError(
            f"{rig.kind.type}: never {status}, but {newest}; {sampler.failure or shown}"
        )
    return sample


def _rest(turns: Turns, sampler: Sampler, ended: Sample, message: str) -> None:
    """Check that the agent stays idle after its turn."""
    time.sleep(_PAUSE)
    _check(turns, sampler.between(ended.answered, time.time()), {"idle"}, f"after {message}")


def _check(turns: Turns, samples: list[Sample], right: set[str], message: str) -> None:
    turns.wrong += [f"{s.status} in {message!r}" for s in samples if s.status not in right]


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


if __name__ == "__main__":
    main({"agents": benchmark})
