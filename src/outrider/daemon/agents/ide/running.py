"""A program of an IDE that outlives this daemon: started, found again, and ended whole."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from outrider.daemon.agents.failure import NOTHING, output_end
from outrider.daemon.processes import ProcessGroup

GRACE: Final = 2.0
"""Seconds that a program has to end by itself when it is asked to."""

_TAIL: Final = 16 * 1024


@dataclass(frozen=True)
class Running:
    """A process, the leader of a session of its own. `started` tells it from a later namesake."""

    pid: int
    started: float

    @classmethod
    async def start(
        cls, argv: Sequence[str], directory: str, environment: Mapping[str, str], log: Path
    ) -> "Running":
        """Start a program that writes to the file `log` and goes on when this daemon ends.

        Raises:
            OSError: it cannot be started.
        """

        def start() -> "Running":
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
            process.returncode = 0  # reaped by `runs`: it may outlive this object and daemon
            return cls(process.pid, psutil.Process(process.pid).create_time())

        return await asyncio.to_thread(start)

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    @classmethod
    def parse(cls, text: str) -> "Running":
        """Return what `str` made into this text."""
        pid, _, started = text.partition(":")
        return cls(int(pid), float(started))

    @property
    def runs(self) -> bool:
        """Whether it is still there."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.started:
                return False
            if process.status() != psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # a child of this daemon is taken off the list
        return False

    async def end(self) -> None:
        """End it and all that it has started."""
        group = ProcessGroup.of(self.pid) if self.runs else ProcessGroup(self.pid, None)
        await group.end(GRACE)
        _ = self.runs  # a child of this daemon is reaped by looking


def last_lines(log: Path) -> str:
    """Return the end of what a program has written, for an error text."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return NOTHING
    return output_end(text)
