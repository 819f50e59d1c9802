"""Codex's transcript: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`.

Codex creates it with the first message. It records when each turn begins and ends, and each tool
call before Codex asks for its approval. The thread of a session is found through the lock file
that the running Codex has open. The format is not documented, so every field is optional here.
"""

import re
from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import psutil

from outrider.contract.resources import FileDiff, Tool, ToolStatus
from outrider.machine.agents.cli.transcripts.transcript import (
    Activity,
    JsonLinesTranscript,
    Piece,
    Tail,
    ToolCall,
    milliseconds,
    text_of,
)
from outrider.machine.agents.tools import exit_code_in, file_diff, patch_diff

THREAD: Final = "CODEX_THREAD"
"""The key of the thread's id in a session's adapter state."""

_EXIT_CODE: Final = re.compile(
    r"^(?:Exit code:|Process exited with code) (-?\d{1,10})$", re.MULTILINE
)
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
    exit_code: Any = None
    success: Any = None
    changes: Any = None


class _Entry(msgspec.Struct, kw_only=True):
    timestamp: str | None = None
    ordinal: int | None = None
    type: str = ""
    payload: _Payload = msgspec.field(default_factory=_Payload)


class _ThreadName(msgspec.Struct, kw_only=True):
    id: str = ""
    thread_name: str | None = None


class CodexTranscript(JsonLinesTranscript[_Entry]):
    """One thread of Codex.

    Args:
        environment: the agent's, with the session's adapter state: HOME and CODEX_HOME locate the
            files, CODEX_THREAD is the id of the thread, once that is known.
        conversation: derived from the session's id; Codex cannot be given an id.
    """

    def __init__(self, environment: Mapping[str, str], conversation: str) -> None:
        super().__init__(environment, conversation, _Entry)
        self._root = Path(environment.get("CODEX_HOME") or self._home / ".codex")
        self._thread = environment.get(THREAD)
        self._pid: int | None = None
        self._adapter_state: MutableMapping[str, str] = {}
        self._names = Tail(self._root / "session_index.jsonl")
        self._name_decoder = msgspec.json.Decoder(_ThreadName)
        self._processed_keys: set[str] = set()
        self._outcomes: dict[str, _Payload] = {}  # by the id of the call
        self._turn_is_open = False
        self._turn_start = 0

    def find_by_process(self, pid: int, state: MutableMapping[str, str]) -> None:
        """Find the thread through the process `pid`, and save its id in `state`."""
        self._pid, self._adapter_state = pid, state

    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more."""
        has_more = super().poll()
        for name in self._names.entries(self._name_decoder) if self._tail is not None else ():
            if name.id == self._thread:
                self.title = name.thread_name or self.title
        return has_more or self._names.has_more

    def activity(self) -> Activity:
        """Return `busy` from the start of a turn to its end, else `idle`."""
        return "busy" if self._turn_is_open and self._turn_start >= self._resumed else "idle"

    def _find(self) -> Path | None:
        """Return the file of the thread: folders are by day, and the thread's id has its time."""
        if self._thread is None and self._pid is not None:
            self._thread = _find_thread(self._pid)
            if self._thread is not None:
                self._adapter_state[THREAD] = self._thread
        if self._thread is None:
            return None
        try:
            start = datetime.fromtimestamp((UUID(self._thread).int >> 80) / 1000).astimezone()
        except (ValueError, OverflowError, OSError):
            return None  # not the id of a thread, which begins with a time
        for days in (0, -1, 1):  # the day depends on the time zone
            day = self._root / "sessions" / (start + timedelta(days=days)).strftime("%Y/%m/%d")
            matches = next(day.glob(f"rollout-*-{self._thread}.jsonl"), None)
            if matches is not None:
                return matches
        return None

    def _process(self, entry: _Entry) -> None:
        key = str(len(self._processed_keys) if entry.ordinal is None else entry.ordinal)
        if key in self._processed_keys:
            return
        self._processed_keys.add(key)
        at, payload = milliseconds(entry.timestamp), entry.payload
        match entry.type:
            case "turn_context":
                self.model = payload.model or self.model
            case "event_msg":
                self._process_event(payload, key, at)
            case "response_item":
                self._process_item(payload, key, at)

    def _process_event(self, event: _Payload, key: str, at: int) -> None:
        match event.type:
            case "task_started":
                self._turn_is_open, self._turn_start, self.failure = True, at, None
                self._clear_calls(None)
            case "turn_aborted":
                self._turn_is_open = False
                self._clear_calls("failed")
            case "exec_command_end" | "patch_apply_end" if event.call_id is not None:
                self._outcomes[event.call_id] = event
            case "task_complete":
                self._turn_is_open = False
                self._clear_calls(None)
                if isinstance(event.error, dict):
                    self.failure = str(event.error.get("message") or "The turn has failed")
                    self._pieces.append(Piece(key, "system", "text", self.failure, at))
            case "item_completed" if isinstance(event.item, dict):
                if event.item.get("type") == "UserMessage":
                    prompt_key = str(event.item.get("id") or key)
                    text = text_of(event.item.get("content"))
                    self._prompts.append((prompt_key, text))
                    self._pieces.append(Piece(prompt_key, "user", "text", text, at, prompt=True))

    def _process_item(self, item: _Payload, key: str, at: int) -> None:
        kind = item.type
        if kind == "message" and item.role == "assistant":
            self._pieces.append(Piece(key, "assistant", "text", text_of(item.content), at))
        elif kind == "reasoning" and (thought := text_of(item.summary)):
            self._pieces.append(Piece(key, "assistant", "thinking", thought, at))
        elif kind.endswith("_call"):
            call = item.call_id or key
            arguments = next(
                (v for v in (item.arguments, item.input, item.action) if v is not None), None
            )
            name = item.name or kind.removesuffix("_call")
            self._add_call(key, call, name, arguments, at)
            if item.call_id is not None:  # without an id, the model's service has run the tool
                self._calls[call] = ToolCall(call, at)
        elif kind.endswith("_call_output"):
            self._calls.pop(item.call_id or "", None)
            text = text_of(item.output)
            tool = self._end_tool(item.call_id or "", text, at)
            self._pieces.append(Piece(key, "tool", "tool_result", text, at, tool=tool))

    def _end_tool(self, call: str, text: str, at: int) -> Tool | None:
        """Return the tool call that has ended; Codex does not always record how."""
        outcome = self._outcomes.pop(call, _Payload())
        code = outcome.exit_code
        if not isinstance(code, int):
            code = _exit_code(text)
        status: ToolStatus | None = None if code is None else "completed"
        if isinstance(outcome.success, bool):
            status = "completed" if outcome.success else "failed"
        return self._end_call(call, status, at, exit_code=code, diff=_diff(outcome.changes))

    def _clear_calls(self, status: ToolStatus | None) -> None:
        self._calls.clear()
        self._outcomes.clear()
        self._end_calls(status)


def _find_thread(pid: int) -> str | None:
    """Return the id of the first thread that this Codex process or a child of it has open."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    matches = []
    for process in family:
        try:
            paths = [file.path for file in process.open_files()]
        except psutil.Error:
            continue
        matches += [match[1] for path in paths if (match := _LOCK.search(path))]
    return min(matches, default=None)  # ids begin with the time: the smallest is the oldest


def _exit_code(text: str) -> int | None:
    """Return the exit code that is above the output of a command."""
    if text.startswith("{"):
        try:
            return exit_code_in(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            return None
    match = _EXIT_CODE.search(text.partition("\nOutput:\n")[0])
    return None if match is None else int(match[1])


def _diff(changes: Any) -> list[FileDiff]:
    """Return the changes of a patch that was applied, by their files."""
    diffs = []
    for path, change in changes.items() if isinstance(changes, dict) else ():
        if not isinstance(change, dict):
            continue
        patch, content = change.get("unified_diff"), change.get("content")
        if isinstance(patch, str):
            diffs.append(patch_diff(path, patch))
        elif isinstance(content, str):
            is_new = change.get("type") == "add"
            diffs.append(file_diff(path, *((None, content) if is_new else (content, None))))
    return diffs
