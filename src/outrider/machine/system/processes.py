"""Ending a program together with everything that it started.

Whatever the daemon starts leads its own session (`setsid`). A `ProcessGroup` is that session plus
all descendants of its members, and it is terminated as a whole.
"""

import asyncio
import os
import queue
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil

_ROUNDS: Final = 10
_POLL_SECONDS: Final = 0.05
_KILL_SECONDS: Final = 5.0


def clean_environment() -> dict[str, str]:
    """Return this process's environment without the daemon's settings (`OUTRIDER_*`)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}


@dataclass(frozen=True)
class ProcessGroup:
    """A process that leads a session, and everything that it has started.

    `leader` identifies the process even if its number is reused later; it is None if the leader
    had already ended when the group was created.
    """

    pid: int
    leader: psutil.Process | None

    @classmethod
    def of(cls, pid: int) -> "ProcessGroup":
        """Return the group that the process `pid` leads. Call it right after the start."""
        try:
            return cls(pid, psutil.Process(pid))
        except psutil.Error:
            return cls(pid, None)

    @property
    def runs(self) -> bool:
        """Whether the leader runs; processes that it started may run without it."""
        return self.leader is not None and _runs(self.leader)

    async def members(self) -> list[psutil.Process]:
        """Return every running member."""
        return await asyncio.to_thread(lambda: members([self], psutil.process_iter()))

    async def end(self, grace: float, known: Sequence[psutil.Process] = ()) -> None:
        """Send SIGTERM to every member, and SIGKILL to those still running after `grace` seconds.

        Returns when none is running, but at most 5 s after the kill. For `known` see `kill`.
        A cancelled call kills at once.
        """
        # In this list they are found again after their parents have ended, and with them the group.
        terminated = list(known)
        try:
            terminated += await self.members()
            for process in terminated:
                _send(process, signal.SIGTERM)
            await _wait_for_end(terminated, grace)
        finally:
            await self.kill(terminated)  # includes members that were started in the meantime
        await _wait_for_end(terminated, _KILL_SECONDS)

    async def kill(self, known: Sequence[psutil.Process] = ()) -> None:
        """Send SIGKILL to every member and to `known`, members found before their parents ended.

        Returns after the signals are sent. Not reached: processes that both left the session and
        lost their parent (daemonized), and processes of another user (sudo). A cancelled call
        still kills.
        """
        await _killer.kill(self, known)


class Killer:
    """Kills process groups on its own thread, many groups per scan of the process table.

    A scan takes milliseconds, and killing needs at least two. Groups that arrive during a scan
    wait and share the next scans, so a thousand groups take little longer than one, and the
    event loop is not blocked.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Target] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kill")

    async def kill(self, group: ProcessGroup, known: Sequence[psutil.Process] = ()) -> None:
        """Kill a group, see `ProcessGroup.kill`."""
        self._waiting.put(_Target(group, known))
        # One thread runs the jobs in order: when a job runs, its group is still in the queue, or
        # an earlier job has killed it. The shield keeps a job that has not started from being
        # cancelled with its caller: there may be no later job to empty the queue.
        job = asyncio.get_running_loop().run_in_executor(self._thread, self._kill_waiting)
        await asyncio.shield(job)

    def _kill_waiting(self) -> None:
        targets = []
        while not self._waiting.empty():
            targets.append(self._waiting.get_nowait())
        if targets:
            self._kill(targets)

    def _kill(self, targets: Sequence["_Target"]) -> None:
        """Send SIGSTOP until a scan finds no new member, so that none can fork; then SIGKILL."""
        stopped: dict[int, psutil.Process] = {}
        known = [process for target in targets for process in target.known]
        for _ in range(_ROUNDS):
            found = [*known, *members([target.group for target in targets], psutil.process_iter())]
            new = [process for process in found if process.pid not in stopped]
            if not new:
                break
            for process in new:
                stopped[process.pid] = process
                _send(process, signal.SIGSTOP)
        for process in stopped.values():
            _send(process, signal.SIGKILL)


class _Target(NamedTuple):
    group: ProcessGroup
    known: Sequence[psutil.Process]


_killer = Killer()


def members(
    groups: Iterable[ProcessGroup], processes: Iterable[psutil.Process]
) -> list[psutil.Process]:
    """Return those of `processes` that are in a session of `groups`, or descend from a member.

    Blocks: it reads /proc for each process.
    """
    sessions = {group.pid for group in groups if not _is_reused(group)}
    children: defaultdict[int, list[psutil.Process]] = defaultdict(list)
    found: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            children[process.ppid()].append(process)
            if os.getsid(process.pid) in sessions:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue  # it has ended in the meantime
    unseen = list(found)
    while unseen:
        for child in children[unseen.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                unseen.append(child.pid)
    return list(found.values())


def _is_reused(group: ProcessGroup) -> bool:
    """Return whether another process has the leader's number; then no member is left.

    The kernel does not reuse a number while it is the id of an existing session.
    """
    is_running = group.leader is not None and group.leader.is_running()
    return not is_running and psutil.pid_exists(group.pid)


async def _wait_for_end(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Wait until none of these is running, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while any(map(_runs, processes)):
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal to exactly this process, not to one that reuses its number."""
    try:
        process.send_signal(number)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # it has ended, or it belongs to another user (sudo)
