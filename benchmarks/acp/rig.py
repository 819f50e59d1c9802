"""Scripted agents on a machine of their own: the real service, the real daemon, all over REST."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.machine_agent import MachineAgent
from benchmarks.processes import REPOSITORY, BenchmarkError, Program, Stage
from benchmarks.service import Installation

AGENT: Final = REPOSITORY / "tests/daemon/agents/acp/scripted_agent.py"

_EMAIL: Final = "acp@outrider.invalid"
_KIND: Final = "scripted"
_TURN_SECONDS: Final = 60.0


class Rig:
    """The service, and a machine that knows the scripted agent. Made by `rig`."""

    def __init__(self, here: Stage) -> None:
        home, config = here.directory / "home", here.directory / "config"
        self._project = here.directory / "project"
        for folder in (home, config / "providers", self._project):
            folder.mkdir(parents=True)
        (config / "providers" / f"{_KIND}.toml").write_text(
            f'type = "{_KIND}"\ncategory = "acp"\ndisplay_name = "Scripted"\n'
            f"command = ['{sys.executable}', '{AGENT}']\ninstall = \"-\"\n"
        )
        installation = Installation(here, "service")
        server = installation.serve(installation.new_key(_EMAIL))
        code = installation.new_code(_EMAIL)
        self.machine = MachineAgent(here, server, code, config, settings={"HOME": str(home)})

    @property
    def daemon(self) -> Program:
        """The machine agent's process."""
        return self.machine.program

    def launch(self) -> "Agent":
        """Launch an agent."""
        session, target = self.machine.launch(_KIND, self._project)
        return Agent(self.machine, target, session)


class Agent:
    """A launched agent, driven over REST."""

    def __init__(self, machine: MachineAgent, target: str, session: str) -> None:
        self._machine = machine
        self._path = f"/shortcuts/{target}"
        self._session = session

    def say(self, text: str) -> None:
        """Send a message."""
        self._machine.post(f"{self._path}/chat", {"message": text})

    def status(self) -> dict[str, Any]:
        """Return its status now."""
        status: dict[str, Any] = self._machine.get(f"{self._path}/status")
        return status

    def newest(self) -> str:
        """Return the newest message's text."""
        messages = self._machine.get(f"{self._path}/chat?limit=1")["messages"]
        text: str = messages[-1]["content"] if messages else ""
        return text

    def wait(self) -> float:
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
        self._machine.stop(_KIND, self._session)


@contextmanager
def rig(here: Stage) -> Iterator[Rig]:
    """Give a rig for the length of a block."""
    made = Rig(here)
    try:
        yield made
    finally:
        made.machine.end()
