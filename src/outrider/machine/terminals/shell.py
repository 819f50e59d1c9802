r"""The shell of a named terminal: a bash in a tmux window, used by people and by the API.

    people ── tmux client ──▶ tty ──▶ bash ──▶ tty ──▶ tmux clients
    API ── file `command`, and a key ──▶ bash runs it ──▶ FIFOs ──▶ reply, and tty

The key is bound to a command of bash, which leaves alone what is half typed. It is pressed only
while the shell itself reads the tty, and again until bash has taken the file away. So a command of
the API does not go to a program that a person is using: it waits until that has ended, and the
caller gets a 504 if that takes too long. (A signal with a trap would need no key, but at its prompt
bash 5.2 runs a trap only after the next Enter.)

A command of the API does not write to the tty: its output goes through a FIFO, so that it is exact,
and is copied to the tty for the people who watch. A second FIFO reports how it has ended:

    bash ── fd 8: output ──▶ capture, tty        bash ── fd 9: "number exit-code directory\0"

Descriptors 8 and 9 stay in the shell: commands do not inherit them (`8>&- 9>&-`). The number
distinguishes the report of this command from that of an earlier command that timed out.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import termios
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from outrider.contract.errors import ApiError, conflict
from outrider.machine.agents.cli.launcher import launch_command, launch_file
from outrider.machine.agents.pane import Pane
from outrider.machine.system.child import PipeReader
from outrider.machine.system.processes import ProcessGroup, clean_environment
from outrider.machine.terminals.output import Outcome, OutputCapture
from outrider.machine.tmux.control import TmuxError
from outrider.machine.tmux.server import Tmux, private_folder

WINDOW_PREFIX: Final = "terminal-"
"""The beginning of the names of the windows of named terminals."""

_START_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.1
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.2
_KILLED: Final = 128 + signal.SIGKILL
_RUN_KEY: Final = "\x1b[1;99u"
_REDRAW_KEY: Final = "\x1b[1;98u"
_RC: Final = r"""
unset HISTFILE
__outrider_next() {{
  \command -p mv {folder}/command {folder}/taken 2>/dev/null && \command -p cat {folder}/taken
}}
PS1='\w\$ '
bind -x '"\e[1;99u": \unset -f command eval; \eval "$(__outrider_next)"'
bind '"\e[1;98u": redraw-current-line'
printf '0 0 %s\0' "$PWD" >{folder}/reports
"""


class Shell:
    """A bash that keeps its directory, variables and history between commands.

    It runs one command of the API at a time. Create it, then call `start`.

    Args:
        name: of the terminal.
        cwd: the directory in which it starts.
        capture: receives the output; may still hold output of an earlier command.
        kill_seconds: seconds that it has to end after it was killed.

    Attributes:
        window: the window that shows it to people, once it has started.
    """

    def __init__(
        self,
        tmux: Tmux,
        name: str,
        cwd: str,
        capture: OutputCapture,
        *,
        kill_seconds: float = _KILL_SECONDS,
    ) -> None:
        self.window: Pane | None = None
        self._tmux = tmux
        self._name = WINDOW_PREFIX + name
        self._cwd = cwd
        self._capture = capture
        self._kill_seconds = kill_seconds
        self._folder = private_folder()
        self._output = PipeReader(self._copy_output, self._folder / "output")
        self._reports = PipeReader(self._read_reports, self._folder / "reports")
        self._report_buffer = bytearray()
        self._last_exit = 0
        self._commands = 0
        self._running: asyncio.Future[int] | None = None
        self._group: ProcessGroup | None = None
        self._end: asyncio.Task[None] | None = None
        self._has_ended = False
        self._tty = -1
        self._keys: set[asyncio.Task[None]] = set()

    @property
    def ended(self) -> bool:
        """Whether the shell has ended: the next command needs a new one."""
        return self._has_ended

    @property
    def busy(self) -> bool:
        """Whether a command of the API runs."""
        return self._running is not None and not self._running.done()

    async def start(self) -> None:
        """Start bash in a new window, and wait for its first prompt.

        Raises:
            ApiError: 409, the machine has no bash; 500, it did not start.
        """
        # The first prompt reports itself as command 0.
        self._running = asyncio.get_running_loop().create_future()
        try:
            bash = _find_bash()
            left = await self._tmux.find(self._name)
            if left is not None:  # from a machine agent that was killed
                await self._tmux.kill(left)
            self.window = await self._open(bash)
            (tty,) = await self._tmux.run(
                "display-message", "-p", "-t", self.window.id, "#{pane_tty}"
            )
            self._tty = os.open(tty, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            self._group = ProcessGroup.of(self.window.pid)
            self._end = asyncio.create_task(self._watch(self.window), name="shell")
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.shield(self._running)
        except (TmuxError, OSError) as error:  # a TimeoutError is an OSError
            await self.close()
            raise ApiError(500, f"The terminal did not start: {error or 'no prompt'}") from error
        except BaseException:
            await self.close()
            raise

    async def idle(self) -> None:
        """Wait until no command runs; returns too if the shell ended during a command."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def run(self, command: str, cwd: str | None) -> Outcome:
        """Run a command, after changing to `cwd` if given. Call it only after `idle`.

        Cancelling this call leaves the command running; its output is in the next outcome.
        """
        self._show(b"\r\n[API] " + command.encode("utf-8", "replace") + b"\n")
        self._running = asyncio.get_running_loop().create_future()
        self._commands += 1
        self._write(self._script(command, cwd))
        exit_code = await asyncio.shield(self._running)
        self._output.drain()
        text, truncated = self._capture.take()
        return Outcome(exit_code, text, truncated, self._cwd)

    async def close(self) -> None:
        """Kill the shell and everything that runs in it."""
        if self._group is not None:
            await self._group.kill()
        if self._end is not None:
            await asyncio.wait({self._end}, timeout=self._kill_seconds)
        if self.window is not None and (self._end is None or not self._end.done()):
            await self._abandon(self.window)
        # After bash has ended: until then a key may be all that lets it take a command.
        for task in self._keys:
            task.cancel()
        if self._keys:
            await asyncio.wait(self._keys)
        self._output.close()
        self._reports.close()
        if self._tty >= 0:
            os.close(self._tty)
            self._tty = -1
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _abandon(self, window: Pane) -> None:
        """Close the window without waiting for the end of bash any longer."""
        if self._end is not None:
            self._end.cancel()
            self._has_ended = True
            self._finish(_KILLED)
        await self._tmux.kill(window)

    async def _open(self, bash: str) -> Pane:
        """Open the window, by the launcher that hides directory and environment from tmux."""
        rc = self._folder / "rc"  # only this user can enter the folder
        rc.write_text(_RC.format(folder=shlex.quote(str(self._folder))))
        environment = {
            name: value
            for name, value in clean_environment().items()
            if not name.startswith("TMUX")
        }
        argv = [bash, "--noprofile", "--rcfile", str(rc), "-i"]
        program = self._folder / "program"
        program.write_bytes(launch_file(argv, environment | {"PWD": self._cwd}, self._cwd))
        return await self._tmux.open(self._name, launch_command(program))

    # Commands

    def _script(self, command: str, cwd: str | None) -> str:
        """Return the lines that run `command` exactly as typed and report its end.

        The command is in a file of its own, so that an unclosed quote is an error of that command,
        and `return` ends only that. The first subshell sets `$?` to the exit code of the previous
        command.

        Users may define functions and aliases with the names of builtins. `command` skips
        functions, a backslash skips aliases, and a function named `command` is removed before the
        next command. Job control is off meanwhile: with it, a program that `setsid` starts in the
        background would lose its parent, and outlive the terminal. The report has to be sent
        whatever was defined: in its subshell the assignment to POSIXLY_CORRECT switches bash to
        POSIX mode, where no function can replace the special builtin `unset`.
        """
        line = self._folder / "line"
        line.write_text(command + "\n", "utf-8", "surrogatepass")
        folder = shlex.quote(str(self._folder))
        lines = [
            "\\unset -f command || :",
            "\\command set +m",
            f"\\command history -s -- {shlex.quote(command)} || :",
        ]
        if cwd is not None:
            lines.append(f"CDPATH= \\command cd -- {shlex.quote(cwd)} || :")
        lines.append(
            f"(\\command exit {self._last_exit}); "
            f"\\command . {folder}/line </dev/null >&8 2>&8 8>&- 9>&-; "
            "(POSIXLY_CORRECT=$?; \\unset -f command; \\command printf "
            f'"%s %s %s\\0" {self._commands} "$POSIXLY_CORRECT" "${{PWD-}}" >&9)'
        )
        lines.append("\\command set -m")
        text = "\n".join(lines)
        return f"{{\n{text}\n}} 8>{folder}/output 9>{folder}/reports\n"

    def _write(self, script: str) -> None:
        """Have bash run `script`, as soon as it is at its prompt."""
        # bash may look for it at any time: a key that was pressed once too often is still read.
        new = self._folder / "new"
        new.write_text(script, "utf-8", "surrogatepass")
        new.replace(self._folder / "command")
        self._start_key(self._press_until_taken())

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
        self._output.drain()
        self._last_exit = exit_code
        if self._running is not None and not self._running.done():
            self._running.set_result(exit_code)
        if self._commands and not self._has_ended:
            self._start_key(self._press(_REDRAW_KEY))

    async def _watch(self, window: Pane) -> None:
        """Wait for the end of bash, then close the window."""
        assert self._group is not None
        while self._group.runs:  # noqa: ASYNC110  # it is no child of ours: nothing signals its end
            await asyncio.sleep(_POLL_SECONDS)
        # The shell may have reported the end of a command right before it ended: that exit code
        # counts, so the reports are read before the shell's own exit code is taken for it.
        self._reports.drain()
        self._output.drain()
        try:
            code = (await self._tmux.snapshot(window)).exit_status
        except TmuxError:
            code = None
        self._has_ended = True
        self._finish(_KILLED if code in (None, -1) else code or 0)
        await self._tmux.kill(window)

    # The tty

    def _copy_output(self, data: bytes) -> None:
        self._capture.add(data)
        self._show(data)

    def _show(self, data: bytes) -> None:
        """Print on the tty; what it does not take at once is left out there."""
        if self._tty >= 0:
            with contextlib.suppress(OSError):
                os.write(self._tty, data.replace(b"\n", b"\r\n"))

    def _start_key(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="key of a terminal")
        self._keys.add(task)
        task.add_done_callback(self._keys.discard)

    async def _press_until_taken(self) -> None:
        """Press the key that runs the command, until bash has taken it or has ended."""
        command = self._folder / "command"
        pause = _FIRST_PAUSE
        while not self._has_ended and command.exists():
            await self._press(_RUN_KEY)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _press(self, key: str) -> None:
        """Press a key, if the shell itself reads keys from the tty."""
        if self.window is not None and self._reads_keys(self.window.pid):
            with contextlib.suppress(TmuxError):
                codes = [f"{byte:02x}" for byte in key.encode()]
                await self._tmux.run("send-keys", "-t", self.window.id, "-H", *codes)

    def _reads_keys(self, pid: int) -> bool:
        """Return whether the shell is at its prompt.

        Only there bash takes the tty out of its line mode. Right before that, when a program has
        ended, bash is in the foreground already, and the tty would show the key as text.
        """
        if not _is_in_foreground(pid):
            return False
        try:
            return not termios.tcgetattr(self._tty)[3] & termios.ICANON
        except (termios.error, ValueError):  # closed: what is pressed goes nowhere
            return True


async def close_left_windows(tmux: Tmux) -> None:
    """Close windows of named terminals that a killed machine agent has left behind."""
    with contextlib.suppress(TmuxError):
        for pane in await tmux.panes():
            if pane.name.startswith(WINDOW_PREFIX):
                await ProcessGroup.of(pane.pid).kill()
                await tmux.kill(pane)


def _find_bash() -> str:
    bash = shutil.which("bash")
    if bash is None:
        raise conflict("This machine has no bash, which named terminals need")
    return bash


def _is_in_foreground(pid: int) -> bool:
    """Return whether a shell itself reads its tty, and no program that it runs.

    Where the system does not say, it is taken to be so.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return int(fields[5]) == int(fields[2])
