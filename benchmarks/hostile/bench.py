"""What the attacks are aimed at: a service with another client's machine, or a machine itself."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import httpx
import msgspec

from benchmarks.hostile.attacks import Aim
from benchmarks.processes import Program, Stage, split_processors
from benchmarks.service import Installation, Server, enroll
from outrider.daemon.settings import DaemonSettings

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
    """Give a service with a client whose machine answers, and an attacker with an account."""
    served, loading = split_processors()
    installation = Installation(here, name)
    server = installation.serve(installation.new_key(_OTHER_CLIENT), served)
    daemon_id, token = enroll(server, installation.new_code(_OTHER_CLIENT))
    arguments = ["-m", "benchmarks.scripted_machine", server.websocket_url]
    machine = here.start("scripted machine", arguments, {"TOKEN": token}, loading)
    path = f"/api/v1/shortcuts/{daemon_id}:cli:claude-code/status"
    machine.wait_until(lambda: server.answers(path), "connected")
    key = installation.new_key(_ATTACKER)
    attacking_id, attacking_token = enroll(server, installation.new_code(_ATTACKER))
    aim = Aim(_port(server), key, token=attacking_token, daemon_id=attacking_id)
    try:
        yield Bench(server, server.program, path, aim)
    finally:
        machine.end()
        server.program.end()


@contextmanager
def machine(here: Stage, name: str) -> Iterator[Bench]:
    """Give a service with a real machine agent that runs an agent; commands time out after 2 s."""
    served, loading = split_processors()
    installation = Installation(here, name, settings={"OUTRIDER_COMMAND_TIMEOUT": "2"})
    server = installation.serve(installation.new_key(_ATTACKER), loading)
    config = here.directory / f"{name}-config"
    (config / "providers").mkdir(parents=True)
    (config / "providers" / "python.toml").write_text(_PYTHON_AGENT)
    settings = {"OUTRIDER_CONFIG_DIR": str(config), "OUTRIDER_LOG_LEVEL": "warning"}
    code = installation.new_code(_ATTACKER)
    setup = ["-m", "outrider", "setup", "--server", server.url, "--code", code]
    here.start("setup", setup, settings).wait_for_success()
    daemon = here.start("machine agent", ["-m", "outrider", "daemon"], settings, served)
    daemon.wait_until(lambda: b'"id"' in server.get("/api/v1/daemons"), "connected")
    (listed,) = msgspec.json.decode(server.get("/api/v1/daemons"))["daemons"]
    try:
        target = _launched(server, daemon, listed["id"], str(here.directory))
        aim = Aim(_port(server), server.key, daemon_id=listed["id"], target=target)
        yield Bench(server, daemon, f"/api/v1/shortcuts/{target}/status", aim)
    finally:
        tmux = ["tmux", "-L", DaemonSettings(config).tmux_socket, "kill-server"]
        subprocess.run(tmux, check=False, capture_output=True, env=here.environment({}))
        daemon.end()
        server.program.end()


def _launched(server: Server, daemon: Program, daemon_id: str, directory: str) -> str:
    """Launch the agent; return its session's target id."""
    body = msgspec.json.encode({"type": "python", "dir": directory})
    with suppress(httpx.HTTPStatusError):  # it may outlive the time limit of commands
        server.post(f"/api/v1/shortcuts/{daemon_id}/launch", body)
    sessions: list[dict[str, str]] = []

    def is_idle() -> bool:
        status = msgspec.json.decode(server.get(f"/api/v1/daemons/{daemon_id}/status"))
        sessions[:] = status["sessions"]
        return any(session["status"] == "idle" for session in sessions)

    daemon.wait_until(is_idle, "ready with its agent", 60)
    return sessions[0]["targetId"]


def _port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])
