"""Terminal commands: one-shot shells, and named shells that stay open until the daemon stops.

    Terminals ──┬── name given ──> NamedTerminal ──> Shell (one process, many commands)
                └── no name ─────> run_once            (one process per command)

- `Terminals` finds the terminal of a request and holds the limits.
- `NamedTerminal` runs the commands for one name in their order, and replaces a shell that ended.
- `Shell` feeds commands to a shell through its standard input and learns how each of them ended.
- When a person opens a named terminal, its shell is replaced by an interactive one on a tty
  (`interactive_shell`), which runs the commands for the name as before.
- `OutputCapture` holds what a command prints, in bounded memory.

The shell is bash where there is one, /bin/sh otherwise, whatever the user's login shell is, so
that a command means the same on every machine. It reads no start-up file and has no terminal;
its commands read from /dev/null.
"""

import asyncio
import codecs
import shlex
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final

import structlog

from outrider.contract.commands import OpenTerminal, Terminal, TerminalList, TerminalOutput
from outrider.contract.errors import ApiError, bad_request, conflict, not_found
from outrider.machine.agents.pane import Pane
from outrider.machine.system.child import Child, PipeReader, start
from outrider.machine.system.directories import directory
from outrider.machine.system.processes import clean_environment

MAX_TERMINALS: Final = 32
"""Named terminals that may be open at once."""

MAX_WAITING: Final = 16
"""Commands that may wait for one named terminal."""

MAX_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of a one-shot command: what Linux takes as one argument of a program."""

MAX_OUTPUT: Final = 256 * 1024
"""Bytes of output in a reply; of a longer output, half from the start and half from the end."""

BACKGROUND_GRACE: Final = 0.25
"""Seconds for which a finished one-shot command's background processes may still add output."""

_HALF_OUTPUT: Final = MAX_OUTPUT // 2
_KILL_TIMEOUT: Final = 3.0
_WINDOW_SECONDS: Final = 5.0
"""Seconds for which opening a terminal waits for the command that runs in it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    `cwd` is the directory a one-shot command began in; for a named terminal, the directory that
    its shell is in now.
    """

    exit_code: int
    output: str
    truncated: bool
    cwd: str


class Terminals:
    """The terminals of this machine.

    Args:
        start_interactive: starts the shell of a terminal that people open; None if they cannot.
    """

    def __init__(self, start_interactive: "StartInteractive | None" = None) -> None:
        self._start_interactive = start_interactive
        self._named: dict[str, NamedTerminal] = {}

    async def run(self, request: Terminal, deadline: float) -> TerminalOutput:
        """Run a command and return what it printed and how it ended.

        Args:
            request: the command; with a `name`, it runs in the terminal of that name.
            deadline: event loop time. At the deadline a one-shot command is killed; a command
                in a named terminal continues, and its output is in the next reply.

        Raises:
            ApiError: 400, `cwd` or `command` cannot be used; 409, too many terminals, or too
                many commands wait for this one; 504, the deadline has passed.
        """
        start_time = time.monotonic()
        _check_command(request)
        cwd = (
            None if request.cwd is None else await asyncio.to_thread(directory, request.cwd, "cwd")
        )
        if request.name is None:
            outcome = await run_once(request.command, cwd or str(Path.home()), deadline)
        else:
            outcome = await self._run_named(request.name, request.command, cwd, deadline)
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
            ApiError: 409, a command runs in a terminal that has no window yet, too many terminals
                are open, or people cannot open terminals here; 500, it did not start.
        """
        if self._start_interactive is None:
            raise conflict("Terminals cannot be opened live on this machine")
        terminal = await self._terminal(name)
        return await terminal.open_window(self._start_interactive)

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

    async def _run_named(
        self, name: str, command: str, cwd: str | None, deadline: float
    ) -> Outcome:
        terminal = await self._terminal(name)
        return await terminal.run(command, cwd, deadline)

    async def _terminal(self, name: str) -> "NamedTerminal":
        terminal = self._named.get(name)
        if terminal is None:
            await self._make_room()
            # `_make_room` may have awaited: another command may have created the terminal.
            terminal = self._named.setdefault(name, NamedTerminal(name))
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

    def __init__(self, name: str) -> None:
        self._name = name
        self._capture = OutputCapture()
        self._shell: Shell | None = None
        self._former: Shell | None = None
        """The shell that an interactive one has replaced: what it started runs on."""
        self._is_closed = False
        self._lock = asyncio.Lock()
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
        if self._waiting > MAX_WAITING:
            raise conflict(
                f"{MAX_WAITING} commands already wait for the terminal {self._name!r}: "
                "wait for them, or use another name"
            )
        started = False
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                shell = await self._ready(cwd)
                started = True
                return await shell.run(command, cwd)
        except TimeoutError:
            raise ApiError(504, self._timeout_message(started=started)) from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Kill the shell and everything that runs in it; waiting commands do not begin."""
        self._is_closed = True
        await self._close_shells()

    async def open_window(self, start: "StartInteractive") -> Pane:
        """Return the window of the terminal's interactive shell, see `Terminals.window`."""
        window = self._window()
        if window is not None:
            return window
        self._waiting += 1
        try:
            async with asyncio.timeout(_WINDOW_SECONDS) as limit, self._lock:
                if self._shell is not None:
                    await self._shell.idle()
                limit.reschedule(None)  # what follows has bounds of its own
                window = self._window()
                if window is None:
                    window = await self._replace_shell(start)
                return window
        except TimeoutError:
            raise conflict(
                f"A command runs in the terminal {self._name!r}: open it when that has ended"
            ) from None
        finally:
            self._waiting -= 1

    async def _replace_shell(self, start: "StartInteractive") -> Pane:
        """Start an interactive shell that continues where the present one is."""
        self._check_open()
        former = self._shell
        if former is not None and former.ended:
            await self._close_shells()
            former = None
        shell = await start(self._name, self._capture, former)
        if self._is_closed:
            await shell.close()
        self._check_open()
        self._shell, self._former = shell, former
        assert shell.window is not None
        return shell.window

    def _window(self) -> Pane | None:
        """Return the window of the shell, None if it has none, or has ended."""
        return None if self._shell is None or self._shell.ended else self._shell.window

    async def _close_shells(self) -> None:
        for shell in (self._shell, self._former):
            if shell is not None:
                await shell.close()
        self._former = None

    async def _ready(self, cwd: str | None) -> "Shell":
        """Return a running shell in which no command runs; the caller holds the lock."""
        if self._shell is not None:
            # The previous caller may have timed out: its command still runs and must end first.
            await self._shell.idle()
            if not self._shell.ended and not self._is_closed:
                return self._shell
            await self._close_shells()
        self._check_open()
        shell = Shell(cwd or str(Path.home()), self._capture)
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


class Shell:
    r"""A shell that keeps its directory, variables and history between commands.

    It runs one command at a time. Commands are written to the shell's standard input, wrapped in
    lines that report the end of each command on a second pipe:

        stdin  ── eval 'make test' </dev/null >&8 2>&8; printf '3 0 /srv' >&9 ──> shell
        fd 8   <── the command's output ──────────────────────────────── (capture)
        fd 9   <── "number exit-code directory\0" ────────────────────── (reports)

    Descriptors 8 and 9 stay in the shell: commands do not inherit them (`8>&- 9>&-`). The number
    distinguishes the report of this command from that of an earlier command that timed out.

    Args:
        cwd: the directory in which it starts.
        capture: receives the output; may still hold output of an earlier command.
        output, reports_path: replace the pipes for output and reports.

    Attributes:
        window: the window that shows it to people; None if it has none.
    """

    def __init__(
        self,
        cwd: str,
        capture: "OutputCapture",
        *,
        output: PipeReader | None = None,
        reports_path: Path | None = None,
    ) -> None:
        self.window: Pane | None = None
        self._cwd = cwd
        self._last_exit = 0
        self._commands = 0
        self._capture = capture
        self._output = output or PipeReader(capture.add)
        self._reports = PipeReader(self._read_reports, reports_path)
        self._report_buffer = bytearray()
        self._running: asyncio.Future[int] | None = None
        self._process: Child | None = None
        self._end: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the shell has ended: the next command needs a new one."""
        return self._process is not None and self._process.returncode is not None

    @property
    def busy(self) -> bool:
        """Whether a command runs."""
        return self._running is not None and not self._running.done()

    async def start(self) -> None:
        """Start the shell.

        Raises:
            ApiError: 400, it cannot be started in its directory.
        """
        try:
            self._process = await _start(
                cwd=self._cwd, stdin=PIPE, output=self._output, reports=self._reports
            )
        except BaseException:
            self._close_pipes()
            raise
        self._end = asyncio.create_task(self._wait(self._process), name="shell")
        self._write("exec 8>&1 9>&2 >/dev/null 2>/dev/null; unset HISTFILE\n")

    async def idle(self) -> None:
        """Wait until no command runs; returns too if the shell ended during a command."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def run(self, command: str, cwd: str | None) -> Outcome:
        """Run a command, after changing to `cwd` if given. Call it only after `idle`.

        Cancelling this call leaves the command running; its output is in the next outcome.
        """
        self._running = asyncio.get_running_loop().create_future()
        self._commands += 1
        self._write(self._script(command, cwd))
        exit_code = await asyncio.shield(self._running)
        self._output.drain()
        text, truncated = self._capture.take()
        return Outcome(exit_code, text, truncated, self._cwd)

    async def close(self) -> None:
        """Kill the shell and everything that runs in it."""
        if self._process is not None:
            await _kill(self._process)
        if self._end is not None:
            await asyncio.wait({self._end}, timeout=_KILL_TIMEOUT)
        self._close_pipes()

    def _script(self, command: str, cwd: str | None) -> str:
        """Return the lines that run `command` exactly as typed and report its end.

        The command is one quoted word for `eval`: an unclosed quote is an error of that command
        and cannot swallow the lines after it. `command eval` keeps a plain sh running after such
        an error. The first subshell sets `$?` to the exit code of the previous command.

        Users may define functions and aliases with the names of builtins. `command` skips
        functions, a backslash skips aliases, and functions named `command` or `eval` are removed
        before the next command. The report has to be sent whatever was defined: in its subshell
        the assignment to POSIXLY_CORRECT switches bash to POSIX mode, where no function can
        replace the special builtin `unset`.
        """
        quoted = shlex.quote(command)
        lines = ["\\unset -f command eval || :", f"\\command history -s -- {quoted} || :"]
        if cwd is not None:
            lines.append(f"CDPATH= \\command cd -- {shlex.quote(cwd)} || :")
        lines.append(
            f"(\\command exit {self._last_exit}); "
            f"{self._evaluation(command)} </dev/null >&8 2>&8 8>&- 9>&-; "
            "(POSIXLY_CORRECT=$?; \\unset -f command; \\command printf "
            f'"%s %s %s\\0" {self._commands} "$POSIXLY_CORRECT" "${{PWD-}}" >&9)'
        )
        return "\n".join(lines) + "\n"

    def _evaluation(self, command: str) -> str:
        """Return what makes the shell run `command`."""
        return f"\\command eval {shlex.quote(command)}"

    def _write(self, text: str) -> None:
        """Write lines to the shell; the buffer stays small, as one command runs at a time."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode("utf-8", "surrogatepass"))

    def _read_reports(self, data: bytes) -> None:
        """Read reports: the number of a command, its exit code, the shell's directory."""
        self._report_buffer += data
        while b"\0" in self._report_buffer:
            report, _, self._report_buffer = self._report_buffer.partition(b"\0")
            number, _, rest = report.partition(b" ")
            code, _, cwd = rest.partition(b" ")
            if number == b"%d" % self._commands and code.isdigit():
                self._cwd = cwd.decode("utf-8", "replace")
                self._finish(int(code))

    def _finish(self, exit_code: int) -> None:
        self._last_exit = exit_code
        if self._running is not None and not self._running.done():
            self._running.set_result(exit_code)

    async def _wait(self, process: Child) -> None:
        await process.wait()
        # The shell may have reported the end of a command right before it ended: that exit code
        # counts, so the reports are read before the shell's own exit code is taken for it.
        self._reports.drain()
        self._output.drain()
        self._finish(_exit_code(process))

    def _close_pipes(self) -> None:
        self._output.close()
        self._reports.close()
        if self._process is not None:
            self._process.close()


StartInteractive = Callable[[str, "OutputCapture", Shell | None], Awaitable[Shell]]
"""Starts the interactive shell of a terminal, in place of the given one; see `interactive_shell`.

It raises ApiError: 409 or 500, it cannot be started.
"""


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
        process = await _start("-c", command, cwd=cwd, stdin=DEVNULL, output=output)
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
        return Outcome(_exit_code(process), text, truncated, cwd)
    finally:
        output.close()


class OutputCapture:
    """Collects output in bounded memory: the first and the last `MAX_OUTPUT / 2` bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self._total += len(data)
        room = _HALF_OUTPUT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room else data
        if len(self._tail) > 2 * _HALF_OUTPUT:
            del self._tail[:-_HALF_OUTPUT]

    def take(self) -> tuple[str, bool]:
        """Return the output and whether its middle is missing; then start again, empty.

        A marker line stands for the missing middle. Bytes that are not UTF-8 become U+FFFD.
        """
        head, tail, total = self._head, self._tail[-_HALF_OUTPUT:], self._total
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        if total <= MAX_OUTPUT:
            return (head + tail).decode("utf-8", "replace"), False
        first = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        last = _skip_partial_character(tail).decode("utf-8", "replace")
        left_out = total - len(head) - len(tail)
        return f"{first}\n[outrider: {left_out} bytes left out here]\n{last}", True


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


async def _start(
    *arguments: str, cwd: str, stdin: int, output: PipeReader, reports: PipeReader | None = None
) -> Child:
    """Start a shell as the leader of a new session.

    Raises:
        ApiError: 400, it cannot be started in `cwd`.
    """
    try:
        return await start(
            [shutil.which("bash") or "/bin/sh", *arguments],
            cwd=cwd,
            env=clean_environment(),
            stdin=stdin,
            stdout=output.write_end,
            stderr=(reports or output).write_end,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ApiError(400, f"The shell could not be started in {cwd!r}: {reason}") from error
    finally:
        output.close_write_end()
        if reports is not None:
            reports.close_write_end()


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


def _exit_code(process: Child) -> int:
    """Return the exit code in the shell's convention: 128 plus the signal that killed it."""
    code = process.returncode or 0
    return code if code >= 0 else 128 - code


def _skip_partial_character(data: bytearray) -> bytearray:
    """Return `data` without the continuation bytes of a character that was cut in two."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
