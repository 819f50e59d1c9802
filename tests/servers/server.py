"""A server program that is started, frozen, killed and started again at will.

Libraries that do this for pytest (pytest-postgresql, pytest-redis) refuse to run PostgreSQL as
root, and can neither freeze a server nor start it again on its port and its data.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self, TypedDict

import psutil

from outrider.contract.errors import OutriderError

TIMEOUT: Final = 30.0
"""Seconds within which a server has to start, and to stop."""

# Below the ports that the system hands out, so that nothing takes a server's while it is down.
_PORTS: Final = range(15_000, 30_000)
_reservations: Final = set[ExitStack]()
"""Those that are not released yet: what never releases its own leaves no open socket to collect."""

# What is kept open to its standard input ends with us, however we end: then the server ends too.
_GUARD: Final = """
cat
kill -INT "$1"
for _ in $(seq 100); do kill -0 "$1" || break; sleep 0.1; done
rm -r "$2"
"""


class ServerError(OutriderError):
    """A server does not do what it should. The text says why."""


class NotInstalledError(ServerError):
    """The program is not here. The text says what to install."""


class Identity(TypedDict, total=False):
    """As whom a server runs, where not as the user at hand."""

    user: str
    group: int
    extra_groups: list[str]


class Server(ABC):
    """A server on a port of its own with its data in a directory of its own.

    As a context it is started, and gone at the end with its data. Every method returns when it
    is done, which may take a second: call them from a coroutine with `asyncio.to_thread`.

    Attributes:
        port: its port of 127.0.0.1, the same for as long as the object lives.

    Raises:
        NotInstalledError: the program is not here.
    """

    name: str
    stop_signal = signal.SIGTERM
    identity: Identity = {}

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"outrider-{self.name}-"))
        self._process: psutil.Popen | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command line that runs the server in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server answers now."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def start(self) -> None:
        """Start the server, or start it again with the data that it had.

        Raises:
            ServerError: it is not ready within `TIMEOUT`.
        """
        log = self.directory / "log"
        with log.open("ab") as output:
            self._process = psutil.Popen(
                self.command,
                cwd=self.directory,
                **self.identity,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the test, which ends the server
            )
        process = self._process
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(process.pid), str(self.directory)],
            cwd="/",
            **self.identity,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if not until(lambda: not _lives(process) or self.is_ready()) or not _lives(process):
            self.kill()
            raise ServerError(f"{self.name} does not start:\n{log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop the server as its operator would; killed where it does not within `TIMEOUT`."""
        if self._process is not None:
            self.thaw()
            with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                self._process.send_signal(self.stop_signal)
                self._process.wait(TIMEOUT)
            self.kill()

    def kill(self) -> None:
        """Kill the server and all of its processes at once. Harmless where it does not run."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            family = self._family()
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait(TIMEOUT)
            self._process = None
            # Nobody but init can wait for the children; they hold the data until they are gone.
            until(lambda: not any(map(_lives, family)))

    def restart(self) -> None:
        """Stop the server and start it again."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let all of the server's processes stand still, its connections open."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """Let a frozen server go on."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _family(self) -> list[psutil.Process]:
        """Return the server's processes, the parent first, so that it starts no more of them."""
        if self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            return [self._process, *self._process.children(recursive=True)]
        return [self._process]


def reserve_ports(count: int = 1) -> tuple[int, Callable[[], None]]:
    """Reserve TCP ports in a row that nothing listens on; return the first, and their release.

    Other processes of tests leave them alone: UDP sockets of the same numbers reserve them. So
    what listens there may end and start again.

    Raises:
        ServerError: none of a hundred is free.
    """
    for first in random.Random().sample(_PORTS, 100):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + count):
                reservation = held.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                reservation.bind(("127.0.0.1", port))
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            reserved = held.pop_all()
            _reservations.add(reserved)
            reserved.callback(_reservations.discard, reserved)
            return first, reserved.close
    raise ServerError("No port of 127.0.0.1 is free")


def free_port(count: int = 1) -> int:
    """Return the first of `count` ports in a row, reserved for as long as this process lives."""
    return reserve_ports(count)[0]


def program(name: str, package: str, *directories: Path) -> Path:
    """Return the path of a program, also of one that Debian keeps off the PATH.

    Raises:
        NotInstalledError: it is nowhere.
    """
    path = ":".join([os.environ.get("PATH", os.defpath), *map(str, directories)])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotInstalledError(f"{name} is not installed: on Debian, apt-get install {package}")
    return Path(found)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; tell whether it did within `TIMEOUT`."""
    end = time.monotonic() + TIMEOUT
    while True:
        before = time.monotonic()
        if condition():
            return True
        now = time.monotonic()
        if now > end:
            return False
        # A look that takes long (a program that asks the server) must not keep a core busy.
        time.sleep(min(max(0.01, now - before), 0.1))
