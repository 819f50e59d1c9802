"""The private tmux server: one window per agent; open, find, read, type into, close windows."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from outrider.contract.commands import Cursor, Screen
from outrider.machine.agents.pane import Pane
from outrider.machine.system.child import Child, start
from outrider.machine.tmux.control import (
    HEIGHT,
    SESSION,
    WIDTH,
    ControlClient,
    TmuxError,
    TmuxGone,
    WindowGone,
    client_environment,
)

HISTORY: Final = 2000
"""Lines above its screen that a window keeps by default."""

MAX_TITLE: Final = 1000
"""Characters of a terminal's title; a program may set one of a megabyte."""

_FEATURES: Final = "256,RGB,bpaste,ccolour,cstyle,focus,mouse,overline,strikethrough,title,usstyle"
"""What a viewer's terminal can do; xterm.js can do all of it."""

_ESCAPE_TIME: Final = "50"
"""Milliseconds after which an escape character that a viewer sent is a key of its own.

With 0, an escape sequence that arrives in two pieces would be taken apart.
"""

_FIRST_WINDOW: Final = ("sleep", "2")
_REOPEN_PAUSES: Final = (0.1, 0.4)
_REAP_ATTEMPTS: Final = 5
_REAP_PAUSE: Final = 0.1
# Without a condition on the status: in tmux's formats, `0` is false.
_EXIT_STATUS_FORMAT: Final = "#{pane_dead_status},#{pane_dead_signal}"
_STATE_FORMAT: Final = (
    "#{window_name} #{cursor_x},#{cursor_y} "
    f"#{{pane_dead}} {_EXIT_STATUS_FORMAT} #{{pane_title}}"
)

_SCREEN_FORMAT: Final = "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{window_name}"


def private_file(content: bytes) -> str:
    """Write a file that only this user may read, and return its path, for use in a tmux command."""
    file, path = tempfile.mkstemp(prefix="outrider-", dir=_temporary_folder())
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
    return path


def private_folder() -> Path:
    """Create a folder that only this user can enter, whose path can be used in a tmux command."""
    return Path(tempfile.mkdtemp(prefix="outrider-", dir=_temporary_folder()))


def _temporary_folder() -> str:
    """Return a folder for paths in tmux commands.

    `load-buffer` expands formats in its path, and no command may have a control character.
    """
    folder = tempfile.gettempdir()
    is_literal = "#" not in folder and folder.isprintable()
    return folder if is_literal else "/tmp"  # noqa: S108  # what is made there is private


def socket_path(server: str) -> Path:
    """Return the path of the socket of the tmux server with this name (`tmux -L`)."""
    folder = os.environ.get("TMUX_TMPDIR") or "/tmp"  # noqa: S108  # as tmux does
    return Path(folder) / f"tmux-{os.getuid()}" / server


@dataclass(frozen=True)
class PaneSnapshot:
    """What a pane shows. `exit_status` is None while its program runs, -1 after a signal.

    One that differs only in where the `cursor` stands is the same.
    """

    text: str
    title: str
    exit_status: int | None
    cursor: str = field(default="", compare=False)

    @property
    def ended(self) -> bool:
        """Whether the program in the pane has ended."""
        return self.exit_status is not None


@dataclass(frozen=True)
class View:
    """A client that shows a window on a terminal; `number` distinguishes it from other viewers."""

    client: Child
    number: int


class Tmux:
    """The tmux server `socket`, started when the first window is opened.

    One owner makes it, shares it between all providers, and closes it.
    """

    def __init__(self, socket: str = "outrider") -> None:
        self.socket = socket
        self._subscribers: dict[str, Callable[[], None]] = {}
        self._client = ControlClient(socket, self._notify, lambda: bool(self._subscribers))
        self._windows = asyncio.Lock()
        self._views = 0

    # Windows

    async def open(self, name: str, argv: Sequence[str], history: int = HISTORY) -> Pane:
        """Start `argv` in a new window and return its pane.

        `history` is how many lines above its screen the window keeps. tmux chooses directory and
        environment of the program; `launcher.py` puts the agent's in their place. The directory is
        not given to tmux: it would expand formats in it, and `#(…)` is a shell command.

        Raises:
            TmuxError: tmux is not installed, or refused.
        """
        async with self._windows:
            for pause in _REOPEN_PAUSES:
                try:
                    return await self._open(name, argv, history)
                except TmuxGone:  # that server was exiting: retry, which starts a new one
                    await asyncio.sleep(pause)
                except TmuxError:
                    await self._discard(name)
                    raise
                except asyncio.CancelledError:  # tmux may have got the command already
                    await asyncio.shield(self._discard(name))
                    raise
            return await self._open(name, argv, history)

    async def _open(self, name: str, argv: Sequence[str], history: int) -> Pane:
        await self._client.connect(create=True)
        # A window copies the session's limit once, when it is created.
        await self.run("set-option", "-t", f"={SESSION}:", "history-limit", str(history))
        (line,) = await self.run(
            "new-window", "-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-n", name,
            "-t", f"={SESSION}:", *argv,
        )  # fmt: skip
        pane_id, pid = line.split()
        # From here on the window keeps its size, whoever attaches. (As a global option,
        # `window-size manual` makes tmux 3.3a crash when a window is opened.)
        await self.run("resize-window", "-t", pane_id, "-x", str(WIDTH), "-y", str(HEIGHT))
        return Pane(name, pane_id, int(pid))

    async def _discard(self, name: str) -> None:
        """Close the window of an `open` that failed or was cancelled: it may have been opened."""
        with contextlib.suppress(TmuxError):
            pane = await self.find(name)
            if pane is not None:
                await self.run("kill-pane", "-t", pane.id)

    async def find(self, name: str) -> Pane | None:
        """Return the pane of the window called `name`, None if there is none.

        Raises:
            TmuxError: tmux did not answer, so that it may be there.
        """
        try:
            return next((pane for pane in await self.panes() if pane.name == name), None)
        except TmuxGone:
            return None

    async def server(self) -> str | None:
        """Return what identifies the running server, None if there is none."""
        try:
            lines = await self.run("display-message", "-p", "#{pid} #{start_time}")
        except TmuxError:
            return None
        return lines[0] if lines else None

    async def panes(self) -> list[Pane]:
        """Return the panes of all windows.

        Raises:
            TmuxError: there is no server, or it did not answer.
        """
        lines = await self.run(
            "list-panes", "-s", "-t", f"={SESSION}:", "-F",
            "#{pane_id} #{pane_pid} #{window_name}",
        )  # fmt: skip
        fields = [line.split(" ", 2) for line in lines]  # a person's window may have spaces
        return [Pane(window, pane_id, int(pid)) for pane_id, pid, window in fields]

    async def kill(self, pane: Pane) -> None:
        """Close a window. With the last one the server ends as well. Harmless if it is gone."""
        async with self._windows:
            with contextlib.suppress(TmuxError):
                await self.run("kill-pane", "-t", pane.id)
            with contextlib.suppress(TmuxError):
                left = await self.run("list-windows", "-t", f"={SESSION}:", "-F", "#{window_name}")
                if left == [SESSION]:
                    await self.run("kill-session", "-t", f"={SESSION}")

    def subscribe(self, pane: Pane, subscriber: Callable[[], None]) -> None:
        """Call `subscriber` whenever something may have changed in `pane`, or to the server."""
        self._subscribers[pane.id] = subscriber

    def unsubscribe(self, pane: Pane) -> None:
        """Undo `subscribe`."""
        self._subscribers.pop(pane.id, None)

    # Viewers

    async def start_viewer(self, pane: Pane, tty: int, *, read_only: bool) -> View:
        """Start a client that shows `pane` on the terminal `tty`, until the program in it ends.

        It has a tmux session of its own with this one window: in the session of the agents, tmux
        would show it another agent when this one ends. No key has a meaning for tmux. The window
        keeps its size; of a larger window, the part around the cursor is shown.

        Raises:
            TmuxError: the window is gone, or tmux is not installed.
        """
        size = await self.size(pane)
        self._views += 1
        view = f"view-{os.getpid()}-{self._views}"
        flags = ["-f", "read-only,ignore-size"] if read_only else []
        # An error in a hook would be shown to the next viewer: the session may have ended.
        is_there = f"#{{m:* {view} *,#{{S: #{{session_name}} }}}}"
        end = f"kill-session -t ={view}"
        try:
            # The first window is replaced by the one to show; if that is gone, it ends the client.
            client = await start(
                ["tmux", "-N", "-u", "-L", self.socket, "-T", _FEATURES,
                 "new-session", "-s", view, "-x", str(size[0]), "-y", str(size[1]), *flags,
                 *_FIRST_WINDOW,
                 ";", "set-option", "-w", "remain-on-exit", "off",
                 ";", "set-option", "destroy-unattached", "on",
                 ";", "set-option", "prefix", "None",
                 ";", "set-option", "prefix2", "None",
                 ";", "set-option", "key-table", "outrider-no-keys",
                 ";", "set-option", "-s", "escape-time", _ESCAPE_TIME,
                 ";", "link-window", "-k", "-s", pane.id, "-t", f"={view}:0",
                 ";", "set-hook", "-p", "-t", pane.id, f"pane-died[{self._views}]",
                 f"if-shell -F '{is_there}' '{end}'",
                 ";", "if-shell", "-F", "-t", pane.id, "#{pane_dead}", end],
                stdin=tty,
                stdout=tty,
                stderr=tty,
                env=client_environment(os.environ),
            )  # fmt: skip
        except FileNotFoundError:
            raise TmuxError("tmux is not installed on this machine") from None
        return View(client, self._views)

    async def end_viewer(self, pane: Pane, view: View) -> None:
        """End a viewer's client, and its tmux session with it."""
        view.client.kill()
        with contextlib.suppress(TmuxError):
            await self.run("set-hook", "-pu", "-t", pane.id, f"pane-died[{view.number}]")
        await view.client.wait()

    async def size(self, pane: Pane) -> tuple[int, int]:
        """Return the columns and rows of a window whose program runs.

        Raises:
            WindowGone: the window is closed, or its program has ended.
        """
        format_ = "#{window_width} #{window_height} #{pane_dead} #{window_name}"
        (line,) = await self.run("display-message", "-p", "-t", pane.id, format_)
        columns, rows, dead, name = line.split(" ", 3)
        if name != pane.name or dead == "1":
            raise WindowGone(f"What ran in the window {pane.name} has ended")
        return int(columns), int(rows)

    async def resize(self, pane: Pane, columns: int, rows: int) -> None:
        """Change the size of a window, and of the terminal that its program has."""
        await self.run("resize-window", "-t", pane.id, "-x", str(columns), "-y", str(rows))

    # What is in a window

    async def snapshot(self, pane: Pane) -> PaneSnapshot:
        """Return what `pane` shows now.

        Raises:
            TmuxGone: the server has ended.
            WindowGone: the window was closed.
            TmuxError: tmux did not answer in time.
        """
        state, lines = await self._client.run(
            ("display-message", "-p", "-t", pane.id, _STATE_FORMAT),
            ("capture-pane", "-p", "-t", pane.id),
        )
        window, *others = "".join(state).split(" ", 4)
        if window != pane.name:  # a new server counts its panes from the beginning again
            raise WindowGone(f"The window {pane.name} is gone")
        cursor, dead, end, title = others
        title = title[:MAX_TITLE]
        if dead != "1":
            return PaneSnapshot("\n".join(lines), title, None, cursor)
        # tmux may see that the terminal was closed before it has reaped the process.
        for _ in range(_REAP_ATTEMPTS):
            if end != ",":
                break
            self._client.reap_children()
            await asyncio.sleep(_REAP_PAUSE)
            (end,) = await self.run("display-message", "-p", "-t", pane.id, _EXIT_STATUS_FORMAT)
        # Its note that the pane is dead has moved the screen up by a line.
        lines = await self.run("capture-pane", "-p", "-S", "-1", "-t", pane.id)
        status = end.partition(",")[0]
        return PaneSnapshot("\n".join(lines), title, int(status) if status else -1)

    async def screen(self, pane: Pane) -> Screen:
        """Return what `pane` shows now, with its colors, size and cursor. Raises as `snapshot`."""
        state, text, ansi = await self._client.run(
            ("display-message", "-p", "-t", pane.id, _SCREEN_FORMAT),
            ("capture-pane", "-p", "-t", pane.id),
            ("capture-pane", "-p", "-e", "-t", pane.id),
        )
        columns, rows, x, y, window = "".join(state).split(" ", 4)
        if window != pane.name:
            raise WindowGone(f"The window {pane.name} is gone")
        return Screen(
            columns=int(columns),
            rows=int(rows),
            text="\n".join(text),
            ansi="\n".join(ansi),
            cursor=Cursor(x=int(x), y=int(y)),
        )

    async def history(self, pane: Pane) -> tuple[str, list[str]]:
        """Return what `pane` shows, as a snapshot has it, and every line that it still has.

        Of the latter, one that was wrapped at the edge is whole, and keeps its trailing spaces.
        Raises as `snapshot` does.
        """
        shown, lines = await self._client.run(
            ("capture-pane", "-p", "-t", pane.id),
            ("capture-pane", "-p", "-J", "-S", "-", "-t", pane.id),
        )
        return "\n".join(shown), lines

    async def press(self, pane: Pane, keys: Sequence[str]) -> None:
        """Press keys, by tmux's names for them; a single character is that character."""
        for key in keys:
            literal = ["-l"] if len(key) == 1 else []
            await self.run("send-keys", "-t", pane.id, *literal, "--", key)

    async def paste(self, pane: Pane, text: str) -> None:
        """Put `text` into the pane as a paste (bracketed, where the program asks for that)."""
        path = private_file(text.encode("utf-8", "surrogatepass"))
        try:
            buffer = f"outrider{pane.id.lstrip('%')}"
            await self.run("load-buffer", "-b", buffer, path)
            await self.run("paste-buffer", "-p", "-d", "-b", buffer, "-t", pane.id)
        finally:
            os.unlink(path)  # noqa: PTH108  # a local call

    # The server

    async def run(self, *command: str) -> list[str]:
        """Run one tmux command and return the lines of its reply.

        Raises:
            TmuxGone: there is no server, or it ended meanwhile.
            TmuxError: tmux refused the command.
        """
        (lines,) = await self._client.run(command)
        return lines

    async def close(self) -> None:
        """Disconnect; agents keep running. A server without agents is ended."""
        self._subscribers.clear()
        await self._client.close()

    def _notify(self, pane_id: str | None) -> None:
        subscribers = (
            self._subscribers.values() if pane_id is None else [self._subscribers.get(pane_id)]
        )
        for subscriber in list(subscribers):
            if subscriber is not None:
                subscriber()
