"""What the readers of the agents' transcripts have in common.

A reader follows the files that its agent writes (`Tail`), keeps what they hold as `Piece`s, and
offers it as a `Transcript`. `Reader` is the base class. Reading is incremental: `poll` reads what
is new since the last time, and of a long file only a part at a time.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol, TypeVar, runtime_checkable

import msgspec
import structlog

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.daemon.agents.chat_log import Kind, Role, truncate_content
from outrider.daemon.agents.guards import Guards

MAX_CHUNK: Final = 4 * 1024 * 1024
"""Bytes that are read at a time."""

MAX_LINE: Final = 128 * 1024 * 1024
"""Bytes of a line that is kept; a message of 12 MiB may take six times as many."""

MAX_STATE: Final = 1024 * 1024
"""Bytes of a small file that are read."""

Record = TypeVar("Record")

MAX_MILLIS: Final = 2**53 - 1
_MAX_POLLS: Final = 4096

Activity = Literal["busy", "waiting", "idle"]
"""What the record says of the agent now; `waiting` is for its user to answer something."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ToolCall:
    """A tool call without a result yet. `started` is epoch milliseconds."""

    id: str
    started: int


class Transcript(Protocol):
    """The record of one conversation, read as it grows. All calls are quick, local reads."""

    title: str | None
    model: str | None
    failure: str | None
    """The error that ended the newest turn, None if it did not end with one."""

    @property
    def prompts(self) -> int:
        """How many messages of the user the record holds."""

    def poll(self) -> bool:
        """Read what has been recorded since the last time. Never fails over a broken line.

        Return whether there is more, so that a long record holds up the event loop for a part of
        it at a time; until then, what this tells is out of date.
        """

    def activity(self) -> Activity | None:
        """Return what the agent itself says that it is doing, None if the record is mute."""

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""

    def sent(self, text: str, after: int) -> str | None:
        """Return the record's key of the user message `text` behind the first `after` ones."""

    def messages(self, ids: Mapping[str, str], guards: Guards) -> list[Message]:
        """Return the whole chat.

        `ids` has the message id of those that were sent through Outrider, by their keys;
        `guards` is what was put around these for the agent, and is taken off again.
        """


@runtime_checkable
class ProcessTranscript(Transcript, Protocol):
    """A transcript of which only the running agent tells where it is."""

    def find_by_process(self, pid: int, kept: MutableMapping[str, str]) -> None:
        """Find it by the agent's process. What finds it again without that goes into `kept`.

        `kept` outlives the daemon; a later reader has it in its environment.
        """


async def catch_up(transcript: Transcript) -> None:
    """Read all that has been recorded, and let others run meanwhile."""
    for _ in range(_MAX_POLLS):
        if not transcript.poll():
            return
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Piece:
    """One message as recorded; `key` is what the record knows it by, for ever.

    `prompt` marks a message of the user, which may have been sent through Outrider. Content and
    timestamp are made fit for a message, whatever the record says.
    """

    key: str
    role: Role
    kind: Kind
    content: str
    timestamp: int
    prompt: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", truncate_content(self.content))
        object.__setattr__(self, "timestamp", min(max(self.timestamp, 0), MAX_MILLIS))


class Reader:
    """The chat of one conversation, as far as it was read.

    A reader adds to `_pieces`, and to `_prompts` the key and the text of what the user said.

    Args:
        conversation: what the ids of its messages are derived from, with their keys.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._pieces: list[Piece] = []
        self._prompts: list[tuple[str, str]] = []
        self._ids: dict[str, str] = {}
        self._left_out = 0
        self.title: str | None = None
        self.model: str | None = None
        self.failure: str | None = None

    @property
    def prompts(self) -> int:
        """How many messages of the user the record holds."""
        return len(self._prompts)

    def sent(self, text: str, after: int) -> str | None:
        """Return the key of the user message `text` behind the first `after` prompts."""
        wanted = self._comparable(text)
        found = (key for key, said in self._prompts[after:] if self._comparable(said) == wanted)
        return next(found, None)

    def messages(self, ids: Mapping[str, str], guards: Guards) -> list[Message]:
        """Return the whole chat; an id is derived from the record's where it is not given."""
        return self._as_messages(self._pieces, ids, guards)

    def _as_messages(
        self, pieces: Iterable[Piece], ids: Mapping[str, str], guards: Guards
    ) -> list[Message]:
        messages = []
        for index, piece in enumerate(pieces):
            known = ids.get(piece.key) if piece.prompt else None
            messages.append(
                Message(
                    id=known or self._id(piece),
                    index=index,
                    role=piece.role,
                    kind=piece.kind,
                    content=piece.content if known is None else guards.remove(piece.content),
                    timestamp=piece.timestamp,
                )
            )
        return messages

    def _id(self, piece: Piece) -> str:
        """Return the id that this piece always has; making it costs more than the message."""
        known = self._ids.get(piece.key)
        if known is None:
            known = derived_id("msg", piece.timestamp, self._conversation, piece.key)
            self._ids[piece.key] = known
        return known

    def _leave_out(self, size: int) -> None:
        """Put a note in place of an entry of the record that is too long to be read."""
        self._left_out += 1
        at = self._pieces[-1].timestamp if self._pieces else 0
        note = f"[outrider: an entry of {size} bytes is left out here]"
        self._pieces.append(Piece(f"left out {self._left_out}", "system", "text", note, at))

    def _comparable(self, text: str) -> str:
        """Return a text as the agent may have changed it before it was recorded."""
        return text.strip()


def milliseconds(timestamp: str | None) -> int:
    """Return the epoch milliseconds of an ISO 8601 time, 0 where it is none."""
    try:
        return round(datetime.fromisoformat(timestamp or "").timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the year 1 has no epoch seconds everywhere
        return 0


def as_json(value: object) -> str:
    """Return a value that was decoded from JSON as JSON again."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # decoded with a little more stack to spare
        return '"[outrider: nested too deeply]"'


class Tail:
    """Gives each complete line of a file once; those without text only with `blank_lines`.

    A file that was replaced or has become shorter is read from its beginning again.

    Args:
        leave_out: called with the length of a line that is too long, in place of the line.

    Attributes:
        behind: whether the file had more than was read the last time.
    """

    def __init__(
        self,
        path: Path,
        leave_out: Callable[[int], None] | None = None,
        *,
        blank_lines: bool = False,
    ) -> None:
        self.path = path
        self.behind = False
        self._leave_out = leave_out
        self._blank_lines = blank_lines
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._start_line()

    def lines(self) -> Iterator[bytes]:
        """Return the lines that are new; one without its line break waits for that."""
        first, *others = self._read().split(b"\n")
        self._extend_line(first)
        lines = []
        for other in others:
            lines.append((b"".join(self._line), self._length))
            self._start_line()
            self._extend_line(other)
        for line, length in lines:
            if length > MAX_LINE:
                _log.warning("record line skipped", file=self.path.name, bytes=length)
                if self._leave_out is not None:
                    self._leave_out(length)
            elif self._blank_lines or line.strip():
                yield line

    def records(self, decoder: msgspec.json.Decoder[Record]) -> Iterator[Record]:
        """Return the new lines as what they tell; one that is not readable is left out."""
        left_out, why = 0, ""
        for line in self.lines():
            try:
                record = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                left_out, why = left_out + 1, str(error)
                continue
            yield record
        if left_out:
            _log.warning("record lines skipped", file=self.path.name, count=left_out, error=why)

    def _read(self) -> bytes:
        """Return the next bytes of the file."""
        self.behind = False
        try:
            stream = open_file(self.path)
        except OSError:
            return b""  # not yet there, or no longer
        with stream:
            state = os.fstat(stream.fileno())
            if self._file != (state.st_dev, state.st_ino) or state.st_size < self._offset:
                self._file, self._offset = (state.st_dev, state.st_ino), 0
                self._start_line()
            if state.st_size == self._offset:
                return b""
            stream.seek(self._offset)
            data = stream.read(MAX_CHUNK)
        self._offset += len(data)
        self.behind = len(data) == MAX_CHUNK
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
        OSError: it cannot be opened, or is not a regular file: a pipe would hold everything up.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(file, "rb")


def read_small_file(path: Path) -> bytes:
    """Return the beginning of a file that another program writes. Raises as `open_file` does."""
    with open_file(path) as stream:
        return stream.read(MAX_STATE)
