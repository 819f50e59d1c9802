"""The base of all transcripts: how an agent's own record of its chat is read.

A `Transcript` follows the files that its agent writes (`Tail`) and converts their entries to
`Piece`s. Reading is incremental: `poll` reads what was appended since the last call, and of a long
file one chunk per call. Agents may stop at any moment and leave anything in their files: entries
that cannot be decoded are skipped, and a time or an id that was returned once never changes.
"""

import asyncio
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, Literal, TypeVar

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

ACCEPTED_BUSY_SECONDS: Final = 2.0
"""Seconds for which aider and Gemini count as busy after they accepted a message.

They record neither the beginning nor the end of a turn, and their screen changes late.
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


@dataclass(frozen=True)
class Piece:
    """What becomes one message of a transcript; `key` identifies it there and never changes.

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


class Transcript(ABC):
    """The transcript of one conversation, as far as it was read; all calls read local files.

    Subclasses append to `_pieces`, to `_prompts` the key and text of each user message, and keep
    in `_calls` the tool calls without a result, by their ids.

    Args:
        environment: the agent's, with the session's adapter state, which locates its files.
        conversation: identifies it. Message ids are derived from it and the pieces' keys, so that
            they are the same after a restart.

    Attributes:
        failure: the error that ended the newest turn, None if it ended without one.
    """

    def __init__(self, environment: Mapping[str, str], conversation: str) -> None:
        self._conversation = conversation
        self._home = Path(environment.get("HOME") or Path.home())
        self._resumed = int(environment.get(RESUMED, 0))
        self._pieces: list[Piece] = []
        self._prompts: list[tuple[str, str]] = []
        self._calls: dict[str, ToolCall] = {}
        self._omission_count = 0
        self._running_tools: dict[str, int] = {}  # by the id of the call: the index of its piece
        self._accepted_at: float | None = None
        self.title: str | None = None
        self.model: str | None = None
        self.failure: str | None = None

    def find_by_process(self, pid: int, state: MutableMapping[str, str]) -> None:  # noqa: B027
        """Find the files of a transcript that is known only through the agent's process.

        Saves in `state` where they are: the environment after a restart contains it.
        """

    @abstractmethod
    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more to read.

        Each call reads one chunk, so that a long transcript does not block the event loop. Until
        this returns false, the other methods return outdated results.
        """

    def end_turn(self) -> None:  # noqa: B027  # most entries do not depend on what follows them
        """Report that the turn is over and that all of it was read: nothing of it will change."""

    @abstractmethod
    def activity(self) -> Activity | None:
        """Return what the agent is doing, None if the transcript does not show it."""

    def _busy_after_acceptance(self) -> Activity | None:
        """Return `busy` just after a message was accepted, else None: the screen decides."""
        accepted = self._accepted_at
        if accepted is None or time.monotonic() - accepted > ACCEPTED_BUSY_SECONDS:
            return None
        return "busy"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""
        return [call for call in self._calls.values() if call.started >= self._resumed]

    @property
    def prompts(self) -> int:
        """The number of user messages in the transcript."""
        return len(self._prompts)

    def find_prompt(self, text: str, after: int) -> str | None:
        """Return the key of the user message `text`; ignore the first `after` user messages."""
        wanted = self._normalize(text)
        keys = (key for key, prompt in self._prompts[after:] if self._normalize(prompt) == wanted)
        return next(keys, None)

    def _normalize(self, text: str) -> str:
        """Return `text` without differences that the agent may introduce when it records it."""
        return text.strip()

    @property
    def message_count(self) -> int:
        """The number of messages that `messages` returns."""
        return len(self.pieces())

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change before the turn is over."""
        return 0

    def pieces(self, start: int = 0) -> Sequence[Piece]:
        """Return what the transcript has of each message, from index `start` on."""
        return self._pieces[start:]

    def messages(self, ids: Mapping[str, str], guards: Guards, start: int = 0) -> list[Message]:
        """Return the chat from index `start` on, oldest message first.

        `ids` has the ids that are not derived from the key and the time in the transcript: those
        of messages that were sent through Outrider, had deltas, or were returned before they were
        complete. `guards` were added to the sent messages for the agent, and are removed. A tool
        call has the time that it had when its id was saved: some versions of opencode change it
        when a call is aborted.
        """
        messages = []
        for index, piece in enumerate(self._pieces_for(ids)[start:], start):
            id_, content, timestamp = ids.get(piece.key), piece.content, piece.timestamp
            if id_ is not None and piece.prompt:
                content = guards.remove(content)
            if id_ is not None and piece.kind == "tool_call":
                timestamp = creation_time(id_)
            messages.append(
                Message(
                    id=id_ or derived_id("msg", timestamp, self._conversation, piece.key),
                    index=index,
                    role=piece.role,
                    kind=piece.kind,
                    content=content,
                    timestamp=timestamp,
                    tool=piece.tool,
                )
            )
        return messages

    def _pieces_for(self, ids: Mapping[str, str]) -> Sequence[Piece]:  # noqa: ARG002
        """Return the pieces of messages that have these ids."""
        return self._pieces

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

    def _add_omission_note(self, size: int) -> None:
        """Add a note in place of an entry that is too long to be read."""
        self._omission_count += 1
        at = self._pieces[-1].timestamp if self._pieces else 0
        note = f"[outrider: an entry of {size} bytes is left out here]"
        self._pieces.append(Piece(f"left out {self._omission_count}", "system", "text", note, at))


class JsonLinesTranscript(Transcript, Generic[EntryT]):
    """A transcript in one file with a JSON object on each line, an `entry_type`."""

    def __init__(
        self, environment: Mapping[str, str], conversation: str, entry_type: type[EntryT]
    ) -> None:
        super().__init__(environment, conversation)
        self._decoder = msgspec.json.Decoder(entry_type)
        self._tail: Tail | None = None

    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more."""
        if self._tail is None:
            path = self._find()
            if path is None:
                return False
            self._tail = Tail(path, self._add_omission_note)
        for entry in self._tail.entries(self._decoder):
            self._process(entry)
        return self._tail.has_more

    @abstractmethod
    def _find(self) -> Path | None:
        """Return the file, None if it does not exist yet."""

    @abstractmethod
    def _process(self, entry: EntryT) -> None:
        """Process the next entry."""


async def catch_up(transcript: Transcript) -> None:
    """Read the transcript to its end; other tasks run between the chunks."""
    for _ in range(_MAX_POLLS):
        if not transcript.poll():
            return
        await asyncio.sleep(0)


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


def text_of(content: Any) -> str:
    """Return content as text: a string, or the texts of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str) and text)
    return "" if content is None else as_json(content)


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
        self._start = bytearray()  # of a line whose end is missing
        self._left_out = 0  # bytes of it, if it is too long

    @property
    def ends_mid_line(self) -> bool:
        """Whether the end of the last line that was read is missing."""
        return bool(self._start) or self._left_out > 0

    def lines(self) -> list[bytes]:
        """Return the new complete lines; a line without its line break is kept for later."""
        *ends, rest = self._read().split(b"\n")
        lines = []
        for end in ends:
            self._extend(end)
            line, length = bytes(self._start), self._left_out
            self._start, self._left_out = bytearray(), 0
            if length:
                _log.warning("transcript line skipped", file=self.path.name, bytes=length)
                if self._on_long_line is not None:
                    self._on_long_line(length)
            elif self._blank_lines or line.strip():
                lines.append(line)
        self._extend(rest)
        return lines

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
                self._start, self._left_out = bytearray(), 0
            stream.seek(self._offset)
            data = stream.read(MAX_CHUNK)
        self._offset += len(data)
        self.has_more = len(data) == MAX_CHUNK
        return data

    def _extend(self, part: bytes) -> None:
        if self._left_out or len(self._start) + len(part) > MAX_LINE:
            self._left_out += len(self._start) + len(part)
            self._start.clear()
        else:
            self._start += part


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
