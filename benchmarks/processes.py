"""The programs of a benchmark: started together, measured, and ended with it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

from outrider.contract.errors import OutriderError

REPOSITORY: Final = Path(__file__).resolve().parent.parent
MEGABYTE: Final = 1e6

_FIRST, *_REST = sorted(os.sched_getaffinity(0))

SERVING: Final = [_FIRST] if _REST else []
"""The processor of what is measured; empty if there is only one to share."""

LOADING: Final = _REST
"""The processors of what loads it; empty if there is only one to share."""

_END_SECONDS: Final = 10.0
_REPEAT_SECONDS: Final = 15
_LOG_TAIL: Final = 2000


class BenchmarkError(OutriderError):
    """A benchmark cannot go on. The text says why."""


@dataclass
class Program:
    """A running program, in a session of its own, with its output in a file."""

    name: str
    process: psutil.Popen
    log: Path

    def cpu_seconds(self) -> float:
        """Return the processor time used so far, its own and the kernel's for it."""
        return sum(self.process.cpu_times()[:2])

    def busy(self, seconds: float) -> float:
        """Return what `busy` does, of it and its children, such as a daemon's tmux client."""
        return busy([self.process, *self.process.children()], seconds)

    def memory(self) -> tuple[float, float]:
        """Return its memory in megabytes: resident (RSS), and proportional (PSS)."""
        full = self.process.memory_full_info()
        return full.rss / MEGABYTE, full.pss / MEGABYTE

    def check(self) -> None:
        """Raise BenchmarkError with the end of its output if it has ended by itself."""
        status = self.process.poll()
        if status is not None:
            raise BenchmarkError(f"{self.name} ended with {status}:\n{self.tail()}")

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
        """Wait until `condition` holds; `what` names it in the error.

        Raises:
            BenchmarkError: it does not within `seconds`, or the program ended.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name}: not {what} within {seconds:g} s\n{self.tail()}")
            time.sleep(0.002)

    def wait_for_success(self, seconds: float = 30) -> None:
        """Wait until it ends with status 0.

        Raises:
            BenchmarkError: it failed, or took longer than `seconds`.
        """
        status: object
        try:
            status = self.process.wait(seconds)
        except psutil.TimeoutExpired:
            status = f"nothing within {seconds:g} s"
        if status != 0:
            raise BenchmarkError(f"{self.name} ended with {status}:\n{self.tail()}")

    def end(self) -> None:
        """Terminate it, then kill what is left of it and of what it has started."""
        family: list[psutil.Process] = [self.process]
        with contextlib.suppress(psutil.NoSuchProcess):
            family += self.process.children(recursive=True)
            self.process.terminate()
        psutil.wait_procs([self.process], _END_SECONDS)
        _kill(family)

    def tail(self) -> str:
        """Return the end of its output."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:].strip() or "(it printed nothing)"


class Stage:
    """A temporary directory and the programs that run in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs: list[Program] = []

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return an environment that has `settings` and nothing of the user's."""
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
        settings: Mapping[str, str] | None = None,
        cpus: Sequence[int] = (),
    ) -> Program:
        """Start `python arguments…`; on the given processors only, if there are any."""
        log = self.directory / f"{name.replace(' ', '-')}-{len(self._programs)}.log"
        with log.open("wb") as output:
            process = psutil.Popen(
                on_processors(cpus, [sys.executable, *arguments]),
                cwd=REPOSITORY,
                env=self.environment(settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the benchmark, which ends the rest
            )
        self._programs.append(Program(name, process, log))
        return self._programs[-1]

    def end(self) -> None:
        """End every program, the newest first, and remove the directory."""
        while self._programs:
            self._programs.pop().end()
        # A signal may have come between the start of a process and its entry in the list.
        _kill(psutil.Process().children(recursive=True))
        shutil.rmtree(self.directory)


def busy(processes: Sequence[psutil.Process], seconds: float) -> float:
    """Return the share of a processor (in percent) that these use for so many seconds."""

    def used() -> float:
        total = 0.0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:2])
        return total

    before, began = used(), time.perf_counter()
    time.sleep(seconds)
    return (used() - before) / (time.perf_counter() - began) * 100


def on_processors(cpus: Sequence[int], command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command on these processors only, if there are any."""
    return [*(["taskset", "--cpu-list", ",".join(map(str, cpus))] if cpus else []), *command]


@contextlib.contextmanager
def on_loading_processors() -> Iterator[None]:
    """Start programs in this block on the processors of what loads the service."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, LOADING or before)
        yield
    finally:
        os.sched_setaffinity(0, before)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, _END_SECONDS)


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Provide a stage for the length of a block; a signal does not interrupt its end."""
    here = Stage(Path(tempfile.mkdtemp(prefix="outrider-bench-")))
    try:
        yield here
    finally:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
        here.end()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal like Ctrl-C, also where an event loop handles that itself.

    It is repeated, because Python drops an exception that is raised while it runs a destructor.
    """
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(_REPEAT_SECONDS)
    signal.raise_signal(signal.SIGINT)
