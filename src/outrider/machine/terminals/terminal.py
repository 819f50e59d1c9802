"""Terminal commands: one-shot shells, and named shells that stay open until the daemon stops.

    Terminals ──┬── name given ──> NamedTerminal ──> Shell (one bash in tmux, many commands)
                └── no name ─────> run_once            (one process per command)

- `Terminals` finds the terminal of a request and holds the limits.
- `NamedTerminal` runs the commands for one name in their order, and replaces a shell that ended.
- `shell.Shell` is what people see when they open the terminal, too.

Shells read no start-up file, whatever the user's login shell is, so that a command means the same
on every machine; its commands read from /dev/null. One-shot commands run in bash where there is
one, in /bin/sh otherwise.
"""

import asyncio
import shutil
import time
from pathlib import Path
from typing import Final

import structlog

from outrider.contract.commands import OpenTerminal, Terminal, TerminalList, TerminalOutput
from outrider.contract.errors import ApiError, bad_request, conflict, not_found
from outrider.machine.agents.pane import Pane
from outrider.machine.system.child import Child, PipeReader, start
from outrider.machine.system.directories import directory
from outrider.machine.system.processes import clean_environment
from outrider.machine.terminals.output import Outcome, OutputCapture
from outrider.machine.terminals.shell import Shell
from outrider.machine.tmux.server import Tmux

MAX_TERMINALS: Final = 32
"""Named terminals that may be open at once."""

MAX_WAITING: Final = 16
"""Commands that may wait for one named terminal."""

MAX_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of a one-shot command: what Linux takes as one argument of a program."""

BACKGROUND_GRACE: Final = 0.25
"""Seconds for which a finished one-shot command's background processes may still add output."""

_KILL_TIMEOUT: Final = 3.0

_log = structlog.get_logger(__name__)


class Terminals:
    """The terminals of this machine; named ones are windows of `tmux`."""

    def __init__(self, tmux: Tmux) -> None:
        self._tmux = tmux
        self._named: dict[str, NamedTerminal] = {}

    async def run(self, request: Terminal, deadline: float) -> TerminalOutput:
        """Run a command and return what it printed and how it ended.

        Args:
            request: the command; with a `name`, it runs in the terminal of that name.
            deadline: event loop time. At the deadline a one-shot command is killed; a command
                in a named terminal continues, and its output is in the next reply.

        Raises:
            ApiError: 400, `cwd` or `command` cannot be used; 409, too many terminals, or too
                many commands wait for this one; 500, the terminal did not start; 504, the
                deadline has passed.
        """
        start_time = time.monotonic()
        _check_command(request)
        cwd = (
            None if request.cwd is None else await asyncio.to_thread(directory, request.cwd, "cwd")
        )
        if request.name is None:
            outcome = await run_once(request.command, cwd or str(Path.home()), deadline)
        else:
            terminal = await self._terminal(request.name)
            outcome = await terminal.run(request.command, cwd, deadline)
        return TerminalOutput(
            terminal=request.name,
            exit_code=outcome.exit_code,
            output=outcome.output,
            truncated=outcome.truncated,
            duration_ms=round((time.monotonic() - start_time) * 1000),
            cwd=outcome.cwd,
        )

    def list(self) -> TerminalList:
        """Return the named terminals whose shell runs, in the order of their names."""
        return TerminalList(
            terminals=[
                OpenTerminal(name=name, busy=terminal.busy)
                for name, terminal in sorted(self._named.items())
                if not terminal.unused
            ]
        )

    async def window(self, name: str) -> Pane:
        """Return the window of a named terminal, for people; start the terminal if there is none.

        Raises:
            ApiError: 409, too many terminals are open; 500, it did not start.
        """
        terminal = await self._terminal(name)
        return await terminal.window()

    async def end(self, name: str) -> None:
        """Kill a named terminal and everything that runs in it; waiting commands get a 409.

        Raises:
            ApiError: 404, no terminal has this name.
        """
        terminal = self._named.pop(name, None)
        if terminal is None:
            raise not_found(f"No terminal {name!r} is open on this machine")
        await terminal.close()

    async def close(self) -> None:
        """Kill every named terminal and everything that runs in them."""
        terminals = list(self._named.values())
        self._named.clear()
        await asyncio.gather(*(terminal.close() for terminal in terminals))

    async def _terminal(self, name: str) -> "NamedTerminal":
        terminal = self._named.get(name)
        if terminal is None:
            await self._make_room()
            # `_make_room` may have awaited: another command may have created the terminal.
            terminal = self._named.setdefault(name, NamedTerminal(self._tmux, name))
        return terminal

    async def _make_room(self) -> None:
        """Close terminals whose shells have ended, if the limit is reached.

        Raises:
            ApiError: 409, `MAX_TERMINALS` are still open.
        """
        if len(self._named) < MAX_TERMINALS:
            return
        for name, terminal in list(self._named.items()):
            # While one is closed, others may be deleted, opened again or used.
            if terminal.unused and self._named.get(name) is terminal:
                del self._named[name]
                await terminal.close()
        if len(self._named) >= MAX_TERMINALS:
            raise conflict(
                f"{MAX_TERMINALS} named terminals are open on this machine: "
                "delete one of them, or use one of their names"
            )


class NamedTerminal:
    """A shell with a name. After the shell has ended, the next command starts a new one.

    Commands run one at a time, in the order of their calls: `_lock` is fair. The output capture
    belongs to the terminal, not to a shell or a call, so that output of a command whose caller
    has timed out is in the next reply.
    """

    def __init__(self, tmux: Tmux, name: str) -> None:
        self._tmux = tmux
        self._name = name
        self._capture = OutputCapture()
        self._shell: Shell | None = None
        self._is_closed = False
        self._lock = asyncio.Lock()
        # Its own, so that a person who opens the terminal waits for no command.
        self._starting = asyncio.Lock()
        self._waiting = 0

    @property
    def unused(self) -> bool:
        """Whether no shell runs and no command waits for one."""
        return self._waiting == 0 and (self._shell is None or self._shell.ended)

    @property
    def busy(self) -> bool:
        """Whether a command runs or waits: also one whose caller has timed out."""
        return self._waiting > 0 or (self._shell is not None and self._shell.busy)

    async def run(self, command: str, cwd: str | None, deadline: float) -> Outcome:
        """Run a command after the ones that were submitted before it.

        Raises:
            ApiError: 409, `MAX_WAITING` commands already wait, or the terminal was closed before
                this command began; 504, the deadline passed while the command ran (it
                continues) or waited (it will not run).
        """
        # One runs, the others wait.
        if self._waiting > MAX_WAITING:
            raise conflict(
                f"{MAX_WAITING} commands already wait for the terminal {self._name!r}: "
                "wait for them, or use another name"
            )
        started = False
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                if self._shell is not None:
                    # The previous caller may have timed out: its command must end first.
                    await self._shell.idle()
                shell = await self._running_shell(cwd)
                started = True
                return await shell.run(command, cwd)
        except TimeoutError:
            raise ApiError(504, self._timeout_message(started=started)) from None
        finally:
            self._waiting -= 1

    async def window(self) -> Pane:
        """Return the window of the shell; start one if none runs.

        Raises:
            ApiError: 409, the terminal was closed meanwhile; 500, the shell did not start.
        """
        self._waiting += 1
        try:
            shell = await self._running_shell(None)
        finally:
            self._waiting -= 1
        assert shell.window is not None
        return shell.window

    async def close(self) -> None:
        """Kill the shell and everything that runs in it; waiting commands do not begin."""
        self._is_closed = True
        if self._shell is not None:
            await self._shell.close()

    async def _running_shell(self, cwd: str | None) -> Shell:
        """Return the shell; start one if none runs."""
        async with self._starting:
            if self._shell is not None:
                if not self._shell.ended and not self._is_closed:
                    return self._shell
                await self._shell.close()
            self._check_open()
            shell = Shell(self._tmux, self._name, cwd or str(Path.home()), self._capture)
            await shell.start()
            # `close` during the start saw no shell to kill: kill it here.
            if self._is_closed:
                await shell.close()
            self._check_open()
            self._shell = shell
            return shell

    def _check_open(self) -> None:
        if self._is_closed:
            raise conflict(f"The terminal {self._name!r} was closed before this command began")

    def _timeout_message(self, *, started: bool) -> str:
        if started:
            return (
                f"The command continues in the terminal {self._name!r}; "
                "its output will be in that terminal's next reply"
            )
        return (
            f"An earlier command still runs in the terminal {self._name!r}; this one was not "
            "started: send it again later, or use another name"
        )


async def run_once(command: str, cwd: str, deadline: float) -> Outcome:
    """Run `command` in a new shell and return its outcome.

    Background processes of the command continue after it; their further output is lost. At the
    deadline (event loop time), or when this call is cancelled, the shell and everything that it
    has started are killed.

    Raises:
        ApiError: 504, the deadline has passed; 400, the shell cannot be started there.
    """
    capture = OutputCapture()
    output = PipeReader(capture.add)
    started = asyncio.get_running_loop().time()
    try:
        process = await _start(command, cwd, output)
        try:
            async with asyncio.timeout_at(deadline):
                await process.wait()
        except TimeoutError:
            seconds = round(asyncio.get_running_loop().time() - started)
            raise ApiError(
                504,
                f"The command did not end within {seconds} s and was killed with all its "
                "children. Run it in a named terminal (`name`) to let it continue",
            ) from None
        finally:
            await _kill(process)
        output.drain()
        try:
            async with asyncio.timeout(BACKGROUND_GRACE):
                await output.ended.wait()
        except TimeoutError:
            pass  # a background process keeps the pipe open
        text, truncated = capture.take()
        code = process.returncode or 0  # negative for a signal; the shell's convention is 128 + it
        return Outcome(code if code >= 0 else 128 - code, text, truncated, cwd)
    finally:
        output.close()


def _check_command(request: Terminal) -> None:
    if "\0" in request.command:
        raise bad_request("`command` contains a NUL character, which no shell accepts", "command")
    try:
        size = len(request.command.encode())
    except UnicodeEncodeError:
        raise bad_request("`command` is not valid Unicode text", "command") from None
    if request.name is None and size > MAX_ARGUMENT:
        raise bad_request(
            f"`command` has {size} bytes, more than the {MAX_ARGUMENT} that a fresh shell takes: "
            "write it to a file and run that, or use a named terminal",
            "command",
        )


async def _start(command: str, cwd: str, output: PipeReader) -> Child:
    """Start a shell as the leader of a new session.

    Raises:
        ApiError: 400, it cannot be started in `cwd`.
    """
    try:
        return await start(
            [shutil.which("bash") or "/bin/sh", "-c", command],
            cwd=cwd,
            env=clean_environment(),
            stdout=output.write_end,
            stderr=output.write_end,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ApiError(400, f"The shell could not be started in {cwd!r}: {reason}") from error
    finally:
        output.close_write_end()


async def _kill(process: Child) -> None:
    """Kill a shell and everything that it has started, unless the shell has ended."""
    if process.returncode is not None:
        return
    await process.group.kill()
    try:
        async with asyncio.timeout(_KILL_TIMEOUT):
            await process.wait()
    except TimeoutError:  # stuck in the kernel, for example on a network file system
        _log.warning("killed shell still running", pid=process.pid)
