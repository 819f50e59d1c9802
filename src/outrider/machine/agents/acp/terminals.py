"""The terminals that an agent opens: commands, with limits on their number and output."""

import asyncio
import contextlib
import signal
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from acp import RequestError
from acp.schema import TerminalExitStatus

from outrider.contract.ids import new_id
from outrider.machine.agents.acp.output_tail import OutputTail
from outrider.machine.system.child import Child, PipeReader, start

MAX_TERMINALS: Final = 16
"""Terminals that an agent may have open at once."""

MAX_OUTPUT: Final = 1024 * 1024
"""Bytes of a terminal's output that are kept, the newest; an agent may ask for fewer."""

_REMEMBERED: Final = 32
_KILL_TIMEOUT: Final = 2.0
_START_TIMEOUT: Final = 3.0


class AgentTerminals:
    """The terminals of one agent.

    Args:
        directory: where a command runs that names no directory.
        environment: what a command inherits.
    """

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = dict(environment)
        self._open: dict[str, _Terminal] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._released: OrderedDict[str, tuple[str, int | None]] = OrderedDict()

    async def create(
        self,
        command: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str | None,
        limit: int | None,
    ) -> str:
        """Start a command and return its terminal's id; without arguments, a line for the shell.

        Raises:
            RequestError: too many are open, or it cannot be started.
        """
        if self._closing is not None:
            raise RequestError(-32603, "the session ends: no command is started any more")
        if len(self._open) + len(self._starting) >= MAX_TERMINALS:
            raise RequestError(-32603, f"{MAX_TERMINALS} terminals are open: release one first")
        argv = [command, *arguments] if arguments else ["/bin/sh", "-c", command]
        size = MAX_OUTPUT if limit is None else min(limit, MAX_OUTPUT)
        name, terminal = new_id("cmd"), _Terminal(OutputTail(size))
        place, variables = directory or self._directory, self._environment | dict(environment)
        starting = asyncio.create_task(self._start(name, terminal, argv, place, variables))
        self._starting.add(starting)
        starting.add_done_callback(self._started)
        try:
            await asyncio.shield(starting)  # a process that is half started cannot be ended
        except (OSError, ValueError) as error:
            raise RequestError(-32603, f"{command!r} could not be started: {error}") from error
        return name

    def output(self, name: str) -> tuple[str, bool, TerminalExitStatus | None]:
        """Return the output, whether its beginning is missing, and the exit status if it ended."""
        terminal = self._find(name)
        tail = terminal.output()
        return tail.text(), tail.truncated, terminal.status()

    async def wait(self, name: str) -> TerminalExitStatus:
        """Wait until the command has ended; return its exit status."""
        terminal = self._find(name)
        await terminal.ended()
        status = terminal.status()
        assert status is not None
        return status

    async def kill(self, name: str) -> None:
        """Kill the command and every process that it started; its output is kept."""
        await self._find(name).kill()

    async def release(self, name: str) -> None:
        """Kill the command and release its terminal."""
        terminal = self._find(name)
        del self._open[name]
        await self._end(name, terminal)

    async def _end(self, name: str, terminal: "_Terminal") -> None:
        exit_code = terminal.exit_code  # what runs until then is ended by the release
        await terminal.close()
        self._released[name] = terminal.output().text(), exit_code
        if len(self._released) > _REMEMBERED:
            self._released.popitem(last=False)

    async def close(self) -> None:
        """Kill every command, and refuse to start others. Idempotent; goes on if it is cancelled.

        An agent that exits is closed by who watches it, and by who ends its session and cancels
        the watch: the second waits for what the first has begun.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close terminals")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._starting:
            await asyncio.wait(self._starting, timeout=_START_TIMEOUT)
        # The agent may still release some of them: that must find nothing to end twice.
        terminals, self._open = self._open, {}  # at once: the agent may release them meanwhile
        await asyncio.gather(*(self._end(name, terminal) for name, terminal in terminals.items()))

    def text(self, name: str) -> str:
        """Return the output of a terminal, also after its release; empty if unknown."""
        terminal = self._open.get(name)
        return self._released.get(name, ("",))[0] if terminal is None else terminal.output().text()

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a command that has ended by itself, also after its release."""
        terminal = self._open.get(name)
        return self._released.get(name, ("", None))[1] if terminal is None else terminal.exit_code

    async def _start(
        self,
        name: str,
        terminal: "_Terminal",
        argv: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
    ) -> None:
        await terminal.start(argv, directory, environment)
        self._open[name] = terminal

    def _started(self, starting: asyncio.Task[None]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled():
            starting.exception()  # marked as retrieved: `create` raises it, unless cancelled

    def _find(self, name: str) -> "_Terminal":
        terminal = self._open.get(name)
        if terminal is None:
            raise RequestError.resource_not_found(name)
        return terminal


class _Terminal:
    """One command and its output."""

    def __init__(self, tail: OutputTail) -> None:
        self._tail = tail
        self._pipe = PipeReader(tail.add)
        self._process: Child | None = None
        self._closed = False

    async def start(
        self, argv: Sequence[str], directory: str, environment: Mapping[str, str]
    ) -> None:
        try:
            self._process = await start(
                argv,
                cwd=directory,
                env=environment,
                stdout=self._pipe.write_end,
                stderr=self._pipe.write_end,
            )
        except BaseException:
            self._pipe.close()
            raise
        self._pipe.close_write_end()

    def output(self) -> OutputTail:
        """Return the output with all that has been printed by now."""
        if not self._closed:
            self._pipe.drain()
        return self._tail

    def status(self) -> TerminalExitStatus | None:
        code = None if self._process is None else self._process.returncode
        if code is None:
            return None
        if code < 0:
            with contextlib.suppress(ValueError):
                return TerminalExitStatus(signal=signal.Signals(-code).name)
        return TerminalExitStatus(exit_code=max(code, 0))

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 plus the number of the signal that ended it; None while it runs."""
        code = None if self._process is None else self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    async def ended(self) -> None:
        assert self._process is not None
        await self._process.wait()

    async def kill(self) -> None:
        process = self._process
        assert process is not None
        await process.group.kill()
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_TIMEOUT):
                    await process.wait()

    async def close(self) -> None:
        try:
            await self.kill()
        finally:  # a cancelled call has killed it as well
            self._pipe.drain()
            self._closed = True
            self._pipe.close()
