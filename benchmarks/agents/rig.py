"""One kind of agent on a machine of its own: the real service, the real daemon, a stub model."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.machine import StubModel, agent_environment, stub_model

from benchmarks.machine_agent import Agent, MachineAgent
from benchmarks.processes import REPOSITORY, BenchmarkError, Stage
from benchmarks.service import Installation

_EMAIL: Final = "agents@outrider.invalid"
_INSTALL: Final = REPOSITORY / "tests" / "daemon" / "agents" / "install.sh"
_INSTALL_SECONDS: Final = 600


class Rig:
    """A machine with one kind of agent, driven over REST. Make it with `rig`."""

    def __init__(self, here: Stage, kind: AgentKind, model: StubModel) -> None:
        self.kind = kind
        self.model = model
        folder = here.directory / kind.type
        self._project = folder / "project"
        self._project.mkdir(parents=True)
        home = folder / "home"
        kind.seed(home, self._project, model.url)
        environment = agent_environment(home, _installed(kind), kind.environment(model.url))
        installation = Installation(here, f"{kind.type}/service")
        self.server = installation.serve(installation.new_key(_EMAIL))
        code = installation.new_code(_EMAIL)
        self.machine = MachineAgent(
            here, self.server, code, folder / "config", settings=environment
        )
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
    folder = here.directory / f"{kind.type}-model"
    folder.mkdir()
    with stub_model(folder) as model:
        made = Rig(here, kind, model)
        try:
            yield made
        finally:
            made.machine.end()
            made.server.program.end()


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
