"""opencode's own record: the messages and their parts in its database.

A message of the assistant is one step of a turn. A part is written when it begins and again
when it is complete; nothing is told here of a part before that, nor of those behind it, so
that what has been told never moves. The database is not documented, and only read.

Only what has changed is read again, and the chat is made again from the first message that has
changed, which is nearly always the newest: reading a long turn while it grows is linear.
"""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog

from outrider.daemon.agents.chat_log import Kind
from outrider.daemon.agents.cli.transcripts.transcript import (
    MAX_LINE,
    Activity,
    Piece,
    Reader,
    ToolCall,
    as_json,
)

_Row = TypeVar("_Row", bound=msgspec.Struct)

_log = structlog.get_logger(__name__)

_OVERLAP: Final = 2000
"""Milliseconds before the newest change that are read again: changes may come out of order."""

_TICK: Final = 0.1
"""Seconds in which a file may change twice without another time of change."""

_DATA: Final = f"iif(length(data) <= {MAX_LINE}, data, NULL)"
_TOLD: Final = ("running", "completed", "error")

_UNANSWERED: Final = 10_000
"""Milliseconds after which a message without an answer is no proof of a turn any more."""


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


_LEFT_OUT: Final = _Part(
    type="text",
    text="[outrider: an entry that is too long is left out here]",
    time={"start": 0, "end": 0},
)


@dataclass
class _Recorded:
    """A message of the record: its number, and how many pieces and prompts are before it."""

    key: str
    number: int
    created: int
    message: _Message
    pieces: int
    prompts: int
    parts: dict[str, _Part] = field(default_factory=dict)

    def said(self) -> str | None:
        """Return what the user said in it."""
        if self.message.role != "user":
            return None
        texts = [
            part.text for part in self.parts.values() if part.type == "text" and not part.synthetic
        ]
        return "\n".join(texts) if texts else None


class OpencodeTranscript(Reader):
    """One session of opencode.

    Args:
        environment: the agent's; HOME, XDG_DATA_HOME and OPENCODE_DB say where its database is.
        directory: the agent's; the session is found by its id.
        conversation: the session's id is `ses_` and this.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path, conversation: str) -> None:
        del directory
        super().__init__(conversation)
        home = Path(environment.get("HOME") or Path.home())
        data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
        self._path = data / (environment.get("OPENCODE_DB") or "opencode.db")
        self._session = f"ses_{conversation}"
        self._changed: tuple[object, ...] = ()
        self._newest = 0
        self._messages: dict[str, _Recorded] = {}
        self._in_order: list[_Recorded] = []
        self._running: dict[str, ToolCall] = {}
        self._model_from = -1
        self._made = 0

    # What it shows

    def activity(self) -> Activity | None:
        """Return what the newest message tells; between two steps, and after a reject, nothing."""
        last = self._last()
        if last.role == "user":
            age = time.time() * 1000 - _number(last.time.get("created"))
            return "busy" if age < _UNANSWERED else None
        if last.role != "assistant":
            return "idle"
        if "completed" not in last.time:
            return "busy"
        return None if last.finish in ("tool-calls", "unknown") and not last.error else "idle"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""
        return list(self._running.values())

    def poll(self) -> bool:
        """Read what has been recorded since the last time."""
        changed = self._state()
        if changed == self._changed:
            return False
        try:
            self._read()
        except sqlite3.Error as error:
            _log.warning("the transcript could not be read", error=str(error))
            return False
        self._changed = changed
        return False

    # How it is read

    def _state(self) -> tuple[object, ...]:
        """Return what differs whenever the database may have changed."""
        state: list[object] = []
        for path in (self._path, self._path.with_name(self._path.name + "-wal")):
            try:
                found = path.stat()
            except OSError:
                continue
            state += [found.st_ino, found.st_size, found.st_mtime_ns]
            if time.time() - found.st_mtime < _TICK:
                state.append(object())  # unlike any other
        return tuple(state)

    def _read(self) -> None:
        since = self._newest - _OVERLAP
        wanted = (self._session, since)
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            db.execute("BEGIN")  # messages and parts of the same moment
            db.text_factory = bytes  # one text that is not UTF-8 must not hide the others
            title = db.execute("SELECT title FROM session WHERE id = ?", wanted[:1]).fetchone()
            messages = db.execute(
                f"SELECT id, time_created, time_updated, {_DATA} FROM message "  # noqa: S608
                "WHERE session_id = ? AND time_updated >= ? ORDER BY time_created, id",
                wanted,
            ).fetchall()
            parts = db.execute(
                f"SELECT id, message_id, time_updated, {_DATA} FROM part "  # noqa: S608
                "WHERE session_id = ? AND time_updated >= ? ORDER BY id",
                wanted,
            ).fetchall()
        if title is not None and not _text(title[0]).startswith("New session"):
            self.title = _text(title[0])
        first = len(self._in_order)
        for key, created, updated, data in messages:
            first = min(first, self._take_message(_text(key), _number(created), data))
            self._newest = max(self._newest, _number(updated))
        for key, message, updated, data in parts:
            first = min(first, self._take_part(_text(key), _text(message), data))
            self._newest = max(self._newest, _number(updated))
        self._make(first)
        error = self._last().error
        aborted = not isinstance(error, dict) or error.get("name") == "MessageAbortedError"
        self.failure = None if aborted else _reason(error)

    def _last(self) -> _Message:
        return self._in_order[-1].message if self._in_order else _Message()

    def _take_message(self, key: str, created: int, data: object) -> int:
        """Take a message as it is now; return the number of the first one that has changed."""
        message = _decoded(data, _Message, key)
        known = self._messages.get(key)
        if known is None:
            number, before = len(self._in_order), (len(self._pieces), len(self._prompts))
            known = self._messages[key] = _Recorded(key, number, created, message, *before)
            self._in_order.append(known)
        elif known.message == message:
            return len(self._in_order)
        known.message = message
        if message.role == "assistant" and message.model_id and known.number >= self._model_from:
            self.model, self._model_from = message.model_id, known.number
        return known.number

    def _take_part(self, key: str, message: str, data: object) -> int:
        """Take a part as it is now; return the number of the first message that has changed."""
        part = _LEFT_OUT if data is None else _decoded(data, _Part, key)
        if part.type == "tool" and part.state.get("status") == "running":
            self._running[key] = ToolCall(part.call_id, _time(part.state, "start"))
        else:
            self._running.pop(key, None)
        known = self._messages.get(message)
        if known is None or known.parts.get(key) == part:
            return len(self._in_order)
        known.parts[key] = part
        return known.number

    def _make(self, first: int) -> None:
        """Make the chat again from the message with this number on, up to what is incomplete."""
        first = min(first, self._made)
        if first < len(self._in_order):
            recorded = self._in_order[first]
            del self._pieces[recorded.pieces :]
            del self._prompts[recorded.prompts :]
        complete = True
        for recorded in self._in_order[first:]:
            recorded.pieces, recorded.prompts = len(self._pieces), len(self._prompts)
            said = recorded.said()
            if said is not None:
                self._prompts.append((recorded.key, said))
            if complete:
                self._made = recorded.number
                complete = self._add(recorded, said)
        if complete:
            self._made = len(self._in_order)

    def _add(self, recorded: "_Recorded", said: str | None) -> bool:
        """Add what a message says; return whether that is complete."""
        key, message = recorded.key, recorded.message
        if said is not None:
            self._pieces.append(Piece(key, "user", "text", said, recorded.created, prompt=True))
        if message.role != "assistant":
            return True
        closed = "completed" in message.time or recorded is not self._in_order[-1]
        for name, part in recorded.parts.items():
            if not closed and not _is_complete(part):
                self._pieces += _told(name, part) if part.type == "tool" else []
                return False
            self._pieces += _told(name, part)
        error = message.error
        if isinstance(error, dict):
            ended = _number(message.time.get("completed")) or recorded.created
            self._pieces.append(Piece(f"{key} error", "system", "text", _reason(error), ended))
        return True


def _told(key: str, part: _Part) -> list[Piece]:
    """Return the messages that a part has been so far."""
    if part.type in {"text", "reasoning"} and part.text and not part.synthetic:
        kind: Kind = "text" if part.type == "text" else "thinking"
        return [Piece(key, "assistant", kind, part.text, _number(part.time.get("start")))]
    if part.type != "tool" or part.state.get("status") not in _TOLD:
        return []
    state = part.state
    call = {"id": part.call_id, "name": part.tool, "input": state.get("input")}
    content = as_json(call)
    pieces = [Piece(key, "assistant", "tool_call", content, _time(state, "start"))]
    if state["status"] != "running":
        result = str(state.get("output" if state["status"] == "completed" else "error") or "")
        pieces.append(Piece(f"{key} result", "tool", "tool_result", result, _time(state, "end")))
    return pieces


def _is_complete(part: _Part) -> bool:
    if part.type in {"text", "reasoning"}:
        return "end" in part.time
    return part.type != "tool" or part.state.get("status") in ("completed", "error")


def _reason(error: dict[str, Any]) -> str:
    data = error.get("data")
    said = data.get("message") if isinstance(data, dict) else None
    return str(said or error.get("name") or "The turn has failed")


def _time(state: dict[str, Any], name: str) -> int:
    times = state.get("time")
    return _number(times.get(name)) if isinstance(times, dict) else 0


def _decoded(data: object, kind: type[_Row], key: str) -> _Row:
    """Return the data of a row; an empty one where it is too long, or cannot be read."""
    try:
        return msgspec.json.decode(data if isinstance(data, bytes) else b"", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _log.warning("record row skipped", row=key, error=str(error))
        return kind()


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
