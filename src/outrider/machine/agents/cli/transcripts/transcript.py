"""The `Transcript` protocol, and what its implementations share.

A `Reader` follows the files that its agent writes (`Tail`), converts their entries to `Piece`s and
implements `Transcript`. Reading is incremental: `poll` reads what was appended since the last
call, and of a long file one chunk per call.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol, TypeVar, runtime_checkable

import msgspec
import structlog

from outrider.contract.ids import creation_time, derived_id
from outrider.contract.resources import FileDiff, Message, MessageKind, Role, Tool, ToolStatus
from outrider.machine.agents.cli.transcripts.calls import call_tool, ended
from outrider.machine.sessions.chat_log import truncate_content
from outrider.machine.sessions.guards import Guards

MAX_CHUNK: Final = 4 * 1024 * 1024
"""Bytes that one call of `poll` reads."""

MAX_LINE: Final = 128 * 1024 * 1024
"""Bytes of a line; longer lines are skipped. A message of 12 MiB may need six times as many."""

MAX_STATE: Final = 1024 * 1024
"""Bytes that are read of a file that should be small."""

RESUMED: Final = "resumed"
"""The key in a session's adapter state of when its agent was last resumed, in epoch milliseconds.

An agent that was killed in a turn has not recorded its end: turns that began earlier are over.
"""

EntryT = TypeVar("EntryT")

MAX_MILLIS: Final = 2**53 - 1
_MAX_POLLS: Final = 4096

Activity = Literal["busy", "waiting", "idle"]
"""The agent's state by its transcript; `waiting` means that its user must answer a question."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ToolCall:
    """A tool call that has no result yet. `started` is epoch milliseconds."""

    id: str
    started: int


class Transcript(Protocol):
    """The transcript of one conversation. All calls are quick reads of local files."""

    title: str | None
    model: str | None
    failure: str | None
    """The error that ended the newest turn, None if it ended without one."""

    @property
    def prompts(self) -> int:
        """The number of user messages in the transcript."""

    def poll(self) -> bool:
        """Read what was recorded since the last call; skip lines that cannot be read.

        Return whether there is more to read: each call reads one chunk, so that a long transcript
        does not block the event loop. Until this returns false, the other methods return
        outdated results.
        """

    def end_turn(self) -> None:
        """Report that the turn is over and that all of it was read: nothing of it will change."""

    def activity(self) -> Activity | None:
        """Return what the agent is doing, None if the transcript does not show it."""

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""

    def find_prompt(self, text: str, after: int) -> str | None:
        """Return the key of the user message `text`; ignore the first `after` user messages.

        Return None if the transcript does not have it.
        """

    @property
    def message_count(self) -> int:
        """The number of messages that `messages` returns."""

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change before the turn is over."""

    def pieces(self, start: int = 0) -> "Sequence[Piece]":
        """Return what the transcript has of each message, from index `start` on."""

    def messages(self, ids: Mapping[str, str], guards: Guards, start: int = 0) -> list[Message]:
        """Return the chat from index `start` on, oldest message first.

        `ids` has the ids that are not derived from the key and the time in the transcript: those
        of messages that were sent through Outrider, had deltas, or were returned before they were
        complete. `guards` were added to the sent messages for the agent, and are removed.
        """


@runtime_checkable
class ProcessTranscript(Transcript, Protocol):
    """A transcript whose files can be found only through the running agent."""

    def find_by_process(self, pid: int, state: MutableMapping[str, str]) -> None:
        """Find the files through the agent's process, and save in `state` where they are.

        `state` is persisted: the environment of the reader after a restart contains it.
        """


async def catch_up(transcript: Transcript) -> None:
    """Read the transcript to its end; other tasks run between the chunks."""
    for _ in range(_MAX_POLLS):
        if not transcript.poll():
            return
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Piece:
    """One message of a transcript; `key` identifies it in the transcript and never changes.

    `prompt` marks a message of the user, which may have been sent through Outrider. Content and
    timestamp are limited to what a `Message` may contain.
    """

    key: str
    role: Role
    kind: MessageKind
    content: str
    timestamp: int
    prompt: bool = False
    tool: Tool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", truncate_content(self.content))
        object.__setattr__(self, "timestamp", min(max(self.timestamp, 0), MAX_MILLIS))


class Reader:
    """Base class: the chat of one conversation, as far as it was read.

    Subclasses append to `_pieces`, and to `_prompts` the key and text of each user message.

    Args:
        conversation: message ids are derived from it and the pieces' keys, so that a reader that
            is created after a restart returns the same ids.
        environment: the agent's, with the session's adapter state.
    """

    def __init__(self, conversation: str, environment: Mapping[str, str]) -> None:
        self._conversation = conversation
        self._resumed = int(environment.get(RESUMED, 0))
        self._pieces: list[Piece] = []
        self._prompts: list[tuple[str, str]] = []
        self._ids: dict[str, str] = {}
        self._omission_count = 0
        self._running_tools: dict[str, int] = {}  # by the id of the call: the index of its piece
        self.title: str | None = None
        self.model: str | None = None
        self.failure: str | None = None

    @property
    def prompts(self) -> int:
        """The number of user messages in the transcript."""
        return len(self._prompts)

    def end_turn(self) -> None:
        """Do nothing: what most agents record of a message does not depend on what follows it."""

    def find_prompt(self, text: str, after: int) -> str | None:
        """Return the key of the user message `text`; ignore the first `after` user messages."""
        wanted = self._normalize(text)
        keys = (key for key, prompt in self._prompts[after:] if self._normalize(prompt) == wanted)
        return next(keys, None)

    @property
    def message_count(self) -> int:
        """The number of messages that `messages` returns."""
        return len(self._pieces)

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change: an agent appends its entries."""
        return 0

    def pieces(self, start: int = 0) -> Sequence[Piece]:
        """Return the pieces from index `start` on."""
        return self._pieces[start:]

    def messages(self, ids: Mapping[str, str], guards: Guards, start: int = 0) -> list[Message]:
        """Return the chat; ids that are not in `ids` are derived from the pieces' keys."""
        return self._as_messages(self._pieces, ids, guards, start)

    def _as_messages(
        self, pieces: Sequence[Piece], ids: Mapping[str, str], guards: Guards, start: int
    ) -> list[Message]:
        """Return the messages of these pieces.

        The id of a tool call is in `ids` if it was returned while the call ran. It has the time
        that the call had then: some versions of opencode change it when a call is aborted.
        """
        messages = []
        for index, piece in enumerate(pieces[start:], start):
            known = ids.get(piece.key)
            messages.append(
                Message(
                    id=known or self._id(piece),
                    index=index,
                    role=piece.role,
                    kind=piece.kind,
                    content=guards.remove(piece.content)
                    if piece.prompt and known is not None
                    else piece.content,
                    timestamp=creation_time(known)
                    if known is not None and piece.kind == "tool_call"
                    else piece.timestamp,
                    tool=piece.tool,
                )
            )
        return messages

    def _add_call(self, key: str, call: str, name: str, arguments: object, at: int) -> None:
        """Add the piece of a tool call that has begun."""
        content = as_json({"id": call, "name": name, "input": arguments})
        tool = call_tool(call, name, arguments, at)
        self._running_tools[call] = len(self._pieces)
        self._pieces.append(Piece(key, "assistant", "tool_call", content, at, tool=tool))

    def _end_call(
        self,
        call: str,
        status: ToolStatus | None,
        at: int | None,
        *,
        exit_code: int | None = None,
        diff: list[FileDiff] | None = None,
    ) -> Tool | None:
        """Return the tool call that has ended, and update the piece of the call."""
        index = self._running_tools.pop(call, None)
        piece = None if index is None else self._pieces[index]
        if index is None or piece is None or piece.tool is None:
            return None
        tool = ended(piece.tool, status, at, exit_code=exit_code, diff=diff)
        self._pieces[index] = replace(piece, tool=tool)
        return tool

    def _end_calls(self, status: ToolStatus | None) -> None:
        """End the tool calls that get no result: their turn is over."""
        for call in list(self._running_tools):
            self._end_call(call, status, None)

    def _id(self, piece: Piece) -> str:
        """Return the id of a piece; cached, as deriving it costs more than the message."""
        known = self._ids.get(piece.key)
        if known is None:
            known = derived_id("msg", piece.timestamp, self._conversation, piece.key)
            self._ids[piece.key] = known
        return known

    def _add_omission_note(self, size: int) -> None:
        """Add a note in place of an entry that is too long to be read."""
        self._omission_count += 1
        at = self._pieces[-1].timestamp if self._pieces else 0
        note = f"[outrider: an entry of {size} bytes is left out here]"
        self._pieces.append(Piece(f"left out {self._omission_count}", "system", "text", note, at))

    def _normalize(self, text: str) -> str:
        """Return `text` without differences that the agent may introduce when it records it."""
        return text.strip()


def milliseconds(timestamp: str | None) -> int:
    """Convert an ISO 8601 time to epoch milliseconds; return 0 if it is invalid."""
    try:
        return round(datetime.fromisoformat(timestamp or "").timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the year 1 has no epoch seconds everywhere
        return 0


def as_json(value: object) -> str:
    """Encode a value that was decoded from JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # decoded with a little more stack to spare
        return '"[outrider: nested too deeply]"'


class Tail:
    """Reads each complete line of a growing file once; blank lines only with `blank_lines`.

    A file that was replaced or truncated is read again from its beginning.

    Args:
        on_long_line: called with the length of each line that exceeds `MAX_LINE`.

    Attributes:
        has_more: whether the last read stopped before the end of the file.
    """

    def __init__(
        self,
        path: Path,
        on_long_line: Callable[[int], None] | None = None,
        *,
        blank_lines: bool = False,
    ) -> None:
        self.path = path
        self.has_more = False
        self._on_long_line = on_long_line
        self._blank_lines = blank_lines
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._start_line()

    @property
    def ends_mid_line(self) -> bool:
        """Whether the end of the last line that was read is missing."""
        return self._length > 0

    def lines(self) -> Iterator[bytes]:
        """Return the new complete lines; a line without its line break is kept for later."""
        first, *others = self._read().split(b"\n")
        self._extend_line(first)
        # Collect the lines before yielding any: a caller that stops iterating must not lose the
        # start of the next line.
        lines = []
        for other in others:
            lines.append((b"".join(self._line), self._length))
            self._start_line()
            self._extend_line(other)
        for line, length in lines:
            if length > MAX_LINE:
                _log.warning("transcript line skipped", file=self.path.name, bytes=length)
                if self._on_long_line is not None:
                    self._on_long_line(length)
            elif self._blank_lines or line.strip():
                yield line

    def entries(self, decoder: msgspec.json.Decoder[EntryT]) -> Iterator[EntryT]:
        """Yield the new lines, decoded; lines that cannot be decoded are skipped."""
        skipped, reason = 0, ""
        for line in self.lines():
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                skipped, reason = skipped + 1, str(error)
                continue
            yield entry
        if skipped:
            _log.warning(
                "transcript lines skipped", file=self.path.name, count=skipped, error=reason
            )

    def _read(self) -> bytes:
        """Return the next chunk of the file."""
        self.has_more = False
        try:
            stream = open_file(self.path)
        except OSError:
            return b""  # not yet there, or no longer
        with stream:
            # The open file is compared, not the path: it may be replaced at any moment.
            status = os.fstat(stream.fileno())
            if self._file != (status.st_dev, status.st_ino) or status.st_size < self._offset:
                self._file, self._offset = (status.st_dev, status.st_ino), 0
                self._start_line()
            if status.st_size == self._offset:
                return b""
            stream.seek(self._offset)
            data = stream.read(MAX_CHUNK)
        self._offset += len(data)
        self.has_more = len(data) == MAX_CHUNK
        return data

    def _start_line(self) -> None:
        self._line: list[bytes] = []
        self._length = 0

    def _extend_line(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > MAX_LINE:
            self._line.clear()
        elif part:
            self._line.append(part)


def open_file(path: Path) -> BinaryIO:
    """Open a file that another program writes.

    Raises:
        OSError: it cannot be opened, or is not a regular file; reading a pipe would block.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(file, "rb")


def read_small_file(path: Path) -> bytes:
    """Return the first `MAX_STATE` bytes of a file. Raises as `open_file` does."""
    with open_file(path) as stream:
        return stream.read(MAX_STATE)
