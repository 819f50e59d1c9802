"""aider's own record of a chat: its history in Markdown, and its log of when it did what.

Each session is started with files of its own (see `providers/aider.toml`), for two aiders in
one project would write into one history. In it, lines of the user begin with `####` and what
aider says itself with `>`; both end with two spaces. The model's answer has a blank line in
front and one behind. A line in it that looks like aider's, spaces and all, cannot be told
from it.
"""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from typeid import TypeID

from outrider.contract.resources import Message
from outrider.daemon.agents.chat_log import MAX_CONTENT, Role, truncate_content
from outrider.daemon.agents.cli.transcripts.transcript import (
    Activity,
    Piece,
    Reader,
    Tail,
    ToolCall,
    milliseconds,
)
from outrider.daemon.agents.guards import Guards

TAKEN_WAIT: Final = 2.0
"""Seconds for which a message that was just taken counts as busy, whatever the screen shows."""

TIME_WAIT: Final = 1.0
"""Seconds that an answer waits for the log to tell when it came."""

_BEGAN: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_MODEL: Final = re.compile(r"(?:Main m|M)odel: (\S+) with ")
_ANSWERED: Final = re.compile(r"\(Y\)es/\(N\)o.*\]: \S")
_FAILED: Final = re.compile(r"litellm\.\w+: ")
_TOKENS: Final = re.compile(r"Tokens: .* (?:sent|received)")
_USAGE: Final = re.compile(r"> Tokens: \S+ sent,.* received\.$")  # what it costs is on the next


class _Event(msgspec.Struct):
    event: str = ""
    time: int = 0


class _Said(msgspec.Struct):
    """One message as recorded; `answer` is its number among those that the log tells of."""

    role: Role
    lines: list[str]
    size: int = 0
    answer: int | None = None
    seen: float = 0.0

    def add(self, line: str) -> None:
        """Add a line; what no message can hold is left out when the message is made."""
        if self.size <= MAX_CONTENT:
            self.lines.append(line)
            self.size += len(line) + 1


class AiderTranscript(Reader):
    """One conversation of aider.

    Args:
        environment: the agent's; HOME says where its records are.
        directory: the agent's (not needed: the records of a session are its own).
        conversation: the UUID that it was started with.
    """

    def __init__(self, environment: Mapping[str, str], directory: Path, conversation: str) -> None:
        del directory
        super().__init__(conversation)
        folder = Path(environment.get("HOME") or Path.home()) / ".aider" / "chats"
        history, events = (folder / f"{conversation}.{kind}" for kind in ("md", "jsonl"))
        self._history = Tail(history, self._leave_out, blank_lines=True)
        self._events = Tail(events)
        self._decoder = msgspec.json.Decoder(_Event)
        self._said: list[_Said] = []
        self._prompt: list[str] = []
        self._answer: list[str] = []
        self._own = False
        self._unfinished = False
        self._answers = 0
        self._answer_times: list[int] = []
        self._questions = 0
        self._began = 0
        self._taken_at: float | None = None

    def poll(self) -> bool:
        """Read what has been recorded since the last time; return whether there is more."""
        for raw in self._history.lines():
            self._take(raw.decode("utf-8", "replace"))
        if not self._history.behind:
            self._end_prompt()
            if self._answer and not self._answer[-1]:
                self._end_answer()  # aider writes an answer at once, with a blank line behind it
        for event in self._events.records(self._decoder):
            if event.event == "message_send":
                self._answer_times.append(event.time * 1000)
        return self._history.behind or self._events.behind

    def activity(self) -> Activity | None:
        """Return busy just after a message was taken; the rest aider shows on its screen."""
        if self._taken_at is None or time.monotonic() - self._taken_at > TAKEN_WAIT:
            return None
        return "busy"

    def open_calls(self) -> Sequence[ToolCall]:
        """Return what stands for the call that may be asked about: the next unanswered question."""
        return [ToolCall(f"{len(self._prompts)}/{self._questions}", self._began)]

    def _comparable(self, text: str) -> str:
        """Return a text as aider takes it, with one kind of line break."""
        return "\n".join(text.splitlines()).strip()

    def messages(self, ids: Mapping[str, str], guards: Guards) -> list[Message]:
        """Return the whole chat. A message has the time that is known of it, or its precursor's."""
        pieces: list[Piece] = []
        latest, prompts = self._began, 0
        for index, said in enumerate(self._said):
            key = f"#{index}"
            if said.role == "user":
                key = str(prompts)
                prompts += 1
                if key in ids:
                    latest = max(latest, _made(ids[key]))
            elif said.answer is not None:
                if said.answer < len(self._answer_times):
                    latest = max(latest, self._answer_times[said.answer])
                elif time.monotonic() < said.seen + TIME_WAIT:
                    break  # the log is about to tell
            prompt = said.role == "user"
            pieces.append(Piece(key, said.role, "text", "\n".join(said.lines), latest, prompt))
        return self._as_messages(pieces, ids, guards)

    def _take(self, line: str) -> None:
        marked = line.endswith("  ")
        if self._unfinished:
            self._unfinished = not marked
            self._continue_own(line.strip())
        elif marked and line.startswith("####"):
            self._end_answer()
            self._own = False
            self._prompt.append(line[4:-2].removeprefix(" "))
        elif line.startswith(">") and (marked or self._own or _USAGE.match(line)):
            self._end_prompt()
            self._end_answer()
            self._own, self._unfinished = True, not marked
            self._take_own(line[1:].strip())
        elif line and self._own:  # an answer has a blank line in front
            self._continue_own(line.strip())
        elif (began := _BEGAN.fullmatch(line)) is not None and not self._prompts:
            self._began = milliseconds(began[1])  # local time
        else:
            self._own = False
            if line or self._answer:
                self._end_prompt()
                self._answer.append(line)

    def _end_prompt(self) -> None:
        if not self._prompt:
            return
        text = "\n".join(self._prompt)
        self._prompt = []
        self._prompts.append((str(len(self._prompts)), text))
        self._said.append(_Said("user", [truncate_content(text)]))
        self._taken_at, self.failure = time.monotonic(), None

    def _end_answer(self) -> None:
        text = "\n".join(self._answer).strip("\n")
        self._answer = []
        if text:
            self._taken_at, self.failure = None, None
            self._said.append(_Said("assistant", [truncate_content(text)]))

    def _take_own(self, text: str) -> None:
        """Take a line of aider's own; what it says before the first message is no chat."""
        self._taken_at = None
        if (model := _MODEL.match(text)) is not None:
            self.model = model[1]
        if _ANSWERED.search(text):
            self._questions += 1
        if _TOKENS.match(text):
            last = self._said[-1] if self._said else None
            if last is not None and last.role == "assistant":
                last.answer, last.seen = self._answers, time.monotonic()
            self._answers += 1
            return
        if _FAILED.match(text):
            self.failure = text
        elif text.startswith("^C"):
            self.failure = None
        if text and self._prompts:
            self._said.append(_Said("system", [text]))

    def _continue_own(self, text: str) -> None:
        last = self._said[-1] if self._said else None
        if last is not None and last.role == "system":
            last.add(text)

    def _leave_out(self, size: int) -> None:
        self._take(f"[outrider: a line of {size} bytes is left out here]")


def _made(message_id: str) -> int:
    """Return when an id was made, in epoch milliseconds: a UUIDv7 begins with that."""
    return TypeID.from_string(message_id).uuid.int >> 80
