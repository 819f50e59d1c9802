"""The processes that a command leaves: what they inherit, and how all of them are ended.

Whatever the daemon starts leads a session of its own. A `ProcessGroup` is that session with
everything that descends from it, and ends as a whole.
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
    """Return this process's environment without the daemon's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}


@dataclass(frozen=True)
class ProcessGroup:
    """A process that leads a session, and all that it has started.

    `leader` tells the leader from a later process that has its number; it is None where the
    leader had ended before anybody looked.
    """

    pid: int
    leader: psutil.Process | None

    @classmethod
    def of(cls, pid: int) -> "ProcessGroup":
        """Return the group that the process `pid` leads. Call it as soon as that is started."""
        try:
            return cls(pid, psutil.Process(pid))
        except psutil.Error:
            return cls(pid, None)

    @property
    def runs(self) -> bool:
        """Whether the leader runs; what it left behind may go on without it."""
        return self.leader is not None and _runs(self.leader)

    async def members(self) -> list[psutil.Process]:
        """Return every member that runs now."""
        return await asyncio.to_thread(lambda: members([self], psutil.process_iter()))

    async def end(self, grace: float, known: Sequence[psutil.Process] = ()) -> None:
        """Ask every member to end (SIGTERM), and kill what still runs `grace` seconds later.

        Returns when none runs, or 5 s after the kill. `known` are as in `kill`.
        """
        asked = [*known, *await self.members()]
        for process in asked:
            _send(process, signal.SIGTERM)
        await _ended(asked, grace)
        await self.kill(asked)  # also what was started meanwhile
        await _ended(asked, _KILL_SECONDS)

    async def kill(self, known: Sequence[psutil.Process] = ()) -> None:
        """Kill every member, and `known`: members found before their parents had ended.

        Returns once the signals are sent. Out of reach is only what has both left the session
        and lost its parent (a process that made itself a daemon), and what has become another
        user's (sudo). A call that is cancelled still kills.
        """
        await _killer.kill(self, known)


class Killer:
    """Kills process groups on a thread of its own, many with one look at the process table.

    A look takes milliseconds, and each group needs at least two. So the groups that are to be
    killed while one look goes on wait, and share the next ones: a thousand take little longer
    than one, and the event loop goes on.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Target] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kill")

    async def kill(self, group: ProcessGroup, known: Sequence[psutil.Process] = ()) -> None:
        """Kill a group as `ProcessGroup.kill` says."""
        self._waiting.put(_Target(group, known))
        # One thread takes the jobs in order. So when a job runs, its own group is still in the
        # queue, or an earlier job has killed it. The shield keeps a job that has not begun
        # from being taken back: nobody else might come to empty the queue.
        job = asyncio.get_running_loop().run_in_executor(self._thread, self._kill_waiting)
        await asyncio.shield(job)

    def _kill_waiting(self) -> None:
        targets = []
        while not self._waiting.empty():
            targets.append(self._waiting.get_nowait())
        if targets:
            self._kill(targets)

    def _kill(self, targets: Sequence["_Target"]) -> None:
        """Stop all members until no new one turns up, so that none forks away; then kill them."""
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
    """Return those of `processes` that are in the session of one of `groups`, or descend from it.

    Reads from /proc for each process: call it on a thread.
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
            continue  # it has ended meanwhile
    unseen = list(found)
    while unseen:
        for child in children[unseen.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                unseen.append(child.pid)
    return list(found.values())


def _is_reused(group: ProcessGroup) -> bool:
    """Tell whether the leader's number is another process's now; then no member is left.

    The kernel gives no number away that is still the number of a session.
    """
    is_running = group.leader is not None and group.leader.is_running()
    return not is_running and psutil.pid_exists(group.pid)


async def _ended(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Return when none of these runs, or after `seconds`."""
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
    """Send a signal to exactly this process, not to one that has its number by now."""
    try:
        process.send_signal(number)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return  # it is gone, or it has become another user's (sudo): not ours to end
