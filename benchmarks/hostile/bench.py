"""What the attacks are aimed at: a service with another client's machine, or a machine itself."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.hostile.attacks import Aim
from benchmarks.machine_agent import MachineAgent
from benchmarks.processes import BenchmarkError, Program, Stage, split_processors
from benchmarks.service import Installation, Server, enroll, start_scripted_machine, status_path

_OTHER_CLIENT: Final = "client@outrider.invalid"
_ATTACKER: Final = "attacker@outrider.invalid"

_PYTHON_AGENT: Final = """
type = "python"
display_name = "Python"
command = ["python3", "-q", "-i", "-S"]
args = []
install = "apt install python3"
[[rules]]
name = "prompt"
status = "idle"
screen = '^>>>\\Z'
"""
"""An agent that every machine has; its status is asked for."""


class Bench(msgspec.Struct, frozen=True):
    """A service under attack.

    Attributes:
        victim: the program whose memory is watched.
        path: of the status that the other client asks for.
    """

    server: Server
    victim: Program
    path: str
    aim: Aim


@contextmanager
def service(here: Stage, name: str) -> Iterator[Bench]:
    """Provide a service with a client whose machine answers, and an attacker with an account."""
    served, _ = split_processors()
    installation = Installation(here, name)
    server = installation.serve(installation.new_key(_OTHER_CLIENT), served)
    daemon_id, token = enroll(server, installation.new_code(_OTHER_CLIENT))
    machine = start_scripted_machine(here, server, daemon_id, token)
    key = installation.new_key(_ATTACKER)
    attacking_id, attacking_token = enroll(server, installation.new_code(_ATTACKER))
    aim = Aim(_port(server), key, token=attacking_token, daemon_id=attacking_id)
    try:
        yield Bench(server, server.program, status_path(daemon_id), aim)
    finally:
        machine.end()
        server.program.end()


@contextmanager
def machine(here: Stage, name: str) -> Iterator[Bench]:
    """Provide a service and a real machine agent with an agent; commands time out after 2 s."""
    served, loading = split_processors()
    installation = Installation(here, name, settings={"OUTRIDER_COMMAND_TIMEOUT": "2"})
    server = installation.serve(installation.new_key(_ATTACKER), loading)
    config = here.directory / f"{name}-config"
    (config / "providers").mkdir(parents=True)
    (config / "providers" / "python.toml").write_text(_PYTHON_AGENT)
    code = installation.new_code(_ATTACKER)
    agent = MachineAgent(here, server, code, config, cpus=served)
    try:
        target = _launched(agent, here.directory)
        aim = Aim(_port(server), server.key, daemon_id=agent.id, target=target)
        yield Bench(server, agent.program, f"/api/v1/shortcuts/{target}/status", aim)
    finally:
        agent.end()
        server.program.end()


def _launched(agent: MachineAgent, directory: Path) -> str:
    """Launch the agent; return its session's target id."""
    with suppress(BenchmarkError):  # it may outlive the time limit of commands
        agent.launch("python", directory)

    def is_idle() -> bool:
        return any(session["status"] == "idle" for session in agent.sessions())

    agent.program.wait_until(is_idle, "ready with its agent", 60)
    return agent.sessions()[0]["targetId"]


def _port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])
