"""One control-mode client (`tmux -C`) for all agents of the private tmux server.

Commands are written to one pipe and their replies are read in order, so no process is started for
a keystroke or a snapshot. An agent's output arrives as a notification; its bytes are ignored here,
and the screen is requested when a snapshot is taken.

    tmux ─ lines ─▶ LineParser ─┬─ ReplyBegin, ReplyLine, ReplyEnd ─▶ the oldest command in flight
                                └─ PaneChanged ─────────────────────▶ notify

Replies do not name their command, so one reply too many or too few would give every later command
the reply of another one, and show every agent the screen of another one. Three rules keep client
and server in step:

- A command line holds no control character: a line break would make two commands of one.
- A reply counts only if tmux marks it as one to this client; hooks are reported as well.
- Each batch ends with a command that prints a number. If that number does not come back in its
  place, the client is killed and a new one is connected; the server and its agents keep running.
"""

import asyncio
import contextlib
import itertools
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Final

import structlog

from outrider.contract.errors import OutriderError
from outrider.machine.system.child import Child, start

WIDTH: Final = 120
HEIGHT: Final = 50
SESSION: Final = "outrider"
"""The name of the tmux session that has every agent's window."""

_PLACEHOLDER_COMMAND: Final = ("sh", "-c", "echo The agents are in the other windows.; exec cat")
_SETTINGS: Final = (
    ("refresh-client", "-C", f"{WIDTH}x{HEIGHT}"),
    ("refresh-client", "-B", "ended:%*:#{pane_dead}"),
)
"""The first commands to a new client: set its size, and report panes whose program has ended."""

_REPLY_TIMEOUT: Final = 10.0
_CONNECT_TIMEOUT: Final = 10.0
_MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of one line of tmux that are kept: a wrapped line of an agent may be much longer."""

_CHUNK: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_CONF: Final = Path(__file__).with_name("tmux.conf")

_log = structlog.get_logger(__name__)


class TmuxError(OutriderError):
    """Tmux refused a command, or did not answer it in time."""


class TmuxGone(TmuxError):
    """There is no tmux server, or it ended before it answered."""


class WindowGone(TmuxError):
    """The server runs, but the window is closed."""


class _Disconnected(TmuxError):
    """The client ended before the reply came; the server may still run."""


@dataclass
class _Reply:
    """The reply to a command that was sent. `expected` is its text, None if it is unknown.

    `is_first` marks the reply to the command that connected the client.
    """

    future: asyncio.Future[list[str]]
    expected: str | None = None
    is_first: bool = False
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Batch:
    """The replies to commands that were sent together, and `last`, that with the batch's number."""

    replies: list[_Reply]
    last: _Reply


@dataclass(frozen=True)
class ReplyBegin:
    """A reply begins. `mark` is tmux's time, number and flags of it, the same at its end."""

    mark: str

    @property
    def is_to_this_client(self) -> bool:
        """Whether it replies to a command from this client's input.

        The first reply, to the command that connected the client, and those to hooks do not.
        """
        return self.mark.endswith(" 1")


@dataclass(frozen=True)
class ReplyLine:
    """A line of the reply that has begun."""

    line: str


@dataclass(frozen=True)
class ReplyEnd:
    """The reply has ended; if the command `failed`, its lines are the reason."""

    failed: bool


@dataclass(frozen=True)
class PaneChanged:
    """A notification: what this pane shows may have changed, or that of any pane if None.

    `has_ended` says that the pane's terminal is closed, as it is when its program has ended.
    """

    pane: str | None
    has_ended: bool = False


class ProtocolError(Exception):
    """The client's output does not match the commands that were sent."""


class LineParser:
    """Parses the lines of a control client, free of I/O."""

    def __init__(self) -> None:
        self._mark: str | None = None  # of the reply that has begun

    def parse(self, line: str) -> ReplyBegin | ReplyLine | ReplyEnd | PaneChanged | None:
        """Return what the next line says; None if it is a notification of no interest.

        Raises:
            ProtocolError: it ends a reply that has not begun.
        """
        kind, _, rest = line.partition(" ")
        if self._mark is not None:
            if rest != self._mark or kind not in {"%end", "%error"}:
                return ReplyLine(line)  # perhaps one that looks like a notification
            self._mark = None
            return ReplyEnd(failed=kind == "%error")
        match kind:
            case "%output":
                return PaneChanged(rest.partition(" ")[0])
            case "%begin":
                self._mark = rest
                return ReplyBegin(rest)
            case "%end" | "%error":
                # A screen contained a line that looked like the end of the reply it was part of.
                raise ProtocolError(f"{line!r} ends no reply")
            case "%subscription-changed":
                _name, _session, _window, _index, pane, _colon, ended = rest.split(" ")
                return PaneChanged(pane, has_ended=ended == "1")
            case "%window-close" | "%unlinked-window-close":
                return PaneChanged(None)
        return None


class ControlClient:
    """The client of the tmux server `socket`, connected when it is first needed.

    Args:
        notify: called with the id of a pane that may have changed, None for all panes.
        has_subscribers: returns whether anybody needs these notifications; if so, a client that
            has ended is replaced.
    """

    def __init__(
        self, socket: str, notify: Callable[[str | None], None], has_subscribers: Callable[[], bool]
    ) -> None:
        self._socket = socket
        self._notify = notify
        self._has_subscribers = has_subscribers
        self._process: Child | None = None
        self._reader: asyncio.Task[None] | None = None
        self._reconnect_task: asyncio.Task[None] | None = None
        self._pending: deque[_Reply] = deque()
        self._batches = itertools.count()
        self._is_connected = False  # the latest client: it has replied, and has its settings
        self._connect_lock = asyncio.Lock()
        self._is_closed = False

    async def connect(self, *, create: bool) -> None:
        """Connect unless connected; with `create`, start a server if there is none.

        Raises:
            TmuxGone: there is no server.
            TmuxError: tmux is not installed, or does not answer.
        """
        async with self._connect_lock:
            if self._is_closed:
                raise TmuxGone("The connection to tmux is closed")
            if self._reader is not None:
                if self._is_connected and self._process and self._process.returncode is None:
                    return
                # The old client's reader must finish first: its last lines are replies to its own
                # commands, and `_pending` is about to be replaced.
                await asyncio.wait({self._reader}, timeout=_REPLY_TIMEOUT)
            settings = await self._start(create=create)
        await self._results(settings)

    async def _start(self, *, create: bool) -> _Batch:
        """Start a client and return its settings, sent but not answered; raises as `connect`."""
        # Without `-N`, attaching where no server runs starts one, to say "no sessions".
        arguments = (
            ["-C", "new-session", "-A", "-s", SESSION, "-n", SESSION,
             "-x", str(WIDTH), "-y", str(HEIGHT), *_PLACEHOLDER_COMMAND]
            if create
            else ["-N", "-C", "attach-session", "-t", f"={SESSION}"]
        )  # fmt: skip
        first_reply = _Reply(asyncio.get_running_loop().create_future(), is_first=True)
        try:
            process = await start(
                ["tmux", "-u", "-L", self._socket, "-f", str(_CONF), *arguments],
                stdin=PIPE,
                stdout=PIPE,
                env=client_environment(os.environ),
            )
        except FileNotFoundError:
            raise TmuxError(
                "tmux is not installed on this machine: install it (apt install tmux)"
            ) from None
        self._process = process
        self._pending = deque([first_reply])
        self._is_connected = False
        self._reader = asyncio.create_task(self._read(process, first_reply), name="tmux client")
        try:
            await asyncio.wait({first_reply.future}, timeout=_CONNECT_TIMEOUT)
            _check_connected(first_reply, create=create)
            settings = self._send(_SETTINGS)
        except BaseException:  # cancelled too: a client without its settings must not be used
            process.kill()
            raise
        self._is_connected = True
        return settings

    async def run(self, *commands: Sequence[str]) -> list[list[str]]:
        """Run tmux commands, one after the other, and return the lines of each one's reply.

        Raises:
            TmuxGone: there is no server, or it ended meanwhile.
            TmuxError: tmux refused a command, or did not answer in time.
        """
        await self.connect(create=False)
        return await self._results(self._send(commands))

    def _send(self, commands: Sequence[Sequence[str]]) -> _Batch:
        """Write commands to the client, and after them the one that prints the batch's number.

        Raises:
            TmuxGone: the client has ended.
            TmuxError: a command has a control character.
        """
        batch = f"outrider {next(self._batches)}"
        lines = "".join(map(_line, [*commands, ("display-message", "-p", batch)]))
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise TmuxGone("The tmux server has ended")
        loop = asyncio.get_running_loop()
        sent = _Batch(
            [_Reply(loop.create_future()) for _ in commands],
            last=_Reply(loop.create_future(), expected=batch),
        )
        self._pending.extend([*sent.replies, sent.last])
        process.stdin.write(lines.encode("utf-8", "surrogateescape"))
        return sent

    async def _results(self, batch: _Batch) -> list[list[str]]:
        """Wait for the replies and return the lines of each; raises as `run` does."""
        # The replies are valid only once the number after them has arrived. A caller that is
        # cancelled here leaves its replies in `_pending`, so later commands stay in step.
        _, unanswered = await asyncio.wait(
            [reply.future for reply in (*batch.replies, batch.last)], timeout=_REPLY_TIMEOUT
        )
        if unanswered:
            raise TmuxError("tmux did not answer in time")
        if isinstance(batch.last.future.exception(), _Disconnected):
            await self.connect(create=False)  # raises TmuxGone where the server has ended
            raise TmuxError("The connection to tmux was lost")
        return [reply.future.result() for reply in batch.replies]

    def reap_children(self) -> None:
        """Have tmux reap the children that have ended. Does not wait for it.

        tmux 3.3a misses the signal for a child that ends while it runs the helper of `utempter`,
        which it does whenever a terminal is closed. It reaps all of them when its next child ends;
        until then, it does not know the exit status, and does not run the hook `pane-died`, which
        ends the viewers of the window.
        """
        if not self._is_closed:
            with contextlib.suppress(TmuxGone):
                self._send([("run-shell", "-b", "true")])

    async def close(self) -> None:
        """Disconnect; agents keep running. A server without agents is ended."""
        self._is_closed = True
        if self._reconnect_task is not None:
            self._reconnect_task.cancel()
            await asyncio.wait({self._reconnect_task})
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # a control client ends with its input
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.wait({reader}, timeout=5)

    async def _read(self, process: Child, first_reply: _Reply) -> None:
        """Read the client's output until it ends or is out of step.

        A client that was connected is replaced; one that could not connect is not, or a server
        that has ended would be asked for without end.
        """
        assert process.stdout is not None
        try:
            await self._dispatch(_lines(process.stdout))
        except ProtocolError as error:
            _log.error("tmux client terminated", socket=self._socket, reason=str(error))
        finally:
            process.kill()
            await process.wait()
            process.close()
            for reply in self._pending:
                _fail(reply, _Disconnected("The connection to tmux was lost"))
            self._pending.clear()
            self._reader = None
        was_connected = first_reply.future.done() and first_reply.future.exception() is None
        if was_connected and not self._is_closed and self._has_subscribers():
            self._reconnect_task = asyncio.create_task(self._reconnect(), name="tmux reconnect")

    async def _dispatch(self, lines: AsyncIterator[str]) -> None:
        """Pass replies to the callers that wait for them, and notifications to `notify`.

        Raises:
            ProtocolError: a reply has no command, or is that of another one.
        """
        parser = LineParser()
        reply: _Reply | None = None  # the one that has begun, if somebody waits for it
        async for line in lines:
            match parser.parse(line):
                case ReplyBegin() as begin:
                    reply = self._pending_reply(begin)
                case ReplyLine(text) if reply is not None:
                    reply.lines.append(text)
                case ReplyEnd(failed) if reply is not None:
                    _resolve(reply, failed=failed)
                case PaneChanged(pane, has_ended):
                    if has_ended:
                        self.reap_children()
                    self._notify(pane)

    def _pending_reply(self, begin: ReplyBegin) -> _Reply | None:
        """Return the pending reply that begins; None for the reply to a hook.

        Raises:
            ProtocolError: this client has sent no command that it could reply to.
        """
        if self._pending and (begin.is_to_this_client or self._pending[0].is_first):
            return self._pending.popleft()
        if begin.is_to_this_client:
            raise ProtocolError(f"the reply {begin.mark!r} has no command")
        return None

    async def _reconnect(self) -> None:
        """Connect again if the server still runs, and notify all subscribers."""
        try:
            await self.connect(create=False)
            _log.info("tmux client reconnected", socket=self._socket)
        except TmuxError:
            _log.warning("tmux server ended", socket=self._socket)
        self._notify(None)


def _check_connected(first_reply: _Reply, *, create: bool) -> None:
    """Raise what `ControlClient.connect` raises, unless its first reply says it is connected."""
    if not first_reply.future.done():
        raise TmuxError("tmux did not start in time")
    refusal = first_reply.future.exception()
    if isinstance(refusal, _Disconnected):
        raise TmuxGone("There is no tmux server")
    if refusal is not None and not create:  # a server that is about to end, or another's
        raise TmuxGone(f"The tmux server has no session of Outrider: {refusal}")
    if refusal is not None:
        raise refusal


def _resolve(reply: _Reply, *, failed: bool) -> None:
    if reply.expected is not None and reply.lines != [reply.expected]:
        _fail(reply, _Disconnected("The connection to tmux was lost"))
        raise ProtocolError(f"another reply came where {reply.expected!r} was expected")
    if failed:
        text = " ".join(reply.lines)
        kind = WindowGone if text.startswith("can't find") else TmuxError
        _fail(reply, kind(text or "tmux refused the command"))
    elif not reply.future.done():
        reply.future.set_result(reply.lines)


def _fail(reply: _Reply, error: TmuxError) -> None:
    if not reply.future.done():
        reply.future.set_exception(error)
        reply.future.exception()  # mark it as retrieved: the caller may have given up waiting


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield each line; of a line that is too long, its beginning."""
    line = bytearray()
    while chunk := await stream.read(_CHUNK):
        first, *others = chunk.split(b"\n")
        line += first[: _MAX_LINE - len(line)]
        for other in others:
            yield line.decode("utf-8", "replace")
            line = bytearray(other)


def _line(command: Sequence[str]) -> str:
    """Return a command as one line of tmux's language.

    Raises:
        TmuxError: it has a control character.
    """
    words = []
    for word in command:
        if _CONTROL.search(word):
            raise TmuxError(f"A command of tmux cannot hold a control character: {word!r}")
        words.append("'" + word.replace("'", "'\\''") + "'")
    return " ".join(words) + "\n"


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that tmux needs: every window can see its environment."""
    names = ("PATH", "HOME", "USER", "LOGNAME", "TMUX_TMPDIR", "TMPDIR")
    variables = {name: environment[name] for name in names if name in environment}
    return {"SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "xterm-256color", **variables}
