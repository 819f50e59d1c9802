"""The real machine agent, enrolled with a service, and driven by the Python client."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.processes import REPOSITORY, BenchmarkError, Program, Stage
from benchmarks.service import Installation, Server
from outrider.contract.errors import OutriderError
from outrider.contract.resources import Session
from outrider.machine.settings import DaemonSettings
from outrider.sdk import Agent, Machine, Outrider

_TURN_SECONDS: Final = 60.0

SCRIPTED: Final = {
    "scripted": f"""
type = "scripted"
category = "acp"
display_name = "Scripted"
command = ['{sys.executable}', '{REPOSITORY}/tests/machine/agents/acp/scripted_agent.py']
install = "-"
"""
}
"""The provider file of the scripted agent of the tests, for `machine_agent`."""


class MachineAgent:
    """A machine agent that is connected to a service. Make it with `machine_agent`.

    Attributes:
        server: the service.
        home: the home directory, in which agents are launched.
        machine: the machine, in the Python client.
        program: the process that runs now.
    """

    def __init__(
        self, stage: Stage, server: Server, settings: Mapping[str, str], cpus: Sequence[int]
    ) -> None:
        self._stage, self.server, self._settings, self._cpus = stage, server, settings, cpus
        self.home = Path(settings["HOME"])
        self._client = Outrider(server.url, server.key, timeout=120, max_retries=0)
        self.machine: Machine
        self.program: Program
        self.start()
        self.program.wait_until(self._is_connected, "connected")

    def start(self) -> None:
        """Start its process, without waiting for it."""
        daemon = ["-m", "outrider", "daemon"]
        self.program = self._stage.start("machine agent", daemon, self._settings, self._cpus)

    def kill(self) -> None:
        """Kill its process, as a crash would end it, and wait for that."""
        self.program.process.kill()
        self.program.process.wait(10)

    def launch(self, kind: str, directory: Path | None = None) -> Agent:
        """Launch an agent, in a directory or in its home."""
        return self.machine.launch(kind, dir=str(directory or self.home))

    def sessions(self) -> list[Session]:
        """Return the sessions that the machine has reported."""
        return self.machine.status().sessions

    def tmux(self, *arguments: str) -> str:
        """Run a command of its tmux server, which may have ended; return its output."""
        socket = DaemonSettings(Path(self._settings["OUTRIDER_CONFIG_DIR"])).tmux_socket
        command = ["tmux", "-L", socket, *arguments]
        environment = self._stage.environment({})
        return subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment
        ).stdout

    def end(self) -> None:
        """Stop what was launched, and end the machine agent."""
        with contextlib.suppress(OutriderError):
            for session in self.sessions():
                self.machine.stop(session.type, session_id=session.id)
        self._client.close()
        self.tmux("kill-server")
        self.program.end()

    def _is_connected(self) -> bool:
        """Return whether a connected machine has reported its providers."""
        machines = self._client.machines.list()
        if machines:
            self.machine = machines[0]
        return bool(machines and self.machine.status().available_providers)


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
    stage = installation.stage
    config, home = (stage.directory / f"{installation.name}-{of}" for of in ("config", "home"))
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
    stage.start("setup", setup, settings).wait_for_success()
    machine = MachineAgent(stage, server, settings, cpus)
    try:
        yield machine
    finally:
        machine.end()
        server.program.end()


def wait_until_idle(agent: Agent) -> float:
    """Wait for the end of an agent's turn; return when it was seen (epoch seconds).

    Raises:
        BenchmarkError: it did not end within a minute, or failed.
    """
    deadline = time.time() + _TURN_SECONDS
    while (status := agent.status().status) == "generating":
        if time.time() > deadline:
            raise BenchmarkError(f"a turn has not ended within {_TURN_SECONDS:g} s")
    if status != "idle":
        raise BenchmarkError(f"a turn has ended in {status}")
    return time.time()
