"""Gather facts of this machine: programs, agents, directories, disk, port."""

import asyncio
import errno
import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.cli.doctor.local_checks import (
    AgentFacts,
    DiskFacts,
    PathFacts,
    PortFacts,
    ProgramFacts,
)
from outrider.cli.doctor.service_facts import STEP_SECONDS, service_facts

if TYPE_CHECKING:
    from outrider.machine.agents.inspection import ProviderInfo
    from outrider.machine.settings import DaemonSettings
    from outrider.service.settings import Settings

_PROGRAM_SECONDS: Final = 20.0


def git_facts() -> ProgramFacts:
    """Return whether git is there."""
    path = shutil.which("git")
    if path is None:
        return ProgramFacts(None)
    status, output = _output(path, "--version")
    return ProgramFacts(path, _first_line(output)) if status == 0 else ProgramFacts(path)


def tmux_facts() -> ProgramFacts:
    """Return whether tmux is there and can start a server, which ends at once."""
    from outrider.machine.tmux.server import socket_path

    path = shutil.which("tmux")
    if path is None:
        return ProgramFacts(None)
    status, output = _output(path, "-V")
    if status != 0:
        return ProgramFacts(path, failure=_first_line(output) or "it does not print its version")
    name = f"outrider-doctor-{secrets.token_hex(4)}"
    started = ("-L", name, "-f", os.devnull, "new-session", "-d", "sleep 5", ";", "kill-server")
    status, problem = _output(path, *started)
    socket_path(name).unlink(missing_ok=True)  # tmux leaves it behind
    if status != 0:
        failure = _first_line(problem) or "its server does not start"
        return ProgramFacts(path, _first_line(output), failure)
    return ProgramFacts(path, _first_line(output))


def agent_facts(settings: "DaemonSettings") -> tuple[list[AgentFacts], str]:
    """Return the agents that are installed, and a command that installs one."""
    from outrider.machine.agents.inspection import known_providers

    known = [one for one in known_providers(settings) if not one.description.demo]
    install = next(one.install for one in known if one.description.type == "claude-code")
    present = [one for one in known if one.description.installed or one.description.error]

    async def every() -> list[AgentFacts]:
        return await asyncio.gather(*map(_agent, present))

    return asyncio.run(every()), install


async def _agent(info: "ProviderInfo") -> AgentFacts:
    from outrider.machine.agents.inspection import is_logged_in, version

    about = info.description
    program = Path(about.path or about.type).name
    facts = AgentFacts(about.type, about.display_name, program, error=about.error)
    # An IDE opens a window if it does not know an option, and demands no login of its own.
    if about.path is None or about.error is not None or about.category == "ide":
        return facts
    version_text, logged_in = await asyncio.gather(version(about.path), is_logged_in(info))
    return facts._replace(version=version_text, is_logged_in=logged_in)


def path_facts(path: Path) -> PathFacts:
    """Return what a file or directory is like."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        parent = _existing(path)
        can_create = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
        return PathFacts(path, None, can_create)
    except OSError as error:
        return PathFacts(path, failure=error.strerror or str(error))
    return PathFacts(path, mode, os.access(path, os.W_OK))


def disk_facts(path: Path) -> DiskFacts:
    """Return the free space of the disk that a directory is on, or would be."""
    try:
        return DiskFacts(path, shutil.disk_usage(_existing(path)).free)
    except OSError:
        return DiskFacts(path, None)


def port_facts(settings: "Settings", step_seconds: float = STEP_SECONDS) -> PortFacts:
    """Return whether `outrider up` could listen on its port.

    Args:
        step_seconds: for each step of a request to what listens there.
    """
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return PortFacts(host, port, failure=error.strerror or str(error))
        version = service_facts(settings.local_url(host, port), step_seconds).version
        return PortFacts(host, port, "other" if version is None else "outrider")
    return PortFacts(host, port)


def _output(*command: str) -> tuple[int, str]:
    """Run a program; return its exit status, -1 if it did not end, and what it said."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"it does not end within {_PROGRAM_SECONDS:g} s"
    except OSError as error:
        return -1, error.strerror or str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _first_line(text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if line.strip()), None)


def _existing(path: Path) -> Path:
    """Return the path, or the closest parent that exists."""
    return next(one for one in (path, *path.parents) if one.exists())
