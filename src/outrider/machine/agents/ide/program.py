"""A program of an IDE, which outlives this daemon: started, found again, ended."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from outrider.machine.agents.failure import NOTHING, output_end
from outrider.machine.system.processes import ProcessGroup

GRACE: Final = 2.0
"""Seconds that a program has to exit after SIGTERM."""

_TAIL: Final = 16 * 1024
_REAP_ATTEMPTS: Final = 100
_REAP_PAUSE: Final = 0.05


@dataclass(frozen=True)
class Program:
    """A process, the leader of a session of its own.

    `started` is its creation time: a later process may have the same id.
    """

    pid: int
    started: float

    @classmethod
    async def start(
        cls, argv: Sequence[str], directory: str, environment: Mapping[str, str], log: Path
    ) -> "Program":
        """Start a program that writes to the file `log` and outlives this daemon.

        Raises:
            OSError: it cannot be started.
        """

        def start() -> "Program":
            with log.open("ab") as output:
                process = subprocess.Popen(
                    argv,
                    cwd=directory,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            process.returncode = 0  # `is_running` reaps it: it may outlive this object
            return cls(process.pid, psutil.Process(process.pid).create_time())

        return await asyncio.to_thread(start)

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    @classmethod
    def parse(cls, text: str) -> "Program":
        """Return the program that `str` turned into this text."""
        pid, _, started = text.partition(":")
        return cls(int(pid), float(started))

    @property
    def is_running(self) -> bool:
        """Whether it still runs; reaps it if it is a child that has exited."""
        status = self._status()
        if status == psutil.STATUS_ZOMBIE:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)  # reap a child of this daemon
        return status not in {None, psutil.STATUS_ZOMBIE}

    async def end(self) -> None:
        """End it and every process that it started: SIGTERM, then SIGKILL after `GRACE` s."""
        group = ProcessGroup.of(self.pid) if self.is_running else ProcessGroup(self.pid, None)
        await group.end(GRACE)
        # A process becomes a zombie with its first thread, and can be reaped after its last one:
        # Chromium's many threads take a while on a busy machine.
        for _ in range(_REAP_ATTEMPTS):
            if self.is_running or self._status() is None:
                break
            await asyncio.sleep(_REAP_PAUSE)

    def _status(self) -> str | None:
        """Return the state of the process as psutil names it, None if it does not exist."""
        try:
            process = psutil.Process(self.pid)
            return process.status() if process.create_time() == self.started else None
        except psutil.NoSuchProcess:
            return None


def output_of(log: Path) -> str:
    """Return the end of what a program wrote to `log`, redacted, for an error text."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return NOTHING
    return output_end(text)
