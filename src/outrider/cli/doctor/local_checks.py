"""Checks of this machine: programs, agents, directories, disk, settings, port."""

import asyncio
import errno
import os
import platform
import re
import secrets
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider import __version__
from outrider.cli.doctor.finding import Finding, failed, ok, warning
from outrider.cli.doctor.service_checks import STEP_SECONDS, examine_service

if TYPE_CHECKING:
    from outrider.machine.agents.inspection import ProviderInfo
    from outrider.machine.settings import DaemonSettings
    from outrider.service.settings import Settings

_TMUX_VERSION: Final = (3, 2)
"""Live terminals use options of `tmux attach` that 3.2 brought."""

_PROGRAM_SECONDS: Final = 20.0
_DISK_FAILED: Final = 200 * 1024**2
_DISK_WARNING: Final = 1024**3
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


def check_outrider() -> Finding:
    """Check that the command can be called."""
    text = f"Outrider {__version__} on Python {platform.python_version()}"
    if shutil.which("outrider") is None:
        return warning(
            "outrider",
            f"{text}, but the command is not on the PATH",
            "Add the directory of `outrider` to PATH, so that other shells find it.",
        )
    return ok("outrider", text)


def check_settings(errors: Iterable[str]) -> Finding:
    """Check that the settings in the environment are valid."""
    texts = [*dict.fromkeys(errors)]  # the service and the machine agent share some settings
    if texts:
        return failed(
            "settings", "; ".join(texts), "Correct the variable (docs/settings.md lists them)."
        )
    return ok("settings", "the settings in the environment are valid")


def check_tmux() -> Finding:
    """Check that tmux is there, new enough, and starts a server, which ends at once."""
    from outrider.machine.tmux.server import socket_path

    install = "with `apt-get install tmux`, or `brew install tmux`"
    if shutil.which("tmux") is None:
        return failed("tmux", "tmux is not installed", f"Install it {install}.")
    status, version = _first_line("tmux", "-V")
    problem = "" if status == 0 else version or "it does not print its version"
    if status == 0:
        name = f"outrider-doctor-{secrets.token_hex(4)}"
        server = ("-L", name, "-f", os.devnull, "new-session", "-d", "sleep 5", ";", "kill-server")
        status, text = _first_line("tmux", *server)
        socket_path(name).unlink(missing_ok=True)  # tmux leaves it behind
        problem = "" if status == 0 else text or "its server does not start"
    if problem:
        advice = f"Correct that, or install it again {install}."
        return failed("tmux", f"tmux does not work: {problem}", advice)
    number = re.search(r"(\d+)\.(\d+)", version)
    if number is not None and (int(number[1]), int(number[2])) < _TMUX_VERSION:
        text = f"{version} is older than 3.2, which live terminals need"
        return warning("tmux", text, "Install tmux 3.2 or later.")
    return ok("tmux", f"{version or 'tmux'} starts a server")


def check_git() -> Finding:
    """Check that git is there."""
    what = "is not installed"
    if shutil.which("git") is not None:
        status, version = _first_line("git", "--version")
        if status == 0 and version:
            return ok("git", version)
        what = "does not work"
    return warning(
        "git",
        f"git {what}: there are no diffs and no worktrees of agents without it",
        "Install it with `apt-get install git`, or `brew install git`.",
    )


def check_agents(settings: "DaemonSettings") -> list[Finding]:
    """Check the installed agents, without the demo agent, and the provider files."""
    from outrider.machine.agents.inspection import known_providers

    providers = [
        provider for provider in known_providers(settings) if not provider.description.demo
    ]
    described = [provider.description for provider in providers]
    present = [
        provider
        for provider in providers
        if provider.description.installed or provider.description.error
    ]

    async def every() -> list[Finding]:
        return await asyncio.gather(*map(_check_agent, present))

    findings = asyncio.run(every())
    if any(provider.installed and not provider.error for provider in described):
        return findings
    install = next(
        provider.install for provider in providers if provider.description.type == "claude-code"
    )
    nothing = warning(
        "agents",
        "no agent but the demo agent is installed",
        f"Install one, for example with `{install}`, or try `outrider launch demo`.",
    )
    return [nothing, *findings]


async def _check_agent(info: "ProviderInfo") -> Finding:
    from outrider.machine.agents.inspection import is_logged_in, version

    about = info.description
    name, text = f"agent {about.type}", about.display_name
    if about.error is not None:
        return failed(name, about.error, "Correct the provider file.")
    # An IDE opens a window if it does not know an option, and demands no login of its own.
    if about.path is None or about.category == "ide":
        return ok(name, text)
    number, logged_in = await asyncio.gather(version(about.path), is_logged_in(info))
    if number is not None:
        text += f", {number}"
    if logged_in is False:
        advice = f"Start `{Path(about.path).name}` once as this user, and log in."
        return warning(name, f"{text}: not logged in", advice)
    return ok(name, f"{text}, logged in" if logged_in else text)


def check_directory(name: str, path: Path, variable: str) -> Finding:
    """Check that a directory can be written, and by its owner only.

    Args:
        variable: the setting that chooses it.
    """
    other = f"set {variable} to another directory"
    permissions = f"Change its permissions, or {other}."
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not os.access(_existing(path), os.W_OK | os.X_OK):
            return failed(name, f"{path} cannot be created by this user", permissions)
        return ok(name, f"{path}, not created yet")
    except OSError as error:
        return failed(name, f"{path}: {error.strerror or error}", f"Correct that, or {other}.")
    if not stat.S_ISDIR(mode):
        return failed(name, f"{path} is not a directory", f"Move it away, or {other}.")
    if not os.access(path, os.W_OK):
        return failed(name, f"{path} cannot be written by this user", permissions)
    if mode & _OTHERS_WRITE:
        return failed(name, f"{path} can be changed by other users", f"Run `chmod 700 {path}`.")
    if mode & _OTHERS:
        return warning(name, f"{path} can be read by other users", f"Run `chmod 700 {path}`.")
    return ok(name, f"{path}, writable, for this user only")


def check_secret_files(paths: Iterable[Path]) -> Finding:
    """Check that only this user can read the files that hold keys."""
    files = [path for path in paths if path.exists()]
    exposed = [str(path) for path in files if path.stat().st_mode & _OTHERS]
    if exposed:
        return failed(
            "secret files",
            f"other users can read {', '.join(exposed)}",
            f"Run `chmod 600 {' '.join(exposed)}`, and replace the keys in it if others were here.",
        )
    names = ", ".join(path.name for path in files)
    return ok("secret files", f"{names}: for this user only" if names else "there are none yet")


def check_disk(path: Path) -> Finding:
    """Check that the disk of the data has room."""
    try:
        free = shutil.disk_usage(_existing(path)).free
    except OSError:
        text = f"the free space of {path} is not known"
        return warning("disk", text, f"Look at it with `df {path}`.")
    text = f"{free / 1024**3:.1f} GB are free at {path}"
    if free >= _DISK_WARNING:
        return ok("disk", text)
    result = failed if free < _DISK_FAILED else warning
    advice = "Free some space, or set OUTRIDER_DATA_DIR to a directory on another disk."
    return result("disk", f"only {text}", advice)


def check_port(
    settings: "Settings", *, is_needed: bool, step_seconds: float = STEP_SECONDS
) -> Finding:
    """Check that `outrider up` can listen on its port, or does.

    Args:
        is_needed: whether the commands use a service on this machine.
        step_seconds: for each step of a request to what listens there.
    """
    host, port = settings.host, settings.port
    place, bad = f"{host}:{port}", failed if is_needed else warning
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            text = f"`outrider up` cannot listen on {place}: {error.strerror or error}"
            return bad("port", text, "Set OUTRIDER_HOST and OUTRIDER_PORT to others.")
        if examine_service(settings.local_url(host, port), step_seconds).version is not None:
            return ok("port", f"Outrider listens on {place}")
        advice = "End it, or set OUTRIDER_PORT to another port for `outrider up`."
        return bad("port", f"another program listens on {place}", advice)
    free = "`outrider up` takes a free port" if port == 0 else f"{place} is free for `outrider up`"
    return ok("port", free)


def _first_line(*command: str) -> tuple[int, str]:
    """Run a program; return its exit status, -1 if it did not end, and the first line it prints."""
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
    return done.returncode, done.stdout.decode("utf-8", "replace").strip().partition("\n")[0]


def _existing(path: Path) -> Path:
    """Return the path, or the closest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
