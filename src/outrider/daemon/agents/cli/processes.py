"""An agent's processes: all of them, and their end."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Final

import psutil

_POLL: Final = 0.05


def family(pid: int) -> list[psutil.Process]:
    """Return the process, what descends from it, and what shares its terminal session."""
    found: dict[int, psutil.Process] = {}
    try:
        root = psutil.Process(pid)
        found = {process.pid: process for process in [root, *root.children(recursive=True)]}
    except psutil.NoSuchProcess:
        pass
    for process in psutil.process_iter():
        if process.pid not in found and _session(process.pid) == pid:
            found[process.pid] = process
    return list(found.values())


def at_work(pid: int) -> bool:
    """Tell whether the process, or what descends from it, is running and not waiting for input."""
    try:
        root = psutil.Process(pid)
        return any(
            process.status() in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
            for process in [root, *root.children(recursive=True)]
        )
    except psutil.NoSuchProcess:
        return False


def mark(pid: int) -> dict[str, str]:
    """Return what tells this process from another one that has its number later."""
    try:
        return {"pid": str(pid), "started": repr(psutil.Process(pid).create_time())}
    except psutil.NoSuchProcess:
        return {}


def orphans(marked: Mapping[str, str]) -> list[psutil.Process]:
    """Return what is left of an agent whose terminal is gone, by what `mark` returned.

    Not every agent ends with its terminal. One that tmux still holds is no orphan.
    """
    if "pid" not in marked:
        return []
    try:
        first = psutil.Process(int(marked["pid"]))
        if repr(first.create_time()) != marked["started"]:
            return []
        parent = first.parent()
        if parent is not None and parent.name().startswith("tmux"):
            return []
    except psutil.NoSuchProcess:
        pass  # its number is not given away while others are in its terminal session
    return family(int(marked["pid"]))


async def end(processes: list[psutil.Process], *, grace: float) -> None:
    """End these processes: a request first, and after `grace` seconds no more asking.

    Returns when none of them runs, or 5 s after they were killed.
    """
    for process in processes:
        _signal(process, kill=False)
    if not await _ended(processes, grace):
        for process in processes:
            _signal(process, kill=True)
        await _ended(processes, 5)


async def _ended(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(_runs, processes)):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        pass


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
