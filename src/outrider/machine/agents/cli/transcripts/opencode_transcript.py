"""opencode's transcript: the messages and their parts in its SQLite database.

A message of the assistant is one step of a turn. opencode writes a part when it begins, and again
when it is complete. Text appears in the chat only when it is complete, and the parts after it
only then, so that the index and content of a message that was returned never change:

    parts in the database:  complete text   complete call   growing text   complete text
    messages in the chat:   shown           shown           hidden         hidden

Of a tool call that is running, the call is shown; its result and the parts after it follow.
The database is not documented; it is opened read-only. Only changed rows are read again, and the
chat is rebuilt from the first changed message, which is nearly always the newest one: the cost of
following a long turn is linear.
"""

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog

from outrider.contract.resources import FileDiff, MessageKind
from outrider.machine.agents.cli.transcripts.calls import call_tool, ended
from outrider.machine.agents.cli.transcripts.transcript import (
    MAX_LINE,
    Activity,
    Piece,
    ToolCall,
    Transcript,
    as_json,
)
from outrider.machine.agents.tools import exit_code_in, file_diff, patch_diff

_StructT = TypeVar("_StructT", bound=msgspec.Struct)

_log = structlog.get_logger(__name__)

_OVERLAP: Final = 2000
"""Milliseconds before the newest change that are read again; rows may be written out of order."""

_TICK: Final = 0.1
"""Seconds in which a file may change twice without a different modification time."""

_DATA: Final = f"iif(length(data) <= {MAX_LINE}, data, NULL)"
_SHOWN_STATUSES: Final = ("running", "completed", "error")

_ANSWER_TIMEOUT: Final = 10_000
"""Milliseconds after which an unanswered message no longer counts as a running turn."""


class _Message(msgspec.Struct, kw_only=True):
    role: str = ""
    time: dict[str, Any] = {}
    finish: str | None = None
    error: Any = None
    model_id: str | None = msgspec.field(default=None, name="modelID")
    summary: Any = None


class _Part(msgspec.Struct, kw_only=True):
    type: str = ""
    text: str = ""
    time: dict[str, Any] = {}
    synthetic: bool = False
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: dict[str, Any] = {}


_OMITTED_PART: Final = _Part(
    type="text",
    text="[outrider: an entry that is too long is left out here]",
    time={"start": 0, "end": 0},
)


@dataclass
class _MessageRow:
    """A message with its number, and the numbers of pieces and prompts before it."""

    key: str
    number: int
    created: int
    message: _Message
    pieces: int
    prompts: int
    parts: dict[str, _Part] = field(default_factory=dict)

    def prompt(self) -> str | None:
        """Return the text of a user message, None for any other message."""
        if self.message.role != "user":
            return None
        texts = [
            part.text for part in self.parts.values() if part.type == "text" and not part.synthetic
        ]
        return "\n".join(texts) if texts else None


class OpencodeTranscript(Transcript):
    """One session of opencode.

    Args:
        environment: the agent's; HOME, XDG_DATA_HOME and OPENCODE_DB locate its database.
        conversation: the id of the session in opencode is `ses_` followed by this.
    """

    def __init__(self, environment: Mapping[str, str], conversation: str) -> None:
        super().__init__(environment, conversation)
        share = environment.get("XDG_DATA_HOME") or self._home / ".local" / "share"
        data = Path(share) / "opencode"
        self._path = data / (environment.get("OPENCODE_DB") or "opencode.db")
        self._session = f"ses_{conversation}"
        self._last_file_state: tuple[object, ...] = ()
        self._newest = 0
        self._rows_by_key: dict[str, _MessageRow] = {}
        self._rows: list[_MessageRow] = []
        self._model_number = -1
        self._first_incomplete = 0
        self._unfinished_count = 0  # pieces of the first incomplete part

    # The transcript

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change: an open tool call."""
        return self._unfinished_count

    def activity(self) -> Activity | None:
        """Return the state by the newest message; None between two steps and after a rejection."""
        last = self._last()
        if last.role == "user":
            age = time.time() * 1000 - _number(last.time.get("created"))
            return "busy" if age < _ANSWER_TIMEOUT else None
        if last.role != "assistant" or _number(last.time.get("created")) < self._resumed:
            return "idle"
        if "completed" not in last.time:
            return "busy"
        return None if last.finish in ("tool-calls", "unknown") and not last.error else "idle"

    def poll(self) -> bool:
        """Read what was recorded since the last call; return false: nothing is left to read."""
        state = self._file_state()
        if state == self._last_file_state:
            return False
        try:
            self._read()
        except sqlite3.Error as error:
            _log.warning("transcript read failed", error=str(error))
            return False
        self._last_file_state = state
        return False

    # Reading the database

    def _file_state(self) -> tuple[object, ...]:
        """Return a value that differs from the last one if the database may have changed."""
        state: list[object] = []
        for path in (self._path, self._path.with_name(self._path.name + "-wal")):
            try:
                status = path.stat()
            except OSError:
                continue
            state += [status.st_ino, status.st_size, status.st_mtime_ns]
            if time.time() - status.st_mtime < _TICK:
                state.append(object())  # equal to nothing: read again at the next poll
        return tuple(state)

    def _read(self) -> None:
        since = self._newest - _OVERLAP
        parameters = (self._session, since)
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            db.execute("BEGIN")  # one snapshot for messages and parts
            db.text_factory = bytes  # one text that is not UTF-8 must not make all unreadable
            title = db.execute("SELECT title FROM session WHERE id = ?", parameters[:1]).fetchone()
            messages = db.execute(
                f"SELECT id, time_created, time_updated, {_DATA} FROM message "  # noqa: S608
                "WHERE session_id = ? AND time_updated >= ? ORDER BY time_created, id",
                parameters,
            ).fetchall()
            parts = db.execute(
                f"SELECT id, message_id, time_updated, {_DATA} FROM part "  # noqa: S608
                "WHERE session_id = ? AND time_updated >= ? ORDER BY id",
                parameters,
            ).fetchall()
        if title is not None and not _text(title[0]).startswith("New session"):
            self.title = _text(title[0])
        first = len(self._rows)
        for key, created, updated, data in messages:
            first = min(first, self._update_message(_text(key), _number(created), data))
            self._newest = max(self._newest, _number(updated))
        for key, message, updated, data in parts:
            first = min(first, self._update_part(_text(key), _text(message), data))
            self._newest = max(self._newest, _number(updated))
        self._rebuild(first)
        error = self._last().error
        aborted = not isinstance(error, dict) or error.get("name") == "MessageAbortedError"
        self.failure = None if aborted else _error_text(error)

    def _last(self) -> _Message:
        return self._rows[-1].message if self._rows else _Message()

    def _update_message(self, key: str, created: int, data: object) -> int:
        """Store the current state of a message; return the number of the first changed message."""
        message = _decode(data, _Message, key)
        row = self._rows_by_key.get(key)
        if row is None:
            number, before = len(self._rows), (len(self._pieces), len(self._prompts))
            row = self._rows_by_key[key] = _MessageRow(key, number, created, message, *before)
            self._rows.append(row)
        elif row.message == message:
            return len(self._rows)
        row.message = message
        if message.role == "assistant" and message.model_id and row.number >= self._model_number:
            self.model, self._model_number = message.model_id, row.number
        return row.number

    def _update_part(self, key: str, message: str, data: object) -> int:
        """Store the current state of a part; return the number of the first changed message."""
        part = _OMITTED_PART if data is None else _decode(data, _Part, key)
        if part.type == "tool" and part.state.get("status") == "running":
            self._calls[key] = ToolCall(part.call_id, _time(part.state, "start"))
        else:
            self._calls.pop(key, None)
        row = self._rows_by_key.get(message)
        if row is None or row.parts.get(key) == part:
            return len(self._rows)
        row.parts[key] = part
        return row.number

    def _rebuild(self, first: int) -> None:
        """Rebuild the chat from the message with this number to the first incomplete part."""
        first = min(first, self._first_incomplete)
        if first < len(self._rows):
            row = self._rows[first]
            del self._pieces[row.pieces :]
            del self._prompts[row.prompts :]
        complete, self._unfinished_count = True, 0
        for row in self._rows[first:]:
            row.pieces, row.prompts = len(self._pieces), len(self._prompts)
            prompt = row.prompt()
            if prompt is not None:
                self._prompts.append((row.key, prompt))
            if complete:
                self._first_incomplete = row.number
                complete = self._add(row, prompt)
        if complete:
            self._first_incomplete = len(self._rows)

    def _add(self, row: _MessageRow, prompt: str | None) -> bool:
        """Add the pieces of a message; return whether all its parts are complete."""
        key, message = row.key, row.message
        if prompt is not None:
            self._pieces.append(Piece(key, "user", "text", prompt, row.created, prompt=True))
        if message.role != "assistant":
            return True
        is_closed = "completed" in message.time or row is not self._rows[-1]
        for name, part in row.parts.items():
            if not is_closed and not _is_complete(part):
                pieces = _pieces_of(name, part) if part.type == "tool" else []
                self._pieces += pieces
                self._unfinished_count = len(pieces)
                return False
            self._pieces += _pieces_of(name, part)
        error = message.error
        if isinstance(error, dict):
            ended = _number(message.time.get("completed")) or row.created
            self._pieces.append(Piece(f"{key} error", "system", "text", _error_text(error), ended))
        return True


def _pieces_of(key: str, part: _Part) -> list[Piece]:
    """Return the pieces of a part, in its current state."""
    if part.type in {"text", "reasoning"} and part.text and not part.synthetic:
        kind: MessageKind = "text" if part.type == "text" else "thinking"
        return [Piece(key, "assistant", kind, part.text, _number(part.time.get("start")))]
    if part.type != "tool" or part.state.get("status") not in _SHOWN_STATUSES:
        return []
    state = part.state
    call = {"id": part.call_id, "name": part.tool, "input": state.get("input")}
    content, start, end = as_json(call), _time(state, "start"), _time(state, "end")
    tool = call_tool(part.call_id, part.tool, state.get("input"), start)
    if state["status"] == "running":
        return [Piece(key, "assistant", "tool_call", content, start, tool=tool)]
    is_completed = state["status"] == "completed"
    tool = ended(
        tool,
        "completed" if is_completed else "failed",
        end,
        exit_code=exit_code_in(state),
        diff=_diff(state.get("metadata")),
    )
    result = str(state.get("output" if is_completed else "error") or "")
    return [
        Piece(key, "assistant", "tool_call", content, start, tool=tool),
        Piece(f"{key} result", "tool", "tool_result", result, end, tool=tool),
    ]


def _diff(metadata: Any) -> list[FileDiff]:
    """Return the changes that the metadata of an edit have."""
    change = metadata.get("filediff") if isinstance(metadata, dict) else None
    if not isinstance(change, dict) or not isinstance(change.get("file"), str):
        return []
    patch = change.get("patch") or metadata.get("diff")
    if isinstance(patch, str):
        return [patch_diff(change["file"], patch)]
    before, after = change.get("before"), change.get("after")
    if isinstance(before, str) and isinstance(after, str):
        return [file_diff(change["file"], before, after)]
    return []


def _is_complete(part: _Part) -> bool:
    if part.type in {"text", "reasoning"}:
        return "end" in part.time
    return part.type != "tool" or part.state.get("status") in ("completed", "error")


def _error_text(error: dict[str, Any]) -> str:
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    return str(message or error.get("name") or "The turn has failed")


def _time(state: dict[str, Any], name: str) -> int:
    times = state.get("time")
    return _number(times.get(name)) if isinstance(times, dict) else 0


def _decode(data: object, kind: type[_StructT], key: str) -> _StructT:
    """Decode the data of a row; return an empty struct if it is too long or cannot be decoded."""
    try:
        return msgspec.json.decode(data if isinstance(data, bytes) else b"", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _log.warning("transcript row skipped", row=key, error=str(error))
        return kind()


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
