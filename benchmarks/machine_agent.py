"""The real machine agent, enrolled with a service of the benchmark, and driven over the API."""

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.processes import REPOSITORY, BenchmarkError, Program, Stage
from benchmarks.service import Installation, Server
from outrider.daemon.settings import DaemonSettings

_TURN_SECONDS: Final = 60.0

SCRIPTED: Final = {
    "scripted": f"""
type = "scripted"
category = "acp"
display_name = "Scripted"
command = ['{sys.executable}', '{REPOSITORY}/tests/daemon/agents/acp/scripted_agent.py']
install = "-"
"""
}
"""The provider file of the scripted agent of the tests, for `machine_agent`."""


class MachineAgent:
    """A machine agent that is connected to a service. Make it with `machine_agent`.

    Attributes:
        id: its daemon id.
        here, server: where it runs, and the service that it is connected to.
        home: its home directory, in which agents are launched.
    """

    def __init__(
        self, here: Stage, server: Server, settings: Mapping[str, str], cpus: Sequence[int]
    ) -> None:
        self.here, self.server, self._settings, self._cpus = here, server, settings, cpus
        self.home = Path(settings["HOME"])
        self._client = httpx.Client(
            base_url=f"{server.url}/api/v1", headers=server.headers, timeout=120, trust_env=False
        )
        self.id = ""
        self.start()
        self.program.wait_until(self._is_connected, "connected")

    def start(self) -> None:
        """Start its process, without waiting for it."""
        arguments = ["-m", "outrider", "daemon"]
        self.program: Program = self.here.start(
            "machine agent", arguments, self._settings, self._cpus
        )

    def kill(self) -> None:
        """Kill its process, as a crash would end it, and wait for that."""
        self.program.process.kill()
        self.program.process.wait(10)

    @property
    def tmux_socket(self) -> str:
        """The name of its tmux server."""
        return DaemonSettings(Path(self._settings["OUTRIDER_CONFIG_DIR"])).tmux_socket

    def get(self, path: str) -> Any:
        """Return what a GET answers."""
        return self._client.get(path).raise_for_status().json()

    def post(self, path: str, body: Mapping[str, str]) -> Any:
        """Return what a POST answers.

        Raises:
            BenchmarkError: it was refused.
        """
        answer = self._client.post(path, json=body)
        if answer.is_error:
            raise BenchmarkError(f"POST {path}: {answer.text[:1000]}")
        return answer.json()

    def launch(self, kind: str, directory: Path | None = None) -> "Agent":
        """Launch an agent, in a directory or in its home."""
        body = {"type": kind, "dir": str(directory or self.home)}
        launched = self.post(f"/shortcuts/{self.id}/launch", body)
        return Agent(self, kind, launched["sessionId"], launched["sessionTargetId"])

    def agents(self) -> list["Agent"]:
        """Return the agents that the machine has reported."""
        sessions = self.get(f"/daemons/{self.id}/status")["sessions"]
        return [Agent(self, one["type"], one["id"], one["targetId"]) for one in sessions]

    def end(self) -> None:
        """Stop what was launched, and end the machine agent."""
        with contextlib.suppress(httpx.HTTPError, BenchmarkError):
            for agent in self.agents():
                agent.stop()
        self._client.close()
        tmux = ["tmux", "-L", self.tmux_socket, "kill-server"]
        subprocess.run(tmux, check=False, capture_output=True, env=self.here.environment({}))
        self.program.end()

    def _is_connected(self) -> bool:
        """Return whether a connected machine has reported its providers."""
        for machine in self.get("/daemons")["daemons"]:
            self.id = machine["id"]
            return bool(self.get(f"/daemons/{self.id}/status").get("availableProviders"))
        return False


@contextlib.contextmanager
def machine_agent(
    installation: Installation,
    *,
    providers: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    service_cpus: Sequence[int] = (),
    cpus: Sequence[int] = (),
) -> Iterator[MachineAgent]:
    """Provide a machine agent and its service, for the length of a block.

    Args:
        installation: of the service, without an account.
        providers: provider files of the machine, by type.
        settings: further environment variables.
        cpus: the processors that it may use, all if there are none; `service_cpus` are the
            service's.
    """
    here = installation.stage
    config, home = (here.directory / f"{installation.name}-{of}" for of in ("config", "home"))
    home.mkdir(parents=True)
    (config / "providers").mkdir(parents=True)
    for kind, text in (providers or {}).items():
        (config / "providers" / f"{kind}.toml").write_text(text)
    server = installation.serve(installation.new_account()[1], service_cpus)
    settings = {
        "HOME": str(home),
        **(settings or {}),
        "OUTRIDER_CONFIG_DIR": str(config),
        "OUTRIDER_LOG_LEVEL": "warning",
    }
    code = installation.new_code()
    setup = ["-m", "outrider", "setup", "--server", server.url, "--code", code]
    here.start("setup", setup, settings).wait_for_success()
    machine = MachineAgent(here, server, settings, cpus)
    try:
        yield machine
    finally:
        machine.end()
        server.program.end()


@dataclass(frozen=True)
class Agent:
    """A launched agent, driven over REST."""

    machine: MachineAgent
    kind: str
    session: str
    target: str

    def send(self, message: str) -> None:
        """Send a message."""
        self.post("chat", {"message": message})

    def status(self) -> dict[str, Any]:
        """Return its status now."""
        status: dict[str, Any] = self.get("status")
        return status

    def status_latency(self, seconds: float = 1) -> float:
        """Return the median milliseconds of requests for its status, one after the other."""
        found = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            self.status()
            found.append((time.perf_counter() - began) * 1000)
        return statistics.median(found)

    def get(self, path: str) -> Any:
        """Return what a GET of a path of its session answers."""
        return self.machine.get(f"/shortcuts/{self.target}/{path}")

    def post(self, path: str, body: Mapping[str, str]) -> Any:
        """Return what a POST to a path of its session answers."""
        return self.machine.post(f"/shortcuts/{self.target}/{path}", body)

    def newest_message(self) -> str:
        """Return the newest message's text."""
        messages = self.get("chat?limit=1")["messages"]
        text: str = messages[-1]["content"] if messages else ""
        return text

    def wait_until_idle(self) -> float:
        """Wait for the end of its turn; return when it was seen (epoch seconds).

        Raises:
            BenchmarkError: it did not end within a minute, or failed.
        """
        deadline = time.time() + _TURN_SECONDS
        while (status := self.status()["status"]) == "generating":
            if time.time() > deadline:
                raise BenchmarkError(f"a turn has not ended within {_TURN_SECONDS:g} s")
        if status != "idle":
            raise BenchmarkError(f"a turn has ended in {status}")
        return time.time()

    def stop(self) -> None:
        """Stop it."""
        body = {"type": self.kind, "sessionId": self.session}
        self.machine.post(f"/shortcuts/{self.machine.id}/stop", body)
