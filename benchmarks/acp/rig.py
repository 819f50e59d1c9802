"""Scripted agents on a machine of their own: the real service, the real daemon, all over REST."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.machine_agent import Agent, MachineAgent
from benchmarks.processes import REPOSITORY, Program, Stage
from benchmarks.service import Installation

AGENT: Final = REPOSITORY / "tests/daemon/agents/acp/scripted_agent.py"

_EMAIL: Final = "acp@outrider.invalid"
_KIND: Final = "scripted"


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

    def launch(self) -> Agent:
        """Launch an agent."""
        return self.machine.launch(_KIND, self._project)


@contextmanager
def rig(here: Stage) -> Iterator[Rig]:
    """Provide a rig for the length of a block."""
    made = Rig(here)
    try:
        yield made
    finally:
        made.machine.end()
