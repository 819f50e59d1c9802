"""opencode's own record: the messages and their parts in its database.

A message of the assistant is one step of a turn. A part is written when it begins and again
when it is complete; nothing is told here of a part before that, nor of those behind it, so
that what has been told never moves. The database is not documented, and only read.
"""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.daemon.agents.cli.transcripts.reader import Kind, Piece, Reader
from outrider.daemon.agents.cli.transcripts.record import Activity, ToolCall

_log = structlog.get_logger(__name__)

_OVERLAP: Final = 2000
"""Milliseconds before the newest change that are read again: changes may come out of order."""

_TICK: Final = 0.1
"""Seconds in which a file may change twice without another time of change."""

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
        self._messages: dict[str, tuple[int, _Message]] = {}
        self._parts: dict[str, dict[str, _Part]] = {}

    # What it shows

    def activity(self) -> Activity | None:
        """Return what the newest message tells; between two steps, and after a reject, nothing."""
        last = self._last()
        if last.role == "user":
            age = time.time() * 1000 - int(last.time.get("created", 0))
            return "busy" if age < _UNANSWERED else None
        if last.role != "assistant":
            return "idle"
        if "completed" not in last.time:
            return "busy"
        return None if last.finish in {"tool-calls", "unknown"} and not last.error else "idle"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""
        return [
            ToolCall(part.call_id, _time(part.state, "start"))
            for key in self._messages
            for part in self._parts.get(key, {}).values()
            if part.type == "tool" and part.state.get("status") == "running"
        ]

    def poll(self) -> None:
        """Read what has been recorded since the last time."""
        changed = self._state()
        if changed == self._changed:
            return
        try:
            self._read()
        except sqlite3.Error as error:
            _log.warning("the transcript could not be read", error=str(error))
            return
        self._changed = changed

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
            title = db.execute("SELECT title FROM session WHERE id = ?", wanted[:1]).fetchone()
            messages = db.execute(
                "SELECT id, time_created, time_updated, data FROM message "
                "WHERE session_id = ? AND time_updated >= ? ORDER BY time_created, id",
                wanted,
            ).fetchall()
            parts = db.execute(
                "SELECT id, message_id, time_updated, data FROM part "
                "WHERE session_id = ? AND time_updated >= ? ORDER BY id",
                wanted,
            ).fetchall()
        if title is not None and not title[0].startswith("New session"):
            self.title = title[0]
        for key, created, updated, data in messages:
            self._messages[key] = (created, msgspec.json.decode(data, type=_Message))
            self._newest = max(self._newest, updated)
        for key, message, updated, data in parts:
            self._parts.setdefault(message, {})[key] = msgspec.json.decode(data, type=_Part)
            self._newest = max(self._newest, updated)

        self._prompts = self._said()
        self._pieces = self._complete()
        answers = [m for _, m in self._messages.values() if m.role == "assistant"]
        self.model = next((m.model_id for m in reversed(answers) if m.model_id), None)
        error = self._last().error
        aborted = not isinstance(error, dict) or error.get("name") == "MessageAbortedError"
        self.failure = None if aborted else _reason(error)

    def _last(self) -> _Message:
        return next(reversed(self._messages.values()), (0, _Message()))[1]

    def _said(self) -> list[tuple[str, str]]:
        found = []
        for key, (_, message) in self._messages.items():
            texts = [
                part.text
                for part in self._parts.get(key, {}).values()
                if part.type == "text" and not part.synthetic
            ]
            if message.role == "user" and texts:
                found.append((key, "\n".join(texts)))
        return found

    def _complete(self) -> list[Piece]:
        """Return what is complete, up to the first part that is not."""
        pieces: list[Piece] = []
        said = dict(self._prompts)
        newest = next(reversed(self._messages), None)
        for key, (created, message) in self._messages.items():
            if key in said:
                pieces.append(Piece(key, "user", "text", said[key], created, prompt=True))
            if message.role != "assistant":
                continue
            closed = "completed" in message.time or key != newest
            for name, part in self._parts.get(key, {}).items():
                if closed or _is_complete(part):
                    pieces += _told(name, part)
                else:
                    return pieces + (_told(name, part) if part.type == "tool" else [])
            error = message.error
            if isinstance(error, dict):
                ended = _number(message.time.get("completed")) or created
                pieces.append(Piece(f"{key} error", "system", "text", _reason(error), ended))
        return pieces


def _told(key: str, part: _Part) -> list[Piece]:
    """Return the messages that a part has been so far."""
    if part.type in {"text", "reasoning"} and part.text and not part.synthetic:
        kind: Kind = "text" if part.type == "text" else "thinking"
        return [Piece(key, "assistant", kind, part.text, _number(part.time.get("start")))]
    if part.type != "tool" or part.state.get("status") not in {"running", "completed", "error"}:
        return []
    state = part.state
    call = {"id": part.call_id, "name": part.tool, "input": state.get("input")}
    content = msgspec.json.encode(call).decode()
    pieces = [Piece(key, "assistant", "tool_call", content, _time(state, "start"))]
    if state["status"] != "running":
        result = str(state.get("output" if state["status"] == "completed" else "error") or "")
        pieces.append(Piece(f"{key} result", "tool", "tool_result", result, _time(state, "end")))
    return pieces


def _is_complete(part: _Part) -> bool:
    if part.type in {"text", "reasoning"}:
        return "end" in part.time
    return part.type != "tool" or part.state.get("status") in {"completed", "error"}


def _reason(error: dict[str, Any]) -> str:
    data = error.get("data")
    said = data.get("message") if isinstance(data, dict) else None
    return str(said or error.get("name") or "The turn has failed")


def _time(state: dict[str, Any], name: str) -> int:
    times = state.get("time")
    return _number(times.get(name)) if isinstance(times, dict) else 0


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
