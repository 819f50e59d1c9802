"""The chat with an agent that keeps no record of it: what its terminal has shown, turn by turn.

When a turn is over, what has come onto the screen since the last one is read from the
terminal's history: lines that were typed there are the user's, the others the agent's, and a
question with its answer is nobody's. Where that has been read to is kept with the session, the
chat in a file, so both outlive the daemon.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.daemon.agents.chat_log import ChatLog, Role
from outrider.daemon.agents.cli.adapter_state import CliState
from outrider.daemon.agents.patterns import PatternTimeout, pattern
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

HISTORY: Final = 50_000
"""Lines that a terminal keeps whose screen is the only record of the chat."""

_ANCHOR: Final = 12
_ANCHOR_WIDTH: Final = 200
"""Characters of a line by which it is found again."""

_MAX_QUESTIONS: Final = 64

_INVISIBLE: Final = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]+")

LinesToType = Callable[[str, str], Sequence[str]]
"""Returns what was typed for the message with this id and text."""


class _Read(msgspec.Struct):
    """How far the history has been read: so many lines, the last of which are `anchor`.

    `sent` has the ids of the messages whose echo is still to come, `questions` the lines of what
    the agent has asked meanwhile; `turns` counts the reads.
    """

    lines: int = 0
    anchor: list[str] = []
    sent: list[str] = []
    questions: list[list[str]] = []
    turns: int = 0


class Scrollback:
    """The chat of one session.

    Args:
        chat: where it is kept.
        prompt: what stands in front of what is typed; None where an agent shows nothing there.
        lines_to_type: what a message looks like when it is typed.
    """

    def __init__(
        self,
        chat: ChatLog,
        prompt: str | None,
        lines_to_type: LinesToType,
        record: SessionRecord,
        journal: Journal,
    ) -> None:
        self._chat = chat
        self._prompt = None if prompt is None else pattern(prompt)
        self._lines_to_type = lines_to_type
        self._record = record
        self._journal = journal
        self._state = CliState(record)
        kept = self._state.scrollback
        self._read = _Read() if kept is None else msgspec.json.decode(kept, type=_Read)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._chat

    def messages(self) -> Sequence[Message]:
        """Return the whole chat."""
        return self._chat.messages()

    def sent(self, message_id: str, text: str) -> None:
        """Add a delivered message to the chat; its echo on the terminal is left out."""
        self._chat.add("user", "text", text, message_id)
        self._chat.save()
        self._read.sent.append(message_id)
        self._save()

    def asked(self, lines: Sequence[str], drawn: str) -> None:
        """Record the question at the end of the history `lines`; it is left out of the chat.

        `drawn` is the question without white space.
        """
        end = len(lines)
        while end and not lines[end - 1].strip():
            end -= 1
        start, missing = end, len(drawn)
        while start and missing > 0:
            start -= 1
            missing -= len(_bare(lines[start]))
        question = [line.rstrip() for line in lines[start:end]]
        if missing < 0:  # what the agent said before it stands in the same line
            question[0] = _behind(question[0], -missing)
        if drawn and _bare("".join(question)) == drawn:
            self._read.questions = [*self._read.questions, question][-_MAX_QUESTIONS:]
            self._save()

    def take(self, lines: Sequence[str]) -> bool:
        """Add what is new in the history `lines`, which end above the prompt, to the chat.

        Return whether a person has typed a message in the terminal.
        """
        if self._read.turns == 0:  # what an agent shows when it starts is no chat
            self._go_on(lines)
            return False
        new = _without(lines[self._start(lines) :], self._read.questions)
        said: list[str] = []
        echo = self._echo()
        part, by_hand = 0, False
        for line in new:
            end = self._prompt_end(line)
            typed = line if end is None else line[end:]
            if echo and _visible(typed) == echo[0]:
                echo.pop(0)
            elif echo and not said and not typed.strip():
                pass  # a blank line of the message
            elif end is None:
                said.append(line)
            elif typed.strip():
                part = self._say("assistant", said, part)
                part = self._say("user", [typed], part)
                said, by_hand = [], True
        self._say("assistant", said, part)
        self._chat.save()
        self._go_on(lines)
        return by_hand

    def _prompt_end(self, line: str) -> int | None:
        """Return where the prompt in front of a typed line ends, None if the line has none."""
        try:
            match = None if self._prompt is None else self._prompt.match(line)
        except PatternTimeout:
            return None  # logged there; the line is taken as the agent's
        return None if match is None else match.end()

    def delete(self) -> None:
        """Delete the chat."""
        self._chat.delete()

    def _say(self, role: Role, lines: list[str], part: int) -> int:
        """Add a message under an id that this part of this turn always has."""
        if not any(line.strip() for line in lines):
            return part
        own = derived_id(
            "msg", self._record.created_at, self._record.id, f"{self._read.turns} {part}"
        )
        if own not in self._chat:  # a daemon may have been killed just behind this
            self._chat.add(role, "text", "\n".join(lines), own)
        return part + 1

    def _echo(self) -> list[str]:
        """Return the lines that were typed, as the terminal echoes them."""
        entries = (self._chat.get(message_id) for message_id in self._read.sent)
        lines = (
            _visible(line)
            for entry in entries
            if entry is not None
            for typed in self._lines_to_type(entry.id, entry.content)
            for line in typed.split("\n")
        )
        return [line for line in lines if line]

    def _start(self, lines: Sequence[str]) -> int:
        """Return the index of the first new line; the terminal may have dropped old ones."""
        anchor, end = _shortened(self._read.anchor), min(self._read.lines, len(lines))
        for start in range(end, len(anchor) - 1, -1):
            if _shortened(lines[start - len(anchor) : start]) == anchor:
                return start
        return 0  # it was cleared

    def _go_on(self, lines: Sequence[str]) -> None:
        anchor = _shortened(lines[-_ANCHOR:])
        self._read = _Read(len(lines), anchor, turns=self._read.turns + 1)
        self._save()

    def _save(self) -> None:
        self._state.scrollback = msgspec.json.encode(self._read).decode()
        self._journal.save_session(self._record)


def _shortened(lines: Sequence[str]) -> list[str]:
    return [line[:_ANCHOR_WIDTH] for line in lines]


def _bare(text: str) -> str:
    return "".join(text.split())


def _visible(text: str) -> str:
    """Return a line without characters that a terminal draws differently or not at all."""
    return _INVISIBLE.sub("", text)


def _behind(line: str, count: int) -> str:
    """Return the rest of a line after `count` characters, not counting white space."""
    for position, character in enumerate(line):
        count -= not character.isspace()
        if count < 0:
            return line[position:]
    return ""


def _without(lines: Sequence[str], questions: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return lines without these questions and the answers typed after them."""
    kept: list[str] = []
    done = 0
    for question in questions:
        found = next((at for at in range(done, len(lines)) if _stands(question, lines, at)), None)
        if found is None:
            continue  # the agent has taken it off its screen
        kept += lines[done:found]
        before = lines[found][: lines[found].rindex(question[0])]
        kept += [before] if before.strip() else []
        done = found + len(question)
    return [*kept, *lines[done:]]


def _stands(question: Sequence[str], lines: Sequence[str], at: int) -> bool:
    """Return whether a question begins at this line; its answer may follow on the last."""
    *whole, last = question
    if at + len(whole) >= len(lines):
        return False
    if not whole:
        return last in lines[at]
    if not lines[at].rstrip().endswith(whole[0]) or not lines[at + len(whole)].startswith(last):
        return False
    return all(
        line.rstrip() == expected
        for line, expected in zip(lines[at + 1 : at + len(whole)], whole[1:], strict=True)
    )
