"""Real processes of the `outrider` command, always ended by their id."""

import asyncio
import json
import os
import pty
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.server import reserve_ports

PROCESS_TIMEOUT = 2 * TIMEOUT
"""Seconds within which a process starts, does what it is asked, or ends: several may start at once.

Under a load of 15 on two processors, `outrider up` took more than 30 s to start.
"""


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """Return an environment that holds nothing of this machine's but what Python needs."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG")
        if name in os.environ
    }
    return {
        **kept,
        "HOME": str(data_dir.parent),
        "OUTRIDER_DATA_DIR": str(data_dir),
        "OUTRIDER_CONFIG_DIR": str(data_dir.parent / "config"),
        "OUTRIDER_RATE_LIMIT_KEY": "1000000",
        "OUTRIDER_RATE_LIMIT_SESSION": "1000000",
        "OUTRIDER_RATE_LIMIT_IP": "1000000",
        "OUTRIDER_RATE_LIMIT_AUTH": "1000000",
        "OUTRIDER_DRAIN_DELAY": "0",
        "NO_COLOR": "1",
        **{f"OUTRIDER_{name.upper()}": value for name, value in settings.items()},
    }


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended may not have been reaped yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Outcome:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def json(self) -> Any:
        """Return what the command printed with `--json`; fail where it did not succeed."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def assert_sentence(self, code: int = 1) -> str:
        """Check that the command failed with one sentence on standard error; return it."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        assert "Traceback" not in self.err
        (line,) = self.err.splitlines()
        assert line.startswith("outrider: ")
        return line


async def outrider(
    *arguments: str, env: dict[str, str], python: str | Path = sys.executable
) -> Outcome:
    """Run the `outrider` command to its end."""
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        "outrider",
        *arguments,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROCESS_TIMEOUT):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


class Program:
    """A Python program that runs until it is told to stop; killed at the latest at the end.

    Args:
        python: the interpreter; by default that of the tests.

    Attributes:
        log: where its standard error goes.
    """

    log = Path(os.devnull)

    def __init__(
        self, *arguments: str, env: dict[str, str], python: str | Path = sys.executable
    ) -> None:
        self._python = python
        self._arguments = arguments
        self._env = env
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        with self.log.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                self._python,
                *self._arguments,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.communicate()

    async def next_line(self, within: float = PROCESS_TIMEOUT) -> str:
        """Return the program's next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(within):
            return (await self.process.stdout.readline()).decode().strip()

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        self.process.send_signal(number)

    async def ends(self, within: float = PROCESS_TIMEOUT) -> int:
        """Wait until the program has ended; return its exit code."""
        async with asyncio.timeout(within):
            return await self.process.wait()


class TerminalProgram(Program):
    """A Python program in a terminal of its own.

    Attributes:
        shown: what it has written to the terminal.
    """

    def __init__(
        self, *arguments: str, env: dict[str, str], python: str | Path = sys.executable
    ) -> None:
        super().__init__(*arguments, env={"TERM": "xterm-256color"} | env, python=python)
        self.shown = bytearray()

    async def __aenter__(self) -> Self:
        self._leader, self._follower = pty.openpty()
        asyncio.get_running_loop().add_reader(self._leader, self._read)
        try:
            self.process = await asyncio.create_subprocess_exec(
                self._python,
                *self._arguments,
                env=self._env,
                stdin=self._follower,
                stdout=self._follower,
                stderr=self._follower,
            )
        except BaseException:
            self._close_terminal()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await super().__aexit__()
        finally:
            self._close_terminal()

    @property
    def mode(self) -> list[Any]:
        """The settings of the terminal."""
        return termios.tcgetattr(self._follower)

    def types(self, text: str) -> None:
        """Type keys."""
        os.write(self._leader, text.encode())

    async def shows(self, text: bytes, after: bytes = b"") -> None:
        """Wait until the program has written `text`, behind `after` if that is given."""
        await eventually(
            lambda: after in self.shown and text in self.shown[self.shown.index(after) :],
            PROCESS_TIMEOUT,
        )

    def _read(self) -> None:
        # The follower stays open here, so the end of the program is not an error.
        self.shown += os.read(self._leader, 65536)

    def _close_terminal(self) -> None:
        asyncio.get_running_loop().remove_reader(self._leader)
        os.close(self._leader)
        os.close(self._follower)


class Serving(Program):
    """`outrider serve`, ready for requests."""

    def __init__(self, data_dir: Path, port: int = 0, **settings: str) -> None:
        # It may be killed and started again: its port must be free then.
        self._release: Callable[[], None] | None = None
        if port == 0:
            port, self._release = reserve_ports()
        self.env = environment(data_dir, port=str(port), **settings)
        self.url = ""
        super().__init__("-m", "outrider", "serve", env=self.env)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            line = await self.next_line()
            self.url = line.rpartition(" ")[2]
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=TIMEOUT) as client:

                async def ready() -> bool:
                    return (await client.get(f"{self.url}/readyz")).is_success

                await eventually(ready)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        if self._release is not None:
            self._release()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    async def admin(self, *arguments: str, **settings: str) -> Outcome:
        """Run `outrider admin … --json` beside it."""
        more = {f"OUTRIDER_{name.upper()}": value for name, value in settings.items()}
        return await outrider("admin", *arguments, "--json", env=self.env | more)
