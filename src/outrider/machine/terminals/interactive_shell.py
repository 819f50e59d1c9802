r"""An interactive bash in a tmux window that also runs the commands of `POST …/terminal`.

A named terminal begins as a shell without a tty (`terminal.Shell`). When a person opens it, it is
replaced by this one, which takes over directory, variables, functions, aliases and history; what
the older shell has started runs on. From then on people and the API use the same bash:

    people ── tmux client ──▶ tty ──▶ bash ──▶ tty ──▶ tmux clients
    API ── file `command`, and a key ──▶ bash runs it ──▶ FIFO ──▶ reply, and tty

The key is bound to a command of bash, which leaves alone what is half typed. It is pressed only
while the shell itself reads the tty, and again until bash has taken the file away. So a command of
the API does not go to a program that a person is using: it waits until that has ended, and the
caller gets a 504 if that takes too long. (A signal with a trap would need no key, but at its prompt
bash 5.2 runs a trap only after the next Enter.)

The output and the exit code of a command are as exact as before, because the command does not write
to the tty: what it prints is copied there for the people who watch.

It is not the shell from the beginning, because a shell fed by pipes needs no tmux, starts faster,
and is what programs that never show it to a person rely on.
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
from outrider.machine.terminals.terminal import Outcome, OutputCapture, Shell
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
__outrider_term=$TERM
if [ -r {folder}/state ]; then . {folder}/state; history -r {folder}/history; fi 2>/dev/null
TERM=$__outrider_term; unset __outrider_term HISTFILE
__outrider_next() {{
  \unset -f command
  \command -p mv {folder}/command {folder}/taken 2>/dev/null && \command -p cat {folder}/taken
}}
PS1=${{PS1:-\\w\\$ }}
bind -x '"\e[1;99u": eval "$(__outrider_next)"'
bind '"\e[1;98u": redraw-current-line'
printf '0 0 %s\0' "$PWD" >{folder}/reports
"""
_SAVE: Final = (
    "{{ declare -p; declare -f; alias -p; umask -p; }} >{folder}/state 2>/dev/null; "
    "history -d -1; history -w {folder}/history"
)


class InteractiveShell(Shell):
    """A bash in the window of a named terminal. Create it with `start_interactive_shell`.

    Args:
        folder: its files, which only this user can read; removed with it.
        kill_seconds: seconds that it has to end after it was killed.
    """

    def __init__(
        self,
        tmux: Tmux,
        name: str,
        folder: Path,
        cwd: str,
        capture: OutputCapture,
        *,
        kill_seconds: float = _KILL_SECONDS,
    ) -> None:
        super().__init__(
            cwd,
            capture,
            output=PipeReader(self._copy_output, folder / "output"),
            reports_path=folder / "reports",
        )
        self._tmux = tmux
        self._name = WINDOW_PREFIX + name
        self._folder = folder
        self._kill_seconds = kill_seconds
        self._tty = -1
        self._has_ended = False
        self._group: ProcessGroup | None = None
        self._keys: set[asyncio.Task[None]] = set()

    @property
    def ended(self) -> bool:
        """Whether the shell has ended: the next command needs a new one."""
        return self._has_ended

    async def start(self) -> None:
        """Start bash in a new window, and wait for its first prompt.

        Raises:
            ApiError: 500, it did not start.
        """
        rc = self._folder / "rc"
        rc.write_text(_RC.format(folder=shlex.quote(str(self._folder))))
        self._running = asyncio.get_running_loop().create_future()
        try:
            left = await self._tmux.find(self._name)
            if left is not None:  # from a machine agent that was killed
                await self._tmux.kill(left)
            self.window = await self._open(rc)
            (tty,) = await self._tmux.run(
                "display-message", "-p", "-t", self.window.id, "#{pane_tty}"
            )
            self._tty = os.open(tty, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            self._group = ProcessGroup.of(self.window.pid)
            self._end = asyncio.create_task(self._watch(self.window), name="interactive shell")
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.shield(self._running)
        except (TmuxError, OSError) as error:  # a TimeoutError is an OSError
            await self.close()
            raise ApiError(500, f"The terminal did not start: {error or 'no prompt'}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill the shell and everything that runs in it."""
        if self._group is not None:
            await self._group.kill()
        if self._end is not None:
            await asyncio.wait({self._end}, timeout=self._kill_seconds)
        if self.window is not None and (self._end is None or not self._end.done()):
            await self._abandon(self.window)
        for task in self._keys:
            task.cancel()
        if self._keys:
            await asyncio.wait(self._keys)
        self._close_pipes()
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

    async def _open(self, rc: Path) -> Pane:
        """Open the window, by the launcher that hides directory and environment from tmux."""
        environment = {
            name: value
            for name, value in clean_environment().items()
            if not name.startswith("TMUX")
        }
        bash = shutil.which("bash") or "bash"
        argv = [bash, "--noprofile", "--rcfile", str(rc), "-i"]
        program = self._folder / "program"  # only this user can enter the folder
        program.write_bytes(launch_file(argv, environment | {"PWD": self._cwd}, self._cwd))
        return await self._tmux.open(self._name, launch_command(program))

    def _evaluation(self, command: str) -> str:
        """Return how bash runs `command`: from a file, so that `return` ends only the command."""
        line = self._folder / "line"
        line.write_text(command + "\n", "utf-8", "surrogatepass")
        return f"\\command . {shlex.quote(str(line))}"

    def _write(self, text: str) -> None:
        """Have bash run `text`, as soon as it is at its prompt."""
        folder = shlex.quote(str(self._folder))
        script = f"{{\n{text}}} 8>{folder}/output 9>{folder}/reports\n"
        # bash may look for it at any time: a key that was pressed once too often is still read.
        new = self._folder / "new"
        new.write_text(script, "utf-8", "surrogatepass")
        new.replace(self._folder / "command")
        self._start_key(self._press_until_taken())

    async def run(self, command: str, cwd: str | None) -> Outcome:
        """Run a command as `Shell.run` does, and show it to the people who watch."""
        self._show(b"\r\n[API] " + command.encode("utf-8", "replace") + b"\n")
        return await super().run(command, cwd)

    def _finish(self, exit_code: int) -> None:
        self._output.drain()
        super()._finish(exit_code)
        if self._commands and not self._has_ended:
            self._start_key(self._press(_REDRAW_KEY))

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

    async def _watch(self, window: Pane) -> None:
        """Wait for the end of bash, then close the window."""
        assert self._group is not None
        while self._group.runs:  # noqa: ASYNC110  # it is no child of ours: nothing signals its end
            await asyncio.sleep(_POLL_SECONDS)
        self._reports.drain()
        self._output.drain()
        try:
            code = (await self._tmux.snapshot(window)).exit_status
        except TmuxError:
            code = None
        self._has_ended = True
        self._finish(_KILLED if code in (None, -1) else code or 0)
        await self._tmux.kill(window)


async def start_interactive_shell(
    tmux: Tmux, name: str, capture: OutputCapture, former: Shell | None
) -> InteractiveShell:
    """Return a running interactive shell that continues where `former` is, if there is one.

    `former` must be idle; it is left running.

    Raises:
        ApiError: 409, the machine has no bash; 500, it did not start.
    """
    if shutil.which("bash") is None:
        raise conflict("This machine has no bash, which a terminal that people open needs")
    folder = private_folder()
    cwd = str(Path.home())
    try:
        if former is not None:
            saved = await former.run(_SAVE.format(folder=shlex.quote(str(folder))), None)
            capture.add(saved.output.encode())  # of a command whose caller had timed out
            cwd = saved.cwd
        shell = InteractiveShell(tmux, name, folder, cwd, capture)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    await shell.start()
    return shell


async def close_left_windows(tmux: Tmux) -> None:
    """Close windows of named terminals that a killed machine agent has left behind."""
    with contextlib.suppress(TmuxError):
        for pane in await tmux.panes():
            if pane.name.startswith(WINDOW_PREFIX):
                await ProcessGroup.of(pane.pid).kill()
                await tmux.kill(pane)


def _is_in_foreground(pid: int) -> bool:
    """Return whether a shell itself reads its tty, and no program that it runs.

    Where the system does not say, it is taken to be so.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    return int(fields[5]) == int(fields[2])
