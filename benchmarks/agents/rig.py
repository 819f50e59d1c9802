"""One kind of agent on a machine of its own: the real service, the real daemon, a stub model."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.machine import StubModel, agent_environment, stub_model

from benchmarks.processes import REPOSITORY, BenchmarkError, Program, Stage
from benchmarks.service import Installation, Server
from outrider.daemon.settings import DaemonSettings

_EMAIL: Final = "agents@outrider.invalid"
_INSTALL: Final = REPOSITORY / "tests" / "agents" / "install.sh"
_INSTALL_SECONDS: Final = 600


class Rig:
    """A machine with one kind of agent, driven over REST. Make it with `rig`."""

    def __init__(self, here: Stage, kind: AgentKind, model: StubModel) -> None:
        self._here = here
        self.kind = kind
        self.model = model
        self.folder = here.directory / kind.type
        self.project = self.folder / "project"
        self.project.mkdir(parents=True)
        home = self.folder / "home"
        kind.seed(home, self.project, model.url)
        self._config = self.folder / "config"
        environment = agent_environment(home, _installed(kind), kind.environment(model.url))
        self._settings = {
            **environment,
            "OUTRIDER_CONFIG_DIR": str(self._config),
            "OUTRIDER_LOG_LEVEL": "warning",
        }
        installation = Installation(here, f"{kind.type}/service")
        self.server: Server = installation.serve(installation.new_key(_EMAIL))
        code = installation.new_code(_EMAIL)
        here.start(
            "setup",
            ["-m", "outrider", "setup", "--server", self.server.url, "--code", code],
            self._settings,
        ).wait_for_success()
        self.client = httpx.Client(
            base_url=f"{self.server.url}/api/v1",
            headers=self.server.headers,
            timeout=120,
            trust_env=False,
        )
        self.daemon: Program
        self.start_daemon()
        self.daemon.wait_until(self._is_connected, "connected")
        self.machine: str = self.get("/daemons")["daemons"][0]["id"]
        self.target = ""
        self.session = ""

    @property
    def tmux_socket(self) -> str:
        """The name of the daemon's tmux server."""
        return DaemonSettings(self._config).tmux_socket

    def start_daemon(self) -> None:
        """Start the daemon, without waiting for it."""
        self.daemon = self._here.start("daemon", ["-m", "outrider", "daemon"], self._settings)

    def kill_daemon(self) -> None:
        """Kill the daemon, as a crash would end it, and wait for that."""
        os.kill(self.daemon.pid, signal.SIGKILL)
        psutil.Process(self.daemon.pid).wait(10)

    def launch(self) -> float:
        """Launch an agent; return the seconds until it was ready for a message."""
        began = time.perf_counter()
        body = {"type": self.kind.type, "dir": str(self.project)}
        launched = self.post(f"/shortcuts/{self.machine}/launch", body)
        self.session, self.target = launched["sessionId"], launched["sessionTargetId"]
        return time.perf_counter() - began

    def stop(self) -> None:
        """Stop the agent."""
        body = {"type": self.kind.type, "sessionId": self.session}
        self.post(f"/shortcuts/{self.machine}/stop", body)

    def status(self) -> str:
        """Return the agent's status now."""
        status: str = self.get(f"/shortcuts/{self.target}/status")["status"]
        return status

    def daemon_seconds(self) -> float:
        """Return the processor seconds of the daemon so far, those of its tmux client with it."""
        own = psutil.Process(self.daemon.pid)
        total = 0.0
        for process in [own, *own.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def get(self, path: str) -> Any:
        """Return what a GET answers."""
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, str]) -> Any:
        """Return what a POST answers.

        Raises:
            BenchmarkError: it was refused.
        """
        answer = self.client.post(path, json=body)
        if answer.is_error:
            raise BenchmarkError(f"{self.kind.type}: POST {path}: {answer.text[:1000]}")
        return answer.json()

    def end(self) -> None:
        """Stop what was launched, and every program."""
        with contextlib.suppress(httpx.HTTPError, BenchmarkError):
            for session in self.get(f"/daemons/{self.machine}/status")["sessions"]:
                body = {"type": session["type"], "sessionId": session["id"]}
                self.post(f"/shortcuts/{self.machine}/stop", body)
        self.client.close()
        tmux = ["tmux", "-L", self.tmux_socket, "kill-server"]
        subprocess.run(tmux, check=False, capture_output=True, env=self._here.environment({}))
        self.daemon.end()
        self.server.program.end()

    def _is_connected(self) -> bool:
        """Tell whether the machine has told what it knows, which it does when it has connected."""
        machines = self.get("/daemons")["daemons"]
        status = self.get(f"/daemons/{machines[0]['id']}/status") if machines else {}
        return bool(status.get("availableProviders"))


@contextmanager
def rig(here: Stage, kind: AgentKind) -> Iterator[Rig]:
    """Give a machine for agents of this kind, for the length of a block."""
    folder = here.directory / f"{kind.type}-model"
    folder.mkdir()
    with stub_model(folder) as model:
        made = Rig(here, kind, model)
        try:
            yield made
        finally:
            made.end()


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
