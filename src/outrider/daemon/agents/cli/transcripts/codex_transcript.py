"""Codex's own record: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`.

It begins with the first message. It tells exactly when a turn begins and ends, and names each
tool call before Codex asks about it. Which thread is ours only the running Codex tells, by the
lock that it holds. The format is not documented, so every field is optional here.
"""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import psutil

from outrider.daemon.agents.cli.transcripts.transcript import (
    Activity,
    Piece,
    Reader,
    Tail,
    ToolCall,
    as_json,
    milliseconds,
)

THREAD: Final = "CODEX_THREAD"
"""Where a session's record keeps the id of its thread."""

_LOCK: Final = re.compile(r"/thread-writer-locks/([0-9a-f-]{36})\.lock\Z")


class _Payload(msgspec.Struct, kw_only=True):
    type: str = ""
    role: str = ""
    content: Any = None
    summary: Any = None
    name: str = ""
    call_id: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    output: Any = None
    turn_id: str = ""
    item: Any = None
    model: str | None = None
    error: Any = None


class _Entry(msgspec.Struct, kw_only=True):
    timestamp: str | None = None
    ordinal: int | None = None
    type: str = ""
    payload: _Payload = msgspec.field(default_factory=_Payload)


class _Name(msgspec.Struct, kw_only=True):
    id: str = ""
    thread_name: str | None = None


class CodexTranscript(Reader):
    """One thread of Codex.

    Args:
        environment: the agent's, with what its session keeps: HOME and CODEX_HOME say where
            its records are, CODEX_THREAD which of them, once that is known.
        directory: the agent's; the record is not filed by it.
        conversation: the session's own id; Codex takes none.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path, conversation: str) -> None:
        del directory
        super().__init__(conversation)
        home = Path(environment.get("HOME") or Path.home())
        self._root = Path(environment.get("CODEX_HOME") or home / ".codex")
        self._thread = environment.get(THREAD)
        self._process: int | None = None
        self._kept: MutableMapping[str, str] = {}
        self._tail: Tail | None = None
        self._names = Tail(self._root / "session_index.jsonl")
        self._entries = msgspec.json.Decoder(_Entry)
        self._index = msgspec.json.Decoder(_Name)
        self._seen: set[str] = set()
        self._calls: dict[str, ToolCall] = {}
        self._open = False

    def find_by_process(self, pid: int, kept: MutableMapping[str, str]) -> None:
        """Find the thread by the process `pid`, and put its id into `kept`."""
        self._process, self._kept = pid, kept

    def poll(self) -> bool:
        """Read what has been recorded since the last time; return whether there is more."""
        if self._tail is None:
            path = self._find()
            if path is None:
                return False
            self._tail = Tail(path, self._leave_out)
        for entry in self._tail.records(self._entries):
            self._take(entry)
        for named in self._names.records(self._index):
            if named.id == self._thread:
                self.title = named.thread_name or self.title
        return self._tail.behind or self._names.behind

    def activity(self) -> Activity:
        """Return whether a turn has begun and not ended."""
        return "busy" if self._open else "idle"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""
        return list(self._calls.values())

    def _find(self) -> Path | None:
        """Return the record's file; a day has a folder, and the thread's id has its time."""
        if self._thread is None and self._process is not None:
            self._thread = _thread_of(self._process)
            if self._thread is not None:
                self._kept[THREAD] = self._thread
        if self._thread is None:
            return None
        try:
            began = datetime.fromtimestamp((UUID(self._thread).int >> 80) / 1000).astimezone()
        except (ValueError, OverflowError, OSError):
            return None  # no id of a thread: they begin with the time
        for days in (0, -1, 1):
            day = self._root / "sessions" / (began + timedelta(days=days)).strftime("%Y/%m/%d")
            found = next(day.glob(f"rollout-*-{self._thread}.jsonl"), None)
            if found is not None:
                return found
        return None

    def _take(self, entry: _Entry) -> None:
        key = str(len(self._seen) if entry.ordinal is None else entry.ordinal)
        if key in self._seen:
            return
        self._seen.add(key)
        at, payload = milliseconds(entry.timestamp), entry.payload
        match entry.type:
            case "turn_context":
                self.model = payload.model or self.model
            case "event_msg":
                self._take_event(payload, key, at)
            case "response_item":
                self._take_item(payload, key, at)

    def _take_event(self, event: _Payload, key: str, at: int) -> None:
        match event.type:
            case "task_started":
                self._open, self.failure = True, None
                self._calls.clear()
            case "turn_aborted":
                self._open = False
                self._calls.clear()
            case "task_complete":
                self._open = False
                self._calls.clear()
                if isinstance(event.error, dict):
                    self.failure = str(event.error.get("message") or "The turn has failed")
                    self._pieces.append(Piece(key, "system", "text", self.failure, at))
            case "item_completed" if isinstance(event.item, dict):
                if event.item.get("type") == "UserMessage":
                    own, text = str(event.item.get("id") or key), _text(event.item.get("content"))
                    self._prompts.append((own, text))
                    self._pieces.append(Piece(own, "user", "text", text, at, prompt=True))

    def _take_item(self, item: _Payload, key: str, at: int) -> None:
        kind = item.type
        if kind == "message" and item.role == "assistant":
            self._pieces.append(Piece(key, "assistant", "text", _text(item.content), at))
        elif kind == "reasoning" and (thought := _text(item.summary)):
            self._pieces.append(Piece(key, "assistant", "thinking", thought, at))
        elif kind.endswith("_call"):
            call = item.call_id or key
            given = next(
                (v for v in (item.arguments, item.input, item.action) if v is not None), None
            )
            told = {"id": call, "name": item.name or kind.removesuffix("_call"), "input": given}
            content = as_json(told)
            self._pieces.append(Piece(key, "assistant", "tool_call", content, at))
            if item.call_id is not None:  # without one, the model's own service has run it
                self._calls[call] = ToolCall(call, at)
        elif kind.endswith("_call_output"):
            self._calls.pop(item.call_id or "", None)
            self._pieces.append(Piece(key, "tool", "tool_result", _text(item.output), at))


def _thread_of(pid: int) -> str | None:
    """Return the thread that this Codex writes: the first one that it began."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    found = []
    for process in family:
        try:
            paths = [file.path for file in process.open_files()]
        except psutil.Error:
            continue
        found += [match[1] for path in paths if (match := _LOCK.search(path))]
    return min(found, default=None)  # their ids begin with the time


def _text(content: Any) -> str:
    """Return content as text: it is a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return "" if content is None else as_json(content)
