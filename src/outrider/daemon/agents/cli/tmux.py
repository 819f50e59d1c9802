"""The private tmux server, over one control-mode client (`tmux -C`) for all agents.

Commands go down one pipe and their replies come back up it in order, so nothing is
forked for a keystroke or a look at a screen. Output of an agent comes as a notification;
its bytes are not read here, only the fact: the screen is asked for when somebody looks.
"""

import asyncio
import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from outrider.contract.errors import OutriderError

WIDTH: Final = 120
HEIGHT: Final = 50

_SESSION: Final = "outrider"
_LOBBY: Final = ("sh", "-c", "echo The agents are in the other windows.; exec cat")
_REPLY_TIMEOUT: Final = 10.0
_CONNECT_TIMEOUT: Final = 10.0
_REOPEN_PAUSES: Final = (0.1, 0.4)
_REAP_LOOKS: Final = 3
_REAP_PAUSE: Final = 0.1
_CODE: Final = (
    "#{?pane_dead_status,#{pane_dead_status},#{?pane_dead_signal,signal #{pane_dead_signal},-}}"
)
_MAX_LINE: Final = 4 * 1024 * 1024
_CONF: Final = Path(__file__).with_name("tmux.conf")
_STATE: Final = (
    "#{window_name} #{pane_dead} #{?pane_dead_status,#{pane_dead_status},-} #{pane_title}"
)

_log = structlog.get_logger(__name__)


class TmuxError(OutriderError):
    """Tmux refused a command, or did not answer it in time."""


class TmuxGone(TmuxError):
    """There is no tmux server, or it ended before it answered."""


class WindowGone(TmuxError):
    """The server runs, but has the window no more."""


@dataclass(frozen=True)
class Pane:
    """A window that an agent runs in: its name, tmux's id of its pane, the agent's process."""

    name: str
    id: str
    pid: int


@dataclass(frozen=True)
class Snapshot:
    """What a pane shows. `exit_status` is None while its program runs, -1 after a signal."""

    text: str
    title: str
    exit_status: int | None

    @property
    def ended(self) -> bool:
        """Whether the program in the pane has ended."""
        return self.exit_status is not None


class _Reply:
    """A command's answer on its way."""

    def __init__(self, future: asyncio.Future[list[str]]) -> None:
        self.future = future
        self.lines: list[str] = []


class Tmux:
    """The tmux server `socket`, started when the first window is opened.

    One owner makes it, shares it between all providers, and closes it.
    """

    def __init__(self, socket: str = "outrider") -> None:
        self.socket = socket
        self._watchers: dict[str, Callable[[], None]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._pending: deque[_Reply] = deque()
        self._connecting = asyncio.Lock()
        self._windows = asyncio.Lock()
        self._closed = False

    # Windows

    async def open(self, name: str, argv: Sequence[str], cwd: str) -> Pane:
        """Start `argv` in a new window and return its pane.

        Nothing of tmux's own environment is meant for the program: see `launcher.py`.

        Raises:
            TmuxError: tmux is not installed, or refused.
        """
        async with self._windows:
            for pause in _REOPEN_PAUSES:
                try:
                    return await self._open(name, argv, cwd)
                except TmuxGone:  # that was a server on its way out: the next one is ours
                    await asyncio.sleep(pause)
            return await self._open(name, argv, cwd)

    async def _open(self, name: str, argv: Sequence[str], cwd: str) -> Pane:
        await self._connect(create=True)
        (line,) = await self.run(
            "new-window", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-n", name,
            "-c", cwd, "-t", f"={_SESSION}:", *argv,
        )  # fmt: skip
        pane_id, pid = line.split()
        # From here on the window keeps its size, whoever attaches. (As a global option,
        # `window-size manual` makes tmux 3.3a crash when a window is opened.)
        await self.run("resize-window", "-t", pane_id, "-x", str(WIDTH), "-y", str(HEIGHT))
        return Pane(name, pane_id, int(pid))

    async def find(self, name: str) -> Pane | None:
        """Return the pane of the window called `name`, None where there is none."""
        try:
            lines = await self.run(
                "list-panes", "-s", "-t", f"={_SESSION}:", "-F",
                "#{window_name} #{pane_id} #{pane_pid}",
            )  # fmt: skip
        except TmuxError:
            return None
        for line in lines:
            window, pane_id, pid = line.split(" ")
            if window == name:
                return Pane(name, pane_id, int(pid))
        return None

    async def kill(self, pane: Pane) -> None:
        """Close a window. With the last one the server ends as well. Harmless if it is gone."""
        async with self._windows:
            with contextlib.suppress(TmuxError):
                await self.run("kill-pane", "-t", pane.id)
            with contextlib.suppress(TmuxError):
                left = await self.run("list-windows", "-t", f"={_SESSION}:", "-F", "#{window_name}")
                if left == [_SESSION]:
                    await self.run("kill-session", "-t", f"={_SESSION}")

    def watch(self, pane: Pane, signal: Callable[[], None]) -> None:
        """Call `signal` whenever something may have changed in `pane`, or to the server."""
        self._watchers[pane.id] = signal

    def unwatch(self, pane: Pane) -> None:
        """Call nobody about `pane` any more."""
        self._watchers.pop(pane.id, None)

    # What is in a window

    async def snapshot(self, pane: Pane) -> Snapshot:
        """Return what `pane` shows now.

        Raises:
            TmuxGone: the server has ended.
            WindowGone: the window was closed.
            TmuxError: tmux did not answer in time.
        """
        state, lines = await self._run_all(
            ("display-message", "-p", "-t", pane.id, _STATE),
            ("capture-pane", "-p", "-t", pane.id),
        )
        window, dead, code, title = (*state, "")[0].split(" ", 3)
        if window != pane.name:  # a new server counts its panes from the beginning again
            raise WindowGone(f"The window {pane.name} is gone")
        if dead != "1":
            return Snapshot("\n".join(lines), title, None)
        for _ in range(_REAP_LOOKS):  # tmux may see the terminal's end before the process's
            if code != "-":
                break
            await asyncio.sleep(_REAP_PAUSE)
            (code,) = await self.run("display-message", "-p", "-t", pane.id, _CODE)
        # Its note that the pane is dead has moved the screen up by a line.
        lines = await self.run("capture-pane", "-p", "-S", "-1", "-t", pane.id)
        return Snapshot("\n".join(lines), title, int(code) if code.isdigit() else -1)

    async def press(self, pane: Pane, keys: Sequence[str]) -> None:
        """Press keys, by tmux's names for them; a single character is that character."""
        for key in keys:
            literal = ["-l"] if len(key) == 1 else []
            await self.run("send-keys", "-t", pane.id, *literal, "--", key)

    async def paste(self, pane: Pane, text: str) -> None:
        """Put `text` into the pane as a paste (bracketed, where the program asks for that)."""
        file, path = tempfile.mkstemp(prefix="outrider-")
        try:
            with os.fdopen(file, "w", encoding="utf-8", errors="surrogatepass") as stream:
                stream.write(text)
            buffer = f"outrider{pane.id.lstrip('%')}"
            await self.run("load-buffer", "-b", buffer, path)
            await self.run("paste-buffer", "-p", "-d", "-b", buffer, "-t", pane.id)
        finally:
            os.unlink(path)  # noqa: PTH108  # a local call

    # The client

    async def run(self, *command: str) -> list[str]:
        """Run one tmux command and return the lines of its reply.

        Raises:
            TmuxGone: there is no server, or it ended meanwhile.
            TmuxError: tmux refused the command.
        """
        (lines,) = await self._run_all(command)
        return lines

    async def close(self) -> None:
        """Let go of the server; agents go on in it. A server without agents is ended."""
        self._closed = True
        self._watchers.clear()
        if self._reviving is not None:
            self._reviving.cancel()
            await asyncio.wait({self._reviving})
        process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # a control client ends with its input
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.wait({reading}, timeout=5)

    async def _run_all(self, *commands: Sequence[str]) -> list[list[str]]:
        await self._connect(create=False)
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise TmuxGone("The tmux server has ended")
        loop = asyncio.get_running_loop()
        replies = [_Reply(loop.create_future()) for _ in commands]
        self._pending.extend(replies)
        lines = "".join(" ".join(map(_quote, command)) + "\n" for command in commands)
        process.stdin.write(lines.encode("utf-8", "surrogatepass"))
        waiting = asyncio.gather(*(reply.future for reply in replies), return_exceptions=True)
        try:
            results = await asyncio.wait_for(waiting, _REPLY_TIMEOUT)
        except TimeoutError:
            raise TmuxError("tmux did not answer in time") from None
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, list)]

    async def _connect(self, *, create: bool) -> None:
        async with self._connecting:
            if self._closed:
                raise TmuxGone("The connection to tmux is closed")
            if self._process is not None and self._process.returncode is None and self._reading:
                return
            verb = (
                ["new-session", "-A", "-s", _SESSION, "-n", _SESSION,
                 "-x", str(WIDTH), "-y", str(HEIGHT), *_LOBBY]
                if create
                else ["attach-session", "-t", f"={_SESSION}"]
            )  # fmt: skip
            loop = asyncio.get_running_loop()
            hello = _Reply(loop.create_future())
            try:
                process = await asyncio.create_subprocess_exec(
                    "tmux", "-u", "-L", self.socket, "-f", str(_CONF), "-C", *verb,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=_client_environment(os.environ),
                    limit=_MAX_LINE,
                    start_new_session=True,  # a Ctrl-C in the daemon's terminal is not tmux's
                )  # fmt: skip
            except FileNotFoundError:
                raise TmuxError(
                    "tmux is not installed on this machine: install it (apt install tmux)"
                ) from None
            self._process = process
            self._pending = deque([hello])
            self._reading = asyncio.create_task(self._read(process), name="tmux client")
            try:
                await asyncio.wait_for(asyncio.shield(hello.future), _CONNECT_TIMEOUT)
            except TimeoutError:
                process.kill()
                raise TmuxError("tmux did not start in time") from None
        await self._run_all(
            ("refresh-client", "-C", f"{WIDTH}x{HEIGHT}"),
            ("refresh-client", "-B", "ended:%*:#{pane_dead}"),
        )

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Sort what the client says into replies and signals, until it ends."""
        assert process.stdout is not None
        guard: str | None = None  # the end of the reply that is being read
        reply: _Reply | None = None
        lines = process.stdout
        while raw := await lines.readline():
            line = raw[:-1].decode("utf-8", "replace")
            if guard is not None:
                kind, _, rest = line.partition(" ")
                if rest == guard and kind in {"%end", "%error"}:
                    guard = None
                    if reply is not None:
                        _settle(reply, failed=kind == "%error")
                elif reply is not None:
                    reply.lines.append(line)
            elif line.startswith("%output "):
                self._signal(line.split(" ", 2)[1])
            elif line.startswith("%begin "):
                guard = line.partition(" ")[2]
                reply = self._pending.popleft() if self._pending else None
            elif line.startswith("%subscription-changed "):
                self._signal(line.split(" ")[5])
            elif line.startswith(("%window-close", "%unlinked-window-close")):
                self._signal_all()
        await process.wait()
        for lost in self._pending:
            if not lost.future.done():
                lost.future.set_exception(TmuxGone("The tmux server has ended"))
                lost.future.exception()  # seen here, whoever has stopped waiting for it
        self._pending.clear()
        self._reading = None
        if not self._closed and self._watchers:
            self._reviving = asyncio.create_task(self._revive(), name="tmux reconnect")

    async def _revive(self) -> None:
        """The client has ended: connect again where the server still runs; tell everybody."""
        try:
            await self._connect(create=False)
            _log.info("connected to tmux again", socket=self.socket)
        except TmuxError:
            _log.warning("the tmux server has ended", socket=self.socket)
        self._signal_all()

    def _signal(self, pane_id: str) -> None:
        signal = self._watchers.get(pane_id)
        if signal is not None:
            signal()

    def _signal_all(self) -> None:
        for signal in list(self._watchers.values()):
            signal()


def _settle(reply: _Reply, *, failed: bool) -> None:
    if reply.future.done():
        return
    if failed:
        text = " ".join(reply.lines) or "tmux refused the command"
        kind = WindowGone if text.startswith("can't find") else TmuxError
        reply.future.set_exception(kind(text))
        reply.future.exception()  # seen, even where nobody waits for it any more
    else:
        reply.future.set_result(reply.lines)


def _quote(argument: str) -> str:
    """Return `argument` as one word of a tmux command line."""
    if "\n" in argument or "\r" in argument:
        raise TmuxError("A word of a tmux command cannot hold a line break")
    return "'" + argument.replace("'", "'\\''") + "'"


def _client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the little that tmux itself needs: what it has, every window could see."""
    kept = ("PATH", "HOME", "USER", "LOGNAME", "TMUX_TMPDIR", "TMPDIR")
    chosen = {name: environment[name] for name in kept if name in environment}
    return {"SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "xterm-256color", **chosen}
