"""The processes that a command leaves: what they inherit, and how all of them are ended."""

import os
import signal
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import psutil

_ROUNDS: Final = 10


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the daemon's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}


def kill_tree(leader: int | None, known: Sequence[psutil.Process] = ()) -> None:
    """Kill the session that `leader` leads, and its descendants in other sessions too.

    `known` are killed as well: descendants found by `family` before their parents ended.

    They are stopped before they are killed, until no new one turns up, so that none of them
    forks away meanwhile. Out of reach is only what has both left the session and lost its
    parent (a process that made itself a daemon).
    """
    stopped: dict[int, psutil.Process] = {}
    for _ in range(_ROUNDS):
        found = [*known, *(family(leader) if leader is not None else ())]
        new = [process for process in found if process.pid not in stopped]
        if not new:
            break
        for process in new:
            stopped[process.pid] = process
            _send(process, signal.SIGSTOP)
    for process in stopped.values():
        _send(process, signal.SIGKILL)


def family(leader: int) -> list[psutil.Process]:
    """Return the members of the session of `leader`, and all that descend from them."""
    children: defaultdict[int, list[psutil.Process]] = defaultdict(list)
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            children[process.ppid()].append(process)
        except psutil.NoSuchProcess:
            continue
        if _session_of(process.pid) == leader:
            found[process.pid] = process
    unseen = list(found)
    while unseen:
        for child in children[unseen.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                unseen.append(child.pid)
    return list(found.values())


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _send(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal to exactly this process, not to one that has its number by now."""
    try:
        process.send_signal(number)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # it is gone, or it has become another user's (sudo): not ours to end
