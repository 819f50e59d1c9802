"""The programs that a benchmark runs: each is ended with it, and their cost is read off them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

from outrider.contract.errors import OutriderError

REPOSITORY: Final = Path(__file__).resolve().parent.parent

_FIRST, *_REST = sorted(os.sched_getaffinity(0))

SERVING: Final = [_FIRST] if _REST else []
"""The processor of what is measured; empty if there is only one to share."""

LOADING: Final = _REST
"""The processors of what loads it; empty if there is only one to share."""

_END_SECONDS: Final = 10.0
_LOG_TAIL: Final = 2000


class BenchmarkError(OutriderError):
    """A benchmark cannot go on. The text says why."""


class Program:
    """A program under way, in a session of its own, with its output in a file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log
        self._figures = psutil.Process(process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the processor time it has used so far, its own and the kernel's for it."""
        times = self._figures.cpu_times()
        return times.user + times.system

    def memory(self) -> tuple[int, int]:
        """Return its memory in bytes: resident (RSS), and its share of it (PSS)."""
        full = self._figures.memory_full_info()
        return full.rss, full.pss

    def peak_memory(self) -> int:
        """Return the most resident memory since its start or `reset_peak`, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def reset_peak(self) -> None:
        """Set the peak of its resident memory to what it has now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="utf-8")

    def children_memory(self) -> int:
        """Return the resident memory of the programs that it has started, in bytes."""
        return sum(child.memory_info().rss for child in self._figures.children(recursive=True))

    def check(self) -> None:
        """Raise BenchmarkError with the end of its output where it has ended by itself."""
        status = self._process.poll()
        if status is not None:
            raise BenchmarkError(f"{self.name} ended with {status}:\n{self._tail()}")

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
        """Wait until `condition` holds; `what` says what that is.

        Raises:
            BenchmarkError: it does not within `seconds`, or the program ended.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise BenchmarkError(
                    f"{self.name}: not {what} within {seconds:g} s\n{self._tail()}"
                )
            time.sleep(0.002)

    def wait_for_success(self, seconds: float = 30) -> None:
        """Wait until it has done its work.

        Raises:
            BenchmarkError: it failed, or took longer than `seconds`.
        """
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{self.name} took over {seconds:g} s:\n{self._tail()}") from None
        if status != 0:
            raise BenchmarkError(f"{self.name} ended with {status}:\n{self._tail()}")

    def end(self) -> None:
        """Ask it to end, and see to it that it and whatever it started have."""
        family = [self._figures, *self._descendants()]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for one in family:
                # psutil compares start times, so a reused pid is safe from this.
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            self._process.wait()

    def _descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._figures.children(recursive=True)
        return []

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:].strip() or "(it printed nothing)"


class Stage:
    """A temporary directory and the programs that run in it; both are removed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs: list[Program] = []

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return an environment that holds `settings` and nothing of the user's."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "TMUX_TMPDIR": str(self.directory),
            **settings,
        }

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        cpus: Sequence[int] = (),
    ) -> Program:
        """Start `python arguments…`; on the given processors only, if there are any."""
        log = self.directory / f"{name.replace(' ', '-')}-{len(self._programs)}.log"
        # A signal between the start of a process and its entry in the list would leave it running.
        with log.open("wb") as output, deferred():
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=REPOSITORY,
                env=self.environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the benchmark, which ends the rest
            )
            program = Program(name, process, log)
            self._programs.append(program)
        if cpus:
            os.sched_setaffinity(program.pid, cpus)
        return program

    def end(self) -> None:
        """End every program, the newest first."""
        while self._programs:
            self._programs.pop().end()


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Provide a stage for the length of a block; a signal does not interrupt how it ends."""
    here = Stage(Path(tempfile.mkdtemp(prefix="outrider-bench-")))
    try:
        yield here
    finally:
        with handled((signal.SIGINT, signal.SIGTERM), signal.SIG_IGN):
            here.end()
            shutil.rmtree(here.directory)


@contextlib.contextmanager
def handled(
    numbers: Sequence[signal.Signals],
    handler: Callable[[int, FrameType | None], None] | signal.Handlers,
) -> Iterator[None]:
    """Handle signals in this way for the length of a block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM that arrive during a block when it has ended."""
    received: list[int] = []
    with handled((signal.SIGINT, signal.SIGTERM), lambda number, _: received.append(number)):
        yield
    for number in received:
        signal.raise_signal(number)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C, also where an event loop handles that itself."""
    signal.raise_signal(signal.SIGINT)


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
