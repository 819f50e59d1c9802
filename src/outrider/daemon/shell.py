"""The two ways in which a shell runs a command: once, and as one of many in a shell that lives on.

The shell is bash where there is one, /bin/sh otherwise: the same on every machine, whatever
its user likes to type into. It reads no start-up file, has no terminal, and its commands
read from /dev/null.
"""

import asyncio
import shlex
import shutil
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE
from typing import Final

import structlog

from outrider.contract.errors import ApiError
from outrider.daemon.capture import Capture
from outrider.daemon.child import Child, start
from outrider.daemon.pipes import PipeReader
from outrider.daemon.processes import clean_environment

BACKGROUND_GRACE: Final = 0.25
"""Seconds that a finished one-shot command's output may still come from what it left running."""

_KILL_TIMEOUT: Final = 3.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `cwd` is where it began (once) or where its shell is now (named)."""

    exit_code: int
    output: str
    truncated: bool
    cwd: str


async def run_once(command: str, cwd: str, deadline: float) -> Outcome:
    """Run `command` in a fresh shell and return what came of it.

    What the command leaves in the background lives on; its further output is lost. At the
    deadline (event loop time), or when this call is cancelled, the shell is killed with all
    that it has started.

    Raises:
        ApiError: 504, the deadline has passed; 400, the shell cannot be started there.
    """
    capture = Capture()
    output = PipeReader(capture.add)
    began = asyncio.get_running_loop().time()
    try:
        process = await _start("-c", command, cwd=cwd, stdin=DEVNULL, output=output)
        try:
            async with asyncio.timeout_at(deadline):
                await process.wait()
        except TimeoutError:
            seconds = round(asyncio.get_running_loop().time() - began)
            raise ApiError(
                504,
                f"The command did not end within {seconds} s and was killed with all its "
                "children. Run it in a named terminal (`name`) to let it go on",
            ) from None
        finally:
            await _kill(process)
        output.drain()
        try:
            async with asyncio.timeout(BACKGROUND_GRACE):
                await output.ended.wait()
        except TimeoutError:
            pass  # something in the background keeps the pipe open
        text, truncated = capture.take()
        return Outcome(_exit_code(process), text, truncated, cwd)
    finally:
        output.close()


class Shell:
    """A shell that lives on, with its directory, variables and history. One command at a time.

    Args:
        cwd: where it begins.
        capture: takes its output; may hold some that nobody has been told yet.
    """

    def __init__(self, cwd: str, capture: Capture) -> None:
        self._cwd = cwd
        self._last_exit = 0
        self._commands = 0
        self._capture = capture
        self._output = PipeReader(capture.add)
        self._status = PipeReader(self._reported)
        self._report = bytearray()
        self._running: asyncio.Future[int] | None = None
        self._process: Child | None = None
        self._end: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the shell is gone: its next command needs another one."""
        return self._process is not None and self._process.returncode is not None

    async def start(self) -> None:
        """Start the shell.

        Raises:
            ApiError: 400, it cannot be started in its directory.
        """
        try:
            self._process = await _start(
                cwd=self._cwd, stdin=PIPE, output=self._output, status=self._status
            )
        except BaseException:
            self._close_pipes()
            raise
        self._end = asyncio.create_task(self._wait(self._process), name="shell")
        self._write("exec 8>&1 9>&2 >/dev/null 2>/dev/null; unset HISTFILE\n")

    async def idle(self) -> None:
        """Return once no command runs, also if the shell has ended with it."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def run(self, command: str, cwd: str | None) -> Outcome:
        """Run a command, with the shell in `cwd` from now on if given. Call it when `idle`.

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
        """Kill the shell with all that runs in it."""
        if self._process is not None:
            await _kill(self._process)
        if self._end is not None:
            await asyncio.wait({self._end}, timeout=_KILL_TIMEOUT)
        self._close_pipes()

    def _script(self, command: str, cwd: str | None) -> str:
        """Return the lines that run `command` as typed, whatever is in it, and report its end.

        It is one quoted word to `eval`, so that a quote left open is its own error. `command`
        keeps a plain sh alive after such an error. The first subshell gives `$?` its old value.

        A user may define functions and aliases with the names of builtins. `command` skips
        functions, a backslash skips aliases, and a function called `command` (or `eval`) does
        not outlive the command that defined it. The report must come whatever was defined: in its
        subshell the assignment makes bash POSIX, where no function can replace `unset`.
        """
        quoted = shlex.quote(command)
        lines = ["\\unset -f command eval || :", f"\\command history -s -- {quoted} || :"]
        if cwd is not None:
            lines.append(f"CDPATH= \\command cd -- {shlex.quote(cwd)} || :")
        lines.append(
            f"(\\command exit {self._last_exit}); "
            f"\\command eval {quoted} </dev/null >&8 2>&8 8>&- 9>&-; "
            "(POSIXLY_CORRECT=$?; \\unset -f command; \\command printf "
            f'"%s %s %s\\0" {self._commands} "$POSIXLY_CORRECT" "${{PWD-}}" >&9)'
        )
        return "\n".join(lines) + "\n"

    def _write(self, text: str) -> None:
        """Queue lines for the shell. One command at a time keeps the queue small."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode("utf-8", "surrogatepass"))

    def _reported(self, data: bytes) -> None:
        """Read the report of a command's end: its number, its exit code, the directory."""
        self._report += data
        while b"\0" in self._report:
            report, _, self._report = self._report.partition(b"\0")
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
        self._status.drain()  # it may have ended right after a command
        self._output.drain()
        self._finish(_exit_code(process))

    def _close_pipes(self) -> None:
        self._output.close()
        self._status.close()
        if self._process is not None:
            self._process.close()


async def _start(
    *arguments: str, cwd: str, stdin: int, output: PipeReader, status: PipeReader | None = None
) -> Child:
    """Start the shell as the leader of a session of its own."""
    try:
        return await start(
            [shutil.which("bash") or "/bin/sh", *arguments],
            cwd=cwd,
            env=clean_environment(),
            stdin=stdin,
            stdout=output.write_end,
            stderr=(status or output).write_end,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ApiError(400, f"The shell could not be started in {cwd!r}: {reason}") from error
    finally:
        output.handed_over()
        if status is not None:
            status.handed_over()


async def _kill(process: Child) -> None:
    """Kill the shell with all that it has started, unless it has ended by itself."""
    if process.returncode is not None:
        return
    await process.group.kill()
    try:
        async with asyncio.timeout(_KILL_TIMEOUT):
            await process.wait()
    except TimeoutError:  # it hangs in the kernel, such as on a network disk
        _log.warning("killed shell does not end", pid=process.pid)


def _exit_code(process: Child) -> int:
    """Return the exit code as a shell tells it: 128 and the signal for one that was killed."""
    code = process.returncode or 0
    return code if code >= 0 else 128 - code
