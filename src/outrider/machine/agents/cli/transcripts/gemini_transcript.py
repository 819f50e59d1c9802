"""Gemini CLI's transcript of a chat: `tmp/<project>/chats/session-*.jsonl`.

Each line is a new message, a longer version of an earlier message, or a change of the model's
context. Context is not part of the chat: when a request is cancelled, Gemini writes the whole
history again under new ids. Such a replay begins with a context message and is skipped
(`_process`). The format is not documented, so every field is optional here.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.contract.resources import FileDiff, Tool, ToolStatus
from outrider.machine.agents.cli.transcripts.transcript import (
    Activity,
    JsonLinesTranscript,
    Piece,
    Tail,
    ToolCall,
    as_json,
    milliseconds,
    read_small_file,
)
from outrider.machine.agents.tools import file_diff

REPLAY_LIMIT: Final = 5000
"""Milliseconds that Gemini takes to write its history again, at most."""

_CONTEXT: Final = ("<session_context>", "<state_snapshot>")
_STATUSES: Final[dict[str, ToolStatus]] = {
    "success": "completed",
    "error": "failed",
    "cancelled": "failed",
}
_EXIT_CODE: Final = re.compile(r"^Exit Code: (-?\d{1,10})$", re.MULTILINE)
_PADDING: Final = " \t\n\u2060"


class _Call(msgspec.Struct, kw_only=True):
    id: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
    status: str = ""
    result_display: Any = msgspec.field(name="resultDisplay", default=None)
    timestamp: str | None = None


class _Thought(msgspec.Struct, kw_only=True):
    subject: str = ""
    description: str = ""


class _Changes(msgspec.Struct, kw_only=True):
    messages: list[Any] | None = None
    summary: str | None = None


class _Line(msgspec.Struct, rename="camel", kw_only=True):
    session_id: str | None = None
    changes: _Changes | None = msgspec.field(name="$set", default=None)
    id: str | None = None
    type: str = ""
    timestamp: str | None = None
    content: Any = None
    display_content: Any = None
    thoughts: list[_Thought] | None = None
    tool_calls: list[_Call] | None = None
    model: str | None = None


class GeminiTranscript(JsonLinesTranscript[_Line]):
    """One conversation of Gemini CLI.

    Args:
        environment: the agent's; HOME and GEMINI_CLI_HOME locate its files.
        conversation: the UUID that Gemini was started with.
    """

    def __init__(self, environment: Mapping[str, str], conversation: str) -> None:
        super().__init__(environment, conversation, _Line)
        self._root = Path(environment.get("GEMINI_CLI_HOME") or self._home) / ".gemini" / "tmp"
        self._piece_keys: set[str] = set()
        self._completed_calls = 0
        self._prompt_time = 0
        self._replay_since: int | None = None

    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more."""
        if self._tail is not None and not self._tail.path.exists():
            path = self._find()  # Gemini starts another file when it restarts itself
            if path is None:
                return False
            self._tail = Tail(path, self._add_omission_note)
        return super().poll()

    def activity(self) -> Activity | None:
        """Return `busy` just after a message was accepted, else None: the screen decides."""
        return self._busy_after_acceptance()

    def open_calls(self) -> Sequence[ToolCall]:
        """Return a placeholder for the tool call that Gemini may ask about.

        Gemini records a call when it is complete. Until then, the call is identified by the
        message that it belongs to and the number of calls that were completed before it.
        """
        if not self._prompts:
            return []
        return [ToolCall(f"{self._prompts[-1][0]}/{self._completed_calls}", self._prompt_time)]

    def _normalize(self, text: str) -> str:
        """Return `text` without the white space that Gemini adds."""
        return text.strip(_PADDING)

    def _find(self) -> Path | None:
        """Return the file of this conversation that has the chat; without a chat, the newest.

        A Gemini that resumes a conversation writes to its old file, and leaves an empty one. One
        that starts deletes the files of its project that have no message yet, those of running
        Geminis too: these go on with a file of that name, without the line that has the id.
        """
        files: list[tuple[bool, Path]] = []
        for path in self._root.glob(f"*/chats/session-*-{self._conversation[:8]}.jsonl"):
            lines = list(self._first_lines(path))
            if lines and lines[0].session_id in (self._conversation, None):
                files.append((any(_is_prompt(line) for line in lines), path))
        return max(files)[1] if files else None

    def _first_lines(self, path: Path) -> Iterator[_Line]:
        """Yield the lines of a file up to the first that cannot be read, of 1 MiB at most."""
        with contextlib.suppress(OSError, UnicodeError, RecursionError, msgspec.DecodeError):
            for line in read_small_file(path).splitlines():
                yield self._decoder.decode(line)

    def _process(self, line: _Line) -> None:
        if line.changes is not None:
            if line.changes.messages is not None:
                self._replay_since = None
            self.title = line.changes.summary or self.title
            return
        if line.id is None:
            return
        at = milliseconds(line.timestamp)
        if line.type == "user" and _text(line.content).startswith(_CONTEXT):
            self._replay_since = at
        # A replay ends with a change of the context (above). If none is written, the first line
        # more than `REPLAY_LIMIT` after the start of the replay is a new one.
        if self._replay_since is not None and at - self._replay_since <= REPLAY_LIMIT:
            return
        self._replay_since = None
        match line.type:
            case "user":
                self._add_user_message(line, line.id, at)
            case "gemini" if isinstance(line.content, str):
                self._add_answer(line, line.id, line.content, at)
            case "info" | "warning" | "error" if isinstance(line.content, str):
                self._accepted_at = None
                self._add(Piece(line.id, "system", "text", line.content, at))
                if line.type == "error":
                    self.failure = line.content

    def _add_user_message(self, line: _Line, key: str, at: int) -> None:
        text = _text(line.display_content) or _text(line.content)
        if not text:
            return  # the result of a tool, which is also recorded with the call
        if self._add(Piece(key, "user", "text", text, at, prompt=True)):
            self._prompts.append((key, text))
            self._prompt_time = at
            self._accepted_at = time.monotonic()
            self.failure = None

    def _add_answer(self, line: _Line, key: str, text: str, at: int) -> None:
        self._accepted_at = None
        self.model = line.model or self.model
        for number, thought in enumerate(line.thoughts or []):
            content = "\n".join(filter(None, (thought.subject, thought.description)))
            self._add(Piece(f"{key} thought {number}", "assistant", "thinking", content, at))
        if text:
            self._add(Piece(key, "assistant", "text", text, at))
        for call in line.tool_calls or []:
            when = milliseconds(call.timestamp) or at
            call_key, result_key = f"{key} call {call.id}", f"{key} result {call.id}"
            if call_key not in self._piece_keys:
                self._piece_keys.add(call_key)
                self._add_call(call_key, call.id, call.name, call.args, when)
            if call.result is not None and result_key not in self._piece_keys:
                result = _result_text(call)
                tool = self._end_tool(call, result, when)
                self._add(Piece(result_key, "tool", "tool_result", result, when, tool=tool))
                self._completed_calls += 1
            elif call.status == "cancelled":
                self._end_call(call.id, "failed", when)

    def _end_tool(self, call: _Call, text: str, at: int) -> Tool | None:
        """Return the tool call that has ended; its exit code is recorded if it is not 0."""
        status = _STATUSES.get(call.status)
        exit_code = None
        if call.name == "run_shell_command" and status == "completed":
            codes = _EXIT_CODE.findall(text)
            exit_code = int(codes[-1]) if codes else None  # above it is what the command printed
        return self._end_call(call.id, status, at, exit_code=exit_code, diff=_diff(call))

    def _add(self, piece: Piece) -> bool:
        """Add a piece unless it was added before; return whether it is new.

        Gemini writes a message again when it has grown, so most pieces of a line are known.
        """
        if piece.key in self._piece_keys:
            return False
        self._piece_keys.add(piece.key)
        self._pieces.append(piece)
        return True


def _is_prompt(line: _Line) -> bool:
    return line.type == "user" and not _text(line.content).startswith(_CONTEXT)


def _text(content: Any) -> str:
    """Return the text of a message's first part; the others are files included with `@`."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return next((text for text in texts if isinstance(text, str)), "")


def _diff(call: _Call) -> list[FileDiff]:
    """Return the changes that the result of an edit has."""
    shown = call.result_display if isinstance(call.result_display, dict) else {}
    path = shown.get("filePath") or shown.get("fileName")
    before, after = shown.get("originalContent"), shown.get("newContent")
    if not isinstance(path, str) or not isinstance(after, str):
        return []
    is_new = shown.get("isNewFile") or not isinstance(before, str)
    return [file_diff(path, None if is_new else before, after)]


def _result_text(call: _Call) -> str:
    """Return a tool's result as text."""
    texts = []
    for part in call.result if isinstance(call.result, list) else []:
        answer = part.get("functionResponse", {}) if isinstance(part, dict) else {}
        response = answer.get("response", {}) if isinstance(answer, dict) else {}
        if isinstance(response, dict):
            output = response.get("output", response.get("error"))
            if output is not None:
                texts.append(output if isinstance(output, str) else as_json(output))
    return "\n".join(texts) or as_json(call.result)
