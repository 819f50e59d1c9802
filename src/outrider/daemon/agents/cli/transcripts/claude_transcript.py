"""Claude Code's own records: the conversation (`projects/**/<id>.jsonl`), and what it is doing.

Beside each conversation Claude Code keeps `sessions/<pid>.json`, where it says of itself that
it is busy, waiting or idle. Neither file is documented, so every field is optional here, and
whoever asks has the screen to fall back on.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.daemon.agents.chat_log import Role
from outrider.daemon.agents.cli.transcripts.transcript import (
    Activity,
    Piece,
    Reader,
    Tail,
    ToolCall,
    as_json,
    milliseconds,
    read_small_file,
)

ORPHAN_WAIT: Final = 2.0
"""Seconds that an entry waits for its parent; one that has none in the file goes on then."""

_INTERRUPTED: Final = "[Request interrupted by user"
_NOT_PROMPTS: Final = ("<bash-", "<command-", "<local-command-")
_ACTIVITIES: Final[dict[str, Activity]] = {"busy": "busy", "waiting": "waiting", "idle": "idle"}


class _Block(msgspec.Struct, kw_only=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None


class _Body(msgspec.Struct, kw_only=True):
    model: str | None = None
    content: str | list[_Block] = ""


class _Entry(msgspec.Struct, rename="camel", kw_only=True):
    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    timestamp: str | None = None
    message: _Body | None = None
    content: Any = None
    ai_title: str | None = None
    is_sidechain: bool = False
    is_meta: bool = False
    is_compact_summary: bool = False
    is_api_error_message: bool = False


class _Running(msgspec.Struct, rename="camel", kw_only=True):
    session_id: str = ""
    status: str | None = None
    status_updated_at: int = 0


class ClaudeTranscript(Reader):
    """One conversation of Claude Code.

    Args:
        environment: the agent's; HOME and CLAUDE_CONFIG_DIR say where its records are.
        directory: the agent's (Claude Code files by it, but the id is enough to find it).
        conversation: the UUID that it was started with.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path, conversation: str) -> None:
        del directory
        super().__init__(conversation)
        home = Path(environment.get("HOME") or Path.home())
        self._root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        self._tail: Tail | None = None
        self._decoder = msgspec.json.Decoder(_Entry)
        self._state = msgspec.json.Decoder(_Running)
        self._state_path: Path | None = None
        self._seen: set[str] = set()
        self._waiting: dict[str, list[_Entry]] = {}  # by the parent that they wait for
        self._awaited: deque[tuple[float, str]] = deque()  # such parents, and since when
        self._calls: dict[str, ToolCall] = {}
        self._prompted_at = 0
        self._open = False

    def poll(self) -> bool:
        """Read what has been recorded since the last time; return whether there is more."""
        if self._tail is None:
            name = f"{self._conversation}.jsonl"
            path = next((self._root / "projects").glob(f"*/{name}"), None)
            if path is None:
                return False
            self._tail = Tail(path, self._leave_out)
        for entry in self._tail.records(self._decoder):
            self._place(entry)
        while self._awaited and time.monotonic() - self._awaited[0][0] > ORPHAN_WAIT:
            self._take_children(self._awaited.popleft()[1])
        return self._tail.behind

    def activity(self) -> Activity | None:
        """Return what Claude Code says of itself, or what the newest turn's end tells."""
        running = self._running()
        if running is None or running.status not in _ACTIVITIES:
            return "busy" if self._open and self._calls else None if self._open else "idle"
        said = _ACTIVITIES[running.status]
        if said == "idle" and self._open:
            # Either it has just been told something and has not said so yet, or the record of
            # the answer is about to be written; a turn that was interrupted has no end in it.
            return "busy" if running.status_updated_at < self._prompted_at else None
        return said

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""
        return list(self._calls.values())

    def _comparable(self, text: str) -> str:
        """Return a text as Claude Code's input changes it: tabs are spaces, the end is trimmed."""
        return text.replace("\t", "    ").strip()

    def _running(self) -> _Running | None:
        """Return what the file of the process that holds this conversation says."""
        paths = [self._state_path] if self._state_path else (self._root / "sessions").glob("*.json")
        for path in paths:
            try:
                running = self._state.decode(read_small_file(path))
            except (OSError, UnicodeError, RecursionError, msgspec.DecodeError):
                continue  # gone, or being written: the next look finds it
            if running.session_id == self._conversation:
                self._state_path = path
                return running
        self._state_path = None
        return None

    def _place(self, entry: _Entry) -> None:
        """Take an entry, but not before its parent.

        Claude Code writes the first entries of a file without waiting for one another: an
        answer may stand before its question there.
        """
        parent = entry.parent_uuid
        if parent is not None and parent not in self._seen:
            self._waiting.setdefault(parent, []).append(entry)
            self._awaited.append((time.monotonic(), parent))
            return
        self._take(entry)
        self._take_children(entry.uuid)

    def _take_children(self, parent: str | None) -> None:
        """Take what waits for this entry, what waits for those, and so on."""
        parents = deque([parent])
        while parents:
            for child in self._waiting.pop(parents.popleft() or "", ()):
                self._take(child)
                parents.append(child.uuid)

    def _take(self, entry: _Entry) -> None:
        if entry.ai_title:
            self.title = entry.ai_title
        key = entry.uuid
        if key is None or key in self._seen:
            return
        self._seen.add(key)
        if entry.is_sidechain:
            return
        if entry.type == "system" and entry.subtype == "turn_duration":
            self._open = False
        at = milliseconds(entry.timestamp)
        match entry.type:
            case "user" if entry.message is not None:
                self._take_user(entry, entry.message, key, at)
            case "assistant" if entry.message is not None:
                self._take_assistant(entry, entry.message, key, at)
            case "system" if isinstance(entry.content, str) and entry.content.strip():
                self._pieces.append(Piece(key, "system", "text", entry.content, at))

    def _take_user(self, entry: _Entry, body: _Body, key: str, at: int) -> None:
        blocks = _blocks(body)
        texts = [block.text for block in blocks if block.type == "text"]
        if entry.is_meta:
            return
        said = bool(texts) and not any(block.type == "tool_result" for block in blocks)
        interrupted = said and texts[0].startswith(_INTERRUPTED)
        plain = said and not (interrupted or entry.is_compact_summary)
        prompt = plain and not texts[0].startswith(_NOT_PROMPTS)
        for part, block in enumerate(blocks):
            if block.type == "tool_result":
                self._calls.pop(block.tool_use_id, None)
                result = _text(block.content)
                self._pieces.append(Piece(f"{key} {part}", "tool", "tool_result", result, at))
            elif block.type == "text":
                first = prompt and block.text is texts[0]
                role: Role = "user" if prompt else "system"
                own = key if first else f"{key} {part}"
                self._pieces.append(Piece(own, role, "text", block.text, at, prompt=first))
        if interrupted:
            self._open = False
            self._calls.clear()
        if prompt:
            self._prompts.append((key, "\n".join(texts)))
            self._prompted_at, self._open, self.failure = at, True, None
            self._calls.clear()

    def _take_assistant(self, entry: _Entry, body: _Body, key: str, at: int) -> None:
        failed = entry.is_api_error_message
        if not failed and body.model and body.model != "<synthetic>":
            self.model = body.model
        for part, block in enumerate(_blocks(body)):
            own = f"{key} {part}"
            match block.type:
                case "text":
                    role: Role = "system" if failed else "assistant"
                    self._pieces.append(Piece(own, role, "text", block.text, at))
                    if failed:
                        self.failure = block.text
                case "thinking":
                    self._pieces.append(Piece(own, "assistant", "thinking", block.thinking, at))
                case "tool_use":
                    call = {"id": block.id, "name": block.name, "input": block.input}
                    content = as_json(call)
                    self._pieces.append(Piece(own, "assistant", "tool_call", content, at))
                    self._calls[block.id] = ToolCall(block.id, at)


def _blocks(body: _Body) -> list[_Block]:
    if isinstance(body.content, str):
        return [_Block(type="text", text=body.content)]
    return body.content


def _text(content: Any) -> str:
    """Return a tool's result as text: it is a string, or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (block.get("text", "") for block in content if isinstance(block, dict))
        return "\n".join(text for text in texts if isinstance(text, str) and text)
    return "" if content is None else as_json(content)
