"""One control-mode client (`tmux -C`) for all agents of the private tmux server.

Commands go down one pipe and their replies come back up it in order, so nothing is
forked for a keystroke or a look at a screen. Output of an agent comes as a notification;
its bytes are not read here, only the fact: the screen is asked for when somebody looks.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Final

import structlog

from outrider.contract.errors import OutriderError
from outrider.daemon.child import Child, start

WIDTH: Final = 120
HEIGHT: Final = 50
SESSION: Final = "outrider"
"""The name of the tmux session that has every agent's window."""

_LOBBY: Final = ("sh", "-c", "echo The agents are in the other windows.; exec cat")
_REPLY_TIMEOUT: Final = 10.0
_CONNECT_TIMEOUT: Final = 10.0
_MAX_LINE: Final = 4 * 1024 * 1024
_CONF: Final = Path(__file__).with_name("tmux.conf")

_log = structlog.get_logger(__name__)


class TmuxError(OutriderError):
    """Tmux refused a command, or did not answer it in time."""


class TmuxGone(TmuxError):
    """There is no tmux server, or it ended before it answered."""


class WindowGone(TmuxError):
    """The server runs, but has the window no more."""


class _Reply:
    """A command's answer on its way."""

    def __init__(self, future: asyncio.Future[list[str]]) -> None:
        self.future = future
        self.lines: list[str] = []


class ControlClient:
    """The client of the tmux server `socket`, connected when it is first needed.

    Args:
        changed: told the id of a pane in which something may have changed, None for all of them.
        wanted: tells whether anybody waits for such changes: then a client that has ended is
            replaced.
    """

    def __init__(
        self, socket: str, changed: Callable[[str | None], None], wanted: Callable[[], bool]
    ) -> None:
        self._socket = socket
        self._changed = changed
        self._wanted = wanted
        self._process: Child | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._pending: deque[_Reply] = deque()
        self._connecting = asyncio.Lock()
        self._closed = False

    async def connect(self, *, create: bool) -> None:
        """Connect where that has not been done; with `create`, to a new server if need be.

        Raises:
            TmuxGone: there is no server.
            TmuxError: tmux is not installed, or does not answer.
        """
        async with self._connecting:
            if self._closed:
                raise TmuxGone("The connection to tmux is closed")
            if self._process is not None and self._process.returncode is None and self._reading:
                return
            verb = (
                ["new-session", "-A", "-s", SESSION, "-n", SESSION,
                 "-x", str(WIDTH), "-y", str(HEIGHT), *_LOBBY]
                if create
                else ["attach-session", "-t", f"={SESSION}"]
            )  # fmt: skip
            loop = asyncio.get_running_loop()
            hello = _Reply(loop.create_future())
            try:
                process = await start(
                    ["tmux", "-u", "-L", self._socket, "-f", str(_CONF), "-C", *verb],
                    stdin=PIPE,
                    stdout=PIPE,
                    env=_client_environment(os.environ),
                    limit=_MAX_LINE,
                )
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
        await self.run(
            ("refresh-client", "-C", f"{WIDTH}x{HEIGHT}"),
            ("refresh-client", "-B", "ended:%*:#{pane_dead}"),
        )

    async def run(self, *commands: Sequence[str]) -> list[list[str]]:
        """Run tmux commands, one after the other, and return the lines of each one's reply.

        Raises:
            TmuxGone: there is no server, or it ended meanwhile.
            TmuxError: tmux refused a command, or did not answer in time.
        """
        await self.connect(create=False)
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise TmuxGone("The tmux server has ended")
        loop = asyncio.get_running_loop()
        replies = [_Reply(loop.create_future()) for _ in commands]
        self._pending.extend(replies)
        lines = "".join(" ".join(map(_quote, command)) + "\n" for command in commands)
        process.stdin.write(lines.encode("utf-8", "surrogatepass"))
        _, late = await asyncio.wait([reply.future for reply in replies], timeout=_REPLY_TIMEOUT)
        if late:
            raise TmuxError("tmux did not answer in time")
        return [reply.future.result() for reply in replies]

    async def close(self) -> None:
        """Let go of the server; agents go on in it. A server without agents is ended."""
        self._closed = True
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

    async def _read(self, process: Child) -> None:
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
                self._changed(line.split(" ", 2)[1])
            elif line.startswith("%begin "):
                guard = line.partition(" ")[2]
                reply = self._pending.popleft() if self._pending else None
            elif line.startswith("%subscription-changed "):
                self._changed(line.split(" ")[5])
            elif line.startswith(("%window-close", "%unlinked-window-close")):
                self._changed(None)
        await process.wait()
        process.close()
        for lost in self._pending:
            if not lost.future.done():
                lost.future.set_exception(TmuxGone("The tmux server has ended"))
                lost.future.exception()  # seen here, whoever has stopped waiting for it
        self._pending.clear()
        self._reading = None
        if not self._closed and self._wanted():
            self._reviving = asyncio.create_task(self._revive(), name="tmux reconnect")

    async def _revive(self) -> None:
        """The client has ended: connect again where the server still runs; tell everybody."""
        try:
            await self.connect(create=False)
            _log.info("connected to tmux again", socket=self._socket)
        except TmuxError:
            _log.warning("the tmux server has ended", socket=self._socket)
        self._changed(None)


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
