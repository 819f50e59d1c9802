"""Claude Code's transcript (`projects/**/<id>.jsonl`) and state file (`sessions/<pid>.json`).

The state file of a process says whether Claude Code is busy, waiting or idle. Neither file is
documented, so every field is optional here; callers fall back on the screen.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.contract.resources import FileDiff, Role, Tool, ToolStatus
from outrider.machine.agents.cli.transcripts.transcript import (
    Activity,
    JsonLinesTranscript,
    Piece,
    ToolCall,
    milliseconds,
    read_small_file,
    text_of,
)
from outrider.machine.agents.tools import file_diff, hunks_diff

ORPHAN_WAIT: Final = 2.0
"""Seconds that an entry waits for its parent; then it is processed without the parent."""

_INTERRUPTED: Final = "[Request interrupted by user"
_NO_PROMPT_PREFIXES: Final = ("<bash-", "<command-", "<local-command-")
_EXIT_CODE: Final = re.compile(r"(?:Error: )?Exit code (\d{1,10})\b")
_EXIT: Final = "<command-name>/exit<"
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
    is_error: bool | None = None


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
    tool_use_result: Any = None


class _Hunk(msgspec.Struct, rename="camel", kw_only=True):
    old_start: int
    new_start: int
    lines: list[str]


class _ProcessState(msgspec.Struct, rename="camel", kw_only=True):
    session_id: str = ""
    status: str | None = None
    status_updated_at: int = 0


class ClaudeTranscript(JsonLinesTranscript[_Entry]):
    """One conversation of Claude Code.

    Args:
        environment: the agent's; HOME and CLAUDE_CONFIG_DIR locate its files.
        conversation: the UUID that Claude Code was started with.
        clock: returns seconds, as `time.monotonic` does.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        conversation: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(environment, conversation, _Entry)
        self._clock = clock
        self._root = Path(environment.get("CLAUDE_CONFIG_DIR") or self._home / ".claude")
        self._state_decoder = msgspec.json.Decoder(_ProcessState)
        self._state_path: Path | None = None
        self._processed_ids: set[str] = set()
        self._orphans: dict[str, list[_Entry]] = {}  # by the id of the missing parent
        self._missing_parents: deque[tuple[float, str]] = deque()  # since when, and its id
        self._prompt_time = 0
        self._turn_is_open = False
        self._is_exiting = False

    def _find(self) -> Path | None:
        # Claude Code sorts its files by directory, but the id is unique.
        return next((self._root / "projects").glob(f"*/{self._conversation}.jsonl"), None)

    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more."""
        has_more = super().poll()
        missing = self._missing_parents
        while missing and self._clock() - missing[0][0] > ORPHAN_WAIT:
            self._process_children(missing.popleft()[1])
        return has_more

    def activity(self) -> Activity | None:
        """Return the state by the state file; without one, by the transcript."""
        state = self._process_state()
        if state is None or state.status not in _ACTIVITIES:
            if not self._is_in_turn():
                return "idle"
            return "busy" if self._calls else None
        activity = _ACTIVITIES[state.status]
        if activity == "idle" and self._is_in_turn():
            # Either Claude Code was just given a message and has not updated its state file yet,
            # or it has not yet written the end of the turn to the transcript. The latter may
            # never come: a turn that was interrupted has no end there.
            return "busy" if state.status_updated_at < self._prompt_time else None
        return activity

    def _is_in_turn(self) -> bool:
        return self._turn_is_open and self._prompt_time >= self._resumed

    def _normalize(self, text: str) -> str:
        """Return `text` as Claude Code's input changes it: tabs become spaces, ends are trimmed."""
        return text.replace("\t", "    ").strip()

    def _process_state(self) -> _ProcessState | None:
        """Return the content of the state file that belongs to this conversation.

        A Claude Code that was killed has left its own, which a resumed one does not remove.
        """
        paths = [self._state_path] if self._state_path else (self._root / "sessions").glob("*.json")
        for path in paths:
            try:
                state = self._state_decoder.decode(read_small_file(path))
            except (OSError, UnicodeError, RecursionError, msgspec.DecodeError):
                continue  # deleted, or being written: the next poll reads it
            is_current = state.status_updated_at >= self._resumed
            if state.session_id == self._conversation and is_current:
                self._state_path = path
                return state
        self._state_path = None
        return None

    def _process(self, entry: _Entry) -> None:
        """Process an entry, but not before its parent.

        Claude Code writes the first entries of a file concurrently: an answer may precede its
        question there. Messages must be in order from the start, because an index that was
        returned once never changes; so an entry whose parent is missing waits for it:

            file:   answer(parent=q)   question(uuid=q)
            here:   ─▶ _orphans[q]     ─▶ processed, then its orphans
        """
        parent = entry.parent_uuid
        if parent is not None and parent not in self._processed_ids:
            self._orphans.setdefault(parent, []).append(entry)
            self._missing_parents.append((self._clock(), parent))
            return
        self._process_entry(entry)
        self._process_children(entry.uuid)

    def _process_children(self, parent: str | None) -> None:
        """Process the entries that wait for this parent, and their descendants."""
        parents = deque([parent])
        while parents:
            for child in self._orphans.pop(parents.popleft() or "", ()):
                self._process_entry(child)
                parents.append(child.uuid)

    def _process_entry(self, entry: _Entry) -> None:
        if entry.ai_title:
            self.title = entry.ai_title
        key = entry.uuid
        if key is None or key in self._processed_ids:
            return
        self._processed_ids.add(key)
        if entry.is_sidechain:
            return
        if entry.type == "system" and entry.subtype == "turn_duration":
            self._turn_is_open = False
        at = milliseconds(entry.timestamp)
        match entry.type:
            case "user" if entry.message is not None:
                self._add_user_message(entry, entry.message, key, at)
            case "assistant" if entry.message is not None:
                self._add_assistant_message(entry, entry.message, key, at)
            case "system" if isinstance(entry.content, str) and entry.content.strip():
                self._pieces.append(Piece(key, "system", "text", entry.content, at))

    def _add_user_message(self, entry: _Entry, body: _Body, key: str, at: int) -> None:
        blocks = _blocks(body)
        texts = [block.text for block in blocks if block.type == "text"]
        if entry.is_meta or self._is_exit(texts):
            return
        has_text = bool(texts) and not any(block.type == "tool_result" for block in blocks)
        is_interruption = has_text and texts[0].startswith(_INTERRUPTED)
        is_message = has_text and not (is_interruption or entry.is_compact_summary)
        prompt = is_message and not texts[0].startswith(_NO_PROMPT_PREFIXES)
        for part, block in enumerate(blocks):
            if block.type == "tool_result":
                self._calls.pop(block.tool_use_id, None)
                result = text_of(block.content)
                tool = self._end_tool(block, entry.tool_use_result, result, at)
                self._pieces.append(
                    Piece(f"{key} {part}", "tool", "tool_result", result, at, tool=tool)
                )
            elif block.type == "text":
                first = prompt and block.text is texts[0]
                role: Role = "user" if prompt else "system"
                piece_key = key if first else f"{key} {part}"
                self._pieces.append(Piece(piece_key, role, "text", block.text, at, prompt=first))
        if is_interruption:
            self._turn_is_open = False
            self._calls.clear()
            self._end_calls("failed")
        if prompt:
            self._prompts.append((key, "\n".join(texts)))
            self._prompt_time, self._turn_is_open, self.failure = at, True, None
            self._calls.clear()
            self._end_calls(None)

    def _end_tool(self, block: _Block, outcome: Any, text: str, at: int) -> Tool | None:
        """Return the tool call that has ended with this result.

        A command's exit code is recorded only if it is not 0, in the text of the result.
        """
        details = outcome if isinstance(outcome, dict) else {}
        is_failed = bool(block.is_error or details.get("interrupted"))
        exit_code = None
        if match := _EXIT_CODE.match(text) if is_failed else None:
            exit_code = int(match[1])
        elif not is_failed and "stdout" in details and not details.get("backgroundTaskId"):
            exit_code = 0
        status: ToolStatus = "failed" if is_failed else "completed"
        diff = _diff(details)
        return self._end_call(block.tool_use_id, status, at, exit_code=exit_code, diff=diff)

    def _is_exit(self, texts: Sequence[str]) -> bool:
        """Return whether this is the command that ends Claude Code, or what it printed.

        A session that is stopped and resumed has them in the middle of its chat.
        """
        text = texts[0] if texts else ""
        self._is_exiting = text.startswith(_EXIT) or (
            self._is_exiting and text.startswith("<local-command-")
        )
        return self._is_exiting

    def _add_assistant_message(self, entry: _Entry, body: _Body, key: str, at: int) -> None:
        is_error = entry.is_api_error_message
        if not is_error and body.model and body.model != "<synthetic>":
            self.model = body.model
        for part, block in enumerate(_blocks(body)):
            piece_key = f"{key} {part}"
            match block.type:
                case "text":
                    role: Role = "system" if is_error else "assistant"
                    self._pieces.append(Piece(piece_key, role, "text", block.text, at))
                    if is_error:
                        self.failure = block.text
                case "thinking":
                    thought = block.thinking
                    self._pieces.append(Piece(piece_key, "assistant", "thinking", thought, at))
                case "tool_use":
                    self._add_call(piece_key, block.id, block.name, block.input, at)
                    self._calls[block.id] = ToolCall(block.id, at)


def _blocks(body: _Body) -> list[_Block]:
    if isinstance(body.content, str):
        return [_Block(type="text", text=body.content)]
    return body.content


def _diff(details: Mapping[str, Any]) -> list[FileDiff]:
    """Return the changes that the result of an edit has."""
    path, hunks = details.get("filePath"), details.get("structuredPatch")
    if not isinstance(path, str) or not isinstance(hunks, list):
        return []
    if not hunks and details.get("type") == "create" and isinstance(details.get("content"), str):
        return [file_diff(path, None, details["content"])]
    try:
        patch = msgspec.convert(hunks, list[_Hunk])
    except msgspec.ValidationError:
        return []
    return [hunks_diff(path, [(hunk.old_start, hunk.new_start, hunk.lines) for hunk in patch])]
