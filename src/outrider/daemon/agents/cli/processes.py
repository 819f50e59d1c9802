"""An agent's processes: whether they work, and what is left of them without a terminal."""

from collections.abc import Mapping

import psutil

from outrider.daemon.processes import ProcessGroup


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


def orphaned(marked: Mapping[str, str]) -> ProcessGroup | None:
    """Return what is left of an agent whose terminal is gone, by what `mark` returned.

    Not every agent ends with its terminal. One that tmux still holds is no orphan.
    """
    if "pid" not in marked:
        return None
    pid = int(marked["pid"])
    try:
        first = psutil.Process(pid)
        if repr(first.create_time()) != marked["started"]:
            return None
        parent = first.parent()
        if parent is not None and parent.name().startswith("tmux"):
            return None
    except psutil.Error:
        return ProcessGroup(pid, None)  # others may be left in its session
    return ProcessGroup(pid, first)
