"""Checks of this machine: programs, agents, directories, disk, settings, port."""

import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from outrider.cli.doctor.finding import Finding, failed, ok, warning

_TMUX_VERSION: Final = (3, 2)
"""Live terminals use options of `tmux attach` that 3.2 brought."""

_DISK_FAILED: Final = 200 * 1024**2
_DISK_WARNING: Final = 1024**3
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


class ProgramFacts(NamedTuple):
    """A program that others use.

    Attributes:
        path: None if it is not on the PATH.
        version: the first line of what it says about its version; None if it says nothing.
        failure: why it does not work.
    """

    path: str | None
    version: str | None = None
    failure: str | None = None


class AgentFacts(NamedTuple):
    """An agent that is installed here, or has a provider file that is wrong.

    Attributes:
        program: the command that starts it, for people.
        version: None if it is not known.
        is_logged_in: None if unknown.
        error: what is wrong with its provider file.
    """

    type: str
    name: str
    program: str
    version: str | None = None
    is_logged_in: bool | None = None
    error: str | None = None


class PathFacts(NamedTuple):
    """A file or directory.

    Attributes:
        mode: its permissions; None if it does not exist.
        is_writable: by this user; of one that does not exist, whether it can be created.
        failure: why it cannot be examined.
    """

    path: Path
    mode: int | None = None
    is_writable: bool = True
    failure: str | None = None


class DiskFacts(NamedTuple):
    """The disk of a directory; `free` is in bytes, None if unknown."""

    path: Path
    free: int | None


class PortFacts(NamedTuple):
    """The port that `outrider up` would listen on.

    Attributes:
        used_by: `outrider` or `other`; None if it is free.
        failure: why it cannot be listened on, other than that it is in use.
    """

    host: str
    port: int
    used_by: str | None = None
    failure: str | None = None


def check_outrider(version: str, python: str, path: str | None) -> Finding:
    """Check that the command can be called; `path` is where the PATH has it."""
    text = f"Outrider {version} on Python {python}"
    if path is None:
        return warning(
            "outrider",
            f"{text}, but the command is not on the PATH",
            "Add the directory of `outrider` to PATH, so that other shells find it.",
        )
    return ok("outrider", text)


def check_tmux(facts: ProgramFacts) -> Finding:
    """Check that tmux is there, new enough, and starts a server."""
    install = "with `apt-get install tmux`, or `brew install tmux`"
    if facts.path is None:
        return failed("tmux", "tmux is not installed", f"Install it {install}.")
    if facts.failure is not None:
        return failed(
            "tmux",
            f"tmux does not work: {facts.failure}",
            f"Correct that, or install it again {install}.",
        )
    found = re.search(r"(\d+)\.(\d+)", facts.version or "")
    if found is not None and (int(found[1]), int(found[2])) < _TMUX_VERSION:
        return warning(
            "tmux",
            f"{facts.version} is older than 3.2, which live terminals need",
            "Install tmux 3.2 or later.",
        )
    return ok("tmux", f"{facts.version or 'tmux'} starts a server")


def check_git(facts: ProgramFacts) -> Finding:
    """Check that git is there."""
    if facts.path is None or facts.version is None:
        what = "is not installed" if facts.path is None else "does not work"
        return warning(
            "git",
            f"git {what}: there are no diffs and no worktrees of agents without it",
            "Install it with `apt-get install git`, or `brew install git`.",
        )
    return ok("git", facts.version)


def check_agents(agents: Sequence[AgentFacts], install: str) -> list[Finding]:
    """Check the agents of this machine, without the demo agent.

    Args:
        install: a command that installs one.
    """
    if not any(agent.error is None for agent in agents):
        nothing = warning(
            "agents",
            "no agent but the demo agent is installed",
            f"Install one, for example with `{install}`, or try `outrider launch demo`.",
        )
        return [nothing, *map(_check_agent, agents)]
    return [_check_agent(agent) for agent in agents]


def _check_agent(agent: AgentFacts) -> Finding:
    name = f"agent {agent.type}"
    if agent.error is not None:
        return failed(name, agent.error, "Correct the provider file.")
    text = agent.name if agent.version is None else f"{agent.name}, {agent.version}"
    if agent.is_logged_in is False:
        return warning(
            name,
            f"{text}: not logged in",
            f"Start `{agent.program}` once as this user, and log in.",
        )
    return ok(name, f"{text}, logged in" if agent.is_logged_in else text)


def check_settings(errors: Iterable[str]) -> Finding:
    """Check that the settings in the environment are valid."""
    texts = [*dict.fromkeys(errors)]
    if texts:
        return failed(
            "settings", "; ".join(texts), "Correct the variable (docs/settings.md lists them)."
        )
    return ok("settings", "the settings in the environment are valid")


def check_directory(name: str, facts: PathFacts, variable: str) -> Finding:
    """Check that a directory can be written, and by its owner only.

    Args:
        variable: the setting that chooses it.
    """
    other = f"set {variable} to another directory"
    if facts.failure is not None:
        return failed(name, f"{facts.path}: {facts.failure}", f"Correct that, or {other}.")
    if facts.mode is not None and not stat.S_ISDIR(facts.mode):
        return failed(name, f"{facts.path} is not a directory", f"Move it away, or {other}.")
    if not facts.is_writable:
        what = "cannot be written" if facts.mode is not None else "cannot be created"
        return failed(
            name, f"{facts.path} {what} by this user", f"Change its permissions, or {other}."
        )
    if facts.mode is None:
        return ok(name, f"{facts.path}, not created yet")
    if facts.mode & _OTHERS_WRITE:
        return failed(
            name, f"{facts.path} can be changed by other users", f"Run `chmod 700 {facts.path}`."
        )
    if facts.mode & _OTHERS:
        return warning(
            name, f"{facts.path} can be read by other users", f"Run `chmod 700 {facts.path}`."
        )
    return ok(name, f"{facts.path}, writable, for this user only")


def check_secret_files(files: Iterable[PathFacts]) -> Finding:
    """Check that only this user can read the files that hold keys."""
    existing = [file for file in files if file.mode is not None]
    exposed = [str(file.path) for file in existing if file.mode is not None and file.mode & _OTHERS]
    if exposed:
        return failed(
            "secret files",
            f"other users can read {', '.join(exposed)}",
            f"Run `chmod 600 {' '.join(exposed)}`, and replace the keys in it if others were here.",
        )
    names = ", ".join(file.path.name for file in existing)
    return ok("secret files", f"{names}: for this user only" if names else "there are none yet")


def check_disk(facts: DiskFacts) -> Finding:
    """Check that the disk of the data has room."""
    if facts.free is None:
        return warning(
            "disk",
            f"the free space of {facts.path} is not known",
            f"Look at it with `df {facts.path}`.",
        )
    text = f"{facts.free / 1024**3:.1f} GB are free at {facts.path}"
    advice = "Free some space, or set OUTRIDER_DATA_DIR to a directory on another disk."
    if facts.free < _DISK_FAILED:
        return failed("disk", f"only {text}", advice)
    return (
        warning("disk", f"only {text}", advice) if facts.free < _DISK_WARNING else ok("disk", text)
    )


def check_port(facts: PortFacts, *, is_needed: bool) -> Finding:
    """Check that `outrider up` can listen on its port, or does.

    Args:
        is_needed: whether the commands use a service on this machine.
    """
    place = f"{facts.host}:{facts.port}"
    bad = failed if is_needed else warning
    if facts.failure is not None:
        return bad(
            "port",
            f"`outrider up` cannot listen on {place}: {facts.failure}",
            "Set OUTRIDER_HOST and OUTRIDER_PORT to others.",
        )
    if facts.used_by == "other":
        return bad(
            "port",
            f"another program listens on {place}",
            "End it, or set OUTRIDER_PORT to another port for `outrider up`.",
        )
    if facts.used_by == "outrider":
        return ok("port", f"Outrider listens on {place}")
    if facts.port == 0:
        return ok("port", "`outrider up` takes a free port")
    return ok("port", f"{place} is free for `outrider up`")
