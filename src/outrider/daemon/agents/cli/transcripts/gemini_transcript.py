"""Gemini CLI's own record of a chat: `tmp/<project>/chats/session-*.jsonl`.

Each line is a message, a message again with more in it, or a change of what the model is
given. That last kind is no chat: when a request is cancelled Gemini writes down the whole
history once more, under new ids, so what begins like that is left out. Nothing of this is
documented, so every field is optional here.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

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

TAKEN_WAIT: Final = 2.0
"""Seconds for which a message that was just taken counts as busy, whatever the screen shows."""

REPLAY_LIMIT: Final = 5000
"""Milliseconds within which Gemini has written its history down again, at most."""

_CONTEXT: Final = ("<session_context>", "<state_snapshot>")
_MARKS: Final = " \t\n\u2060"


class _Call(msgspec.Struct, kw_only=True):
    id: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
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


class GeminiTranscript(Reader):
    """One conversation of Gemini CLI.

    Args:
        environment: the agent's; HOME and GEMINI_CLI_HOME say where its records are.
        directory: the agent's (Gemini files by it, but the id is enough to find it).
        conversation: the UUID that it was started with.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path, conversation: str) -> None:
        del directory
        super().__init__(conversation)
        home = environment.get("GEMINI_CLI_HOME") or environment.get("HOME") or Path.home()
        self._root = Path(home) / ".gemini" / "tmp"
        self._tail: Tail | None = None
        self._decoder = msgspec.json.Decoder(_Line)
        self._seen: set[str] = set()
        self._calls = 0
        self._prompted_at = 0
        self._replay_since: int | None = None
        self._taken_at: float | None = None

    def poll(self) -> bool:
        """Read what has been recorded since the last time; return whether there is more."""
        if self._tail is None or not self._tail.path.exists():
            path = self._find()  # Gemini begins another file when it restarts itself
            if path is None:
                return False
            self._tail = Tail(path, self._leave_out)
        for entry in self._tail.records(self._decoder):
            self._take(entry)
        return self._tail.behind

    def activity(self) -> Activity | None:
        """Return busy just after a message was taken; the rest Gemini shows on its screen."""
        if self._taken_at is None or time.monotonic() - self._taken_at > TAKEN_WAIT:
            return None
        return "busy"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return what stands for the tool call that may be asked about.

        Gemini records a call when it is over, so this one is named by the message that it is
        for, and by how many calls were over before.
        """
        if not self._prompts:
            return []
        return [ToolCall(f"{self._prompts[-1][0]}/{self._calls}", self._prompted_at)]

    def _comparable(self, text: str) -> str:
        """Return a text without what Gemini puts around it."""
        return text.strip(_MARKS)

    def _find(self) -> Path | None:
        """Return the newest file that is of this conversation."""
        pattern = f"*/chats/session-*-{self._conversation[:8]}.jsonl"
        for path in sorted(self._root.glob(pattern), reverse=True):
            try:
                first = self._decoder.decode(read_small_file(path).split(b"\n", 1)[0])
            except (OSError, UnicodeError, RecursionError, msgspec.DecodeError):
                continue  # gone, or being written: the next look finds it
            if first.session_id == self._conversation:
                return path
        return None

    def _take(self, line: _Line) -> None:
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
        if self._replay_since is not None and at - self._replay_since <= REPLAY_LIMIT:
            return
        self._replay_since = None
        match line.type:
            case "user":
                self._take_user(line, line.id, at)
            case "gemini" if isinstance(line.content, str):
                self._take_answer(line, line.id, line.content, at)
            case "info" | "warning" | "error" if isinstance(line.content, str):
                self._taken_at = None
                self._add(Piece(line.id, "system", "text", line.content, at))
                if line.type == "error":
                    self.failure = line.content

    def _take_user(self, line: _Line, key: str, at: int) -> None:
        text = _text(line.display_content) or _text(line.content)
        if not text:
            return  # the result of a tool, which the call has as well
        if self._add(Piece(key, "user", "text", text, at, prompt=True)):
            self._prompts.append((key, text))
            self._prompted_at = at
            self._taken_at = time.monotonic()
            self.failure = None

    def _take_answer(self, line: _Line, key: str, text: str, at: int) -> None:
        self._taken_at = None
        self.model = line.model or self.model
        for number, thought in enumerate(line.thoughts or []):
            said = "\n".join(filter(None, (thought.subject, thought.description)))
            self._add(Piece(f"{key} thought {number}", "assistant", "thinking", said, at))
        if text:
            self._add(Piece(key, "assistant", "text", text, at))
        for call in line.tool_calls or []:
            when = milliseconds(call.timestamp) or at
            asked = {"id": call.id, "name": call.name, "input": call.args}
            content = as_json(asked)
            self._add(Piece(f"{key} call {call.id}", "assistant", "tool_call", content, when))
            if call.result is not None:
                got = Piece(f"{key} result {call.id}", "tool", "tool_result", _got(call), when)
                self._calls += self._add(got)

    def _add(self, piece: Piece) -> bool:
        """Add what is new; return whether it was. A line comes again with more in it."""
        if piece.key in self._seen:
            return False
        self._seen.add(piece.key)
        self._pieces.append(piece)
        return True


def _text(content: Any) -> str:
    """Return the text of a message: of its first part, for what follows is what `@` brought."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return next((text for text in texts if isinstance(text, str)), "")


def _got(call: _Call) -> str:
    """Return a tool's result as text."""
    texts = []
    for part in call.result if isinstance(call.result, list) else []:
        answer = part.get("functionResponse", {}) if isinstance(part, dict) else {}
        response = answer.get("response", {}) if isinstance(answer, dict) else {}
        if isinstance(response, dict):
            said = response.get("output", response.get("error"))
            if said is not None:
                texts.append(said if isinstance(said, str) else as_json(said))
    return "\n".join(texts) or as_json(call.result)
