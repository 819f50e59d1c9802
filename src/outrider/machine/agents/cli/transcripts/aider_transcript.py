"""aider's transcript of a chat: its history in Markdown, and its event log with timestamps.

Each session has its own files (see `providers/aider.toml`): two aiders in one project would share
one history. In the history, lines of the user begin with `####` and aider's own notices with `>`;
both end with two spaces. A blank line precedes and follows each answer of the model. A line of an
answer that looks exactly like a notice cannot be distinguished from one.

The id of a message has its time, which must never change: an answer is part of the chat only when
its time is known. aider writes an answer, draws it once more, and then writes what it used and the
time, so a reader may see any part of this:

    history:    answer ─▶ > Tokens: …            ─▶ anything else
    event log:                        ─▶ message_send, with the time
                hidden    hidden         shown      shown, without a time if the log has none

An answer that was interrupted is followed by nothing. It is shown at the end of the turn.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.contract.ids import creation_time
from outrider.contract.resources import Role
from outrider.machine.agents.cli.transcripts.transcript import (
    Activity,
    Piece,
    Tail,
    ToolCall,
    Transcript,
    milliseconds,
)
from outrider.machine.sessions.chat_log import MAX_CONTENT, truncate_content

_START: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_MODEL: Final = re.compile(r"(?:Main m|M)odel: (\S+) with ")
_ANSWERED_QUESTION: Final = re.compile(r"\(Y\)es/\(N\)o.*\]: \S")
_ERROR: Final = re.compile(r"litellm\.\w+: ")
_TOKENS: Final = re.compile(r"Tokens: .* (?:sent|received)")
_USAGE: Final = re.compile(r"> Tokens: \S+ sent,.* received\.$")  # the cost is on the next line


_EXIT: Final = "/exit"
"""The command with which a session is stopped; it is not part of the chat when that is resumed."""


class _Event(msgspec.Struct):
    event: str = ""
    time: int = 0


class _Entry(msgspec.Struct):
    """One message of the history; `answer` is its number among the answers in the event log."""

    role: Role
    lines: list[str]
    size: int = 0
    answer: int | None = None

    def add(self, line: str) -> None:
        """Add a line; the message is truncated to `MAX_CONTENT` when it is created."""
        if self.size <= MAX_CONTENT:
            self.lines.append(line)
            self.size += len(line) + 1


class AiderTranscript(Transcript):
    """One conversation of aider.

    Args:
        environment: the agent's; HOME locates its files, of which each session has its own.
        conversation: the UUID that aider was started with.
    """

    def __init__(self, environment: Mapping[str, str], conversation: str) -> None:
        super().__init__(environment, conversation)
        folder = self._home / ".aider" / "chats"
        history, events = (folder / f"{conversation}.{kind}" for kind in ("md", "jsonl"))
        self._history = Tail(history, self._add_omission_note, blank_lines=True)
        self._events = Tail(events)
        self._decoder = msgspec.json.Decoder(_Event)
        self._entries: list[_Entry] = []
        self._prompt: list[str] = []
        self._shown_lines = 0  # of the prompt
        self._answer: list[str] = []
        self._awaits_time = False
        self._in_notice = False
        self._notice_is_open = False
        self._is_starting = True
        self._answer_count = 0
        self._answer_times: list[int] = []
        self._answered_questions = 0
        self._start_time = 0

    def poll(self) -> bool:
        """Read what was recorded since the last call; return whether there is more."""
        for raw in self._history.lines():
            self._process_line(raw.decode("utf-8", "replace"))
        if not self._history.has_more and not self._history.ends_mid_line:
            self._show_prompt()
        # Read after the history: where that goes on behind an answer, the log has the time of the
        # answer by now, or never.
        for event in self._events.entries(self._decoder):
            if event.event == "message_send":
                self._answer_times.append(event.time * 1000)
        return self._history.has_more or self._events.has_more

    def end_turn(self) -> None:
        """Show an answer without a time: an idle aider writes nothing more about it."""
        self._end_answer()
        self._awaits_time = False

    def activity(self) -> Activity | None:
        """Return `busy` just after a message was accepted, else None: the screen decides."""
        return self._busy_after_acceptance()

    def open_calls(self) -> Sequence[ToolCall]:
        """Return a placeholder for the tool call that aider may ask about: its next question."""
        return [ToolCall(f"{len(self._prompts)}/{self._answered_questions}", self._start_time)]

    def _normalize(self, text: str) -> str:
        """Return `text` as aider records it, with one kind of line break."""
        return "\n".join(text.splitlines()).strip()

    def pieces(self, start: int = 0) -> Sequence[Piece]:
        """Return the pieces from index `start` on, without ids."""
        return self._pieces_for({})[start:]

    @property
    def unfinished_count(self) -> int:
        """The number of the newest messages that may still change: a notice may get more lines."""
        return 1 if self._entries and self._entries[-1].role == "system" else 0

    def _pieces_for(self, ids: Mapping[str, str]) -> list[Piece]:
        """Return the pieces; one without a known time has that of the one before it."""
        pieces: list[Piece] = []
        latest, prompts = self._start_time, 0
        for index, entry in enumerate(self._entries):
            key = f"#{index}"
            if entry.role == "user":
                key = str(prompts)
                prompts += 1
                if key in ids:
                    latest = max(latest, creation_time(ids[key]))
            elif entry.answer is not None:
                if entry.answer < len(self._answer_times):
                    latest = max(latest, self._answer_times[entry.answer])
                elif self._awaits_time and index == len(self._entries) - 1:
                    break
            prompt = entry.role == "user"
            pieces.append(Piece(key, entry.role, "text", "\n".join(entry.lines), latest, prompt))
        return pieces

    def _process_line(self, line: str) -> None:
        is_marked = line.endswith("  ")
        if self._notice_is_open:
            self._notice_is_open = not is_marked
            self._extend_notice(line.strip())
            return
        self._awaits_time = False
        if is_marked and line.startswith("####"):
            self._end_answer()
            self._in_notice = False
            self._prompt.append(line[4:-2].removeprefix(" "))
            return
        self._end_prompt()
        if line.startswith(">") and (is_marked or self._in_notice or _USAGE.match(line)):
            self._end_answer()
            self._in_notice, self._notice_is_open = True, not is_marked
            self._add_notice(line[1:].strip())
        elif line and self._in_notice:  # not an answer: a blank line would precede it
            self._extend_notice(line.strip())
        elif (start := _START.fullmatch(line)) is not None:
            self._end_answer()
            self._in_notice, self._is_starting = False, True
            self._start_time = self._start_time or milliseconds(start[1])  # local time
        else:
            self._in_notice = False
            if line or self._answer:
                self._accepted_at, self.failure = None, None
                self._answer.append(line)

    def _show_prompt(self) -> None:
        """Add the message of the user that was read last, or the lines that it was shown without.

        aider writes a message at once, but a reader may see the first lines of a long one. A blank
        line precedes each message, so a line without one belongs to the message before it.
        """
        if len(self._prompt) == self._shown_lines:
            return
        if self._shown_lines:
            self._prompts.pop()
            self._entries.pop()
        text = "\n".join(self._prompt)
        if text == _EXIT:
            return
        self._shown_lines = len(self._prompt)
        self._is_starting = False
        self._prompts.append((str(len(self._prompts)), text))
        self._entries.append(_Entry("user", [truncate_content(text)]))
        self._accepted_at, self.failure = time.monotonic(), None

    def _end_prompt(self) -> None:
        self._show_prompt()
        self._prompt, self._shown_lines = [], 0

    def _end_answer(self) -> None:
        text = "\n".join(self._answer).strip("\n")
        self._answer = []
        if text:
            self._entries.append(_Entry("assistant", [truncate_content(text)]))

    def _add_notice(self, text: str) -> None:
        """Process a notice of aider; those of a start are not part of the chat."""
        self._accepted_at = None
        if (model := _MODEL.match(text)) is not None:
            self.model = model[1]
        if _ANSWERED_QUESTION.search(text):
            self._answered_questions += 1
        if _TOKENS.match(text):
            last = self._entries[-1] if self._entries else None
            if last is not None and last.role == "assistant" and last.answer is None:
                last.answer = self._answer_count
                self._awaits_time = True
            self._answer_count += 1
            return
        if _ERROR.match(text):
            self.failure = text
        elif text.startswith("^C"):
            self.failure = None
        if text and not self._is_starting:
            self._entries.append(_Entry("system", [text]))

    def _extend_notice(self, text: str) -> None:
        last = self._entries[-1] if self._entries else None
        if last is not None and last.role == "system" and not self._is_starting:
            last.add(text)

    def _add_omission_note(self, size: int) -> None:
        self._process_line(f"[outrider: a line of {size} bytes is left out here]")
