"""The chat of an agent that writes no transcript, read from its terminal after each turn.

    terminal's history:  … already read │ "> message" │ answer │ question + reply │ prompt
                                 anchor ┘     user    assistant       left out      not read

When a turn ends, the new lines of the terminal's history are read: typed lines become messages of
the user, other lines messages of the agent, questions and their answers are left out. The read
position is stored with the session and the chat in a file, so both survive a restart.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message, Role
from outrider.machine.agents.cli.adapter_state import CliState
from outrider.machine.agents.patterns import PatternTimeout, pattern
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_log import ChatLog
from outrider.machine.sessions.record import SessionRecord

HISTORY: Final = 50_000
"""Lines of history of a terminal that is the only source of the chat."""

_ANCHOR: Final = 12
_ANCHOR_WIDTH: Final = 200
"""Characters of a line that are compared to find it again."""

_MAX_QUESTIONS: Final = 64

_INVISIBLE: Final = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]+")

LinesToType = Callable[[str, str], Sequence[str]]
"""Returns what was typed for the message with this id and text."""


class _Position(msgspec.Struct):
    """How far the history was read: `lines` lines, the last of which are `anchor`.

    `pending_echoes` has the ids of messages whose echo on the terminal was not read yet,
    `questions` the lines of the questions since the last read; `turns` counts the reads. The names
    on disk (`name=`) never change.
    """

    lines: int = 0
    anchor: list[str] = []
    pending_echoes: list[str] = msgspec.field(default_factory=list, name="sent")
    questions: list[list[str]] = []
    turns: int = 0


class Scrollback:
    """The chat of one session.

    Args:
        chat: the chat log that messages are added to.
        prompt: a pattern for the prompt in front of typed text; None if the agent shows none.
        lines_to_type: returns the lines that are typed for a message.
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
        saved = self._state.scrollback
        self._position = (
            _Position() if saved is None else msgspec.json.decode(saved, type=_Position)
        )

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._chat

    def messages(self, start: int = 0) -> Sequence[Message]:
        """Return the chat from index `start` on."""
        return self._chat.messages(start)

    def add_sent_message(self, message_id: str, text: str) -> None:
        """Add a delivered message to the chat; its echo on the terminal is left out."""
        self._chat.add("user", "text", text, message_id)
        self._chat.save()
        self._position.pending_echoes.append(message_id)
        self._save()

    def add_question(self, lines: Sequence[str], drawn: str) -> None:
        """Record the question at the end of the history `lines`; it is left out of the chat.

        `drawn` is the question without white space.
        """
        end = len(lines)
        while end and not lines[end - 1].strip():
            end -= 1
        start, missing = end, len(drawn)
        while start and missing > 0:
            start -= 1
            missing -= len(_without_white_space(lines[start]))
        question = [line.rstrip() for line in lines[start:end]]
        if missing < 0:  # the question begins in a line with earlier output of the agent
            question[0] = _rest_after(question[0], -missing)
        if drawn and _without_white_space("".join(question)) == drawn:
            self._position.questions = [*self._position.questions, question][-_MAX_QUESTIONS:]
            self._save()

    def open_texts(self, lines: Sequence[str]) -> dict[str, str]:
        """Return the text of the message that the agent is writing, by the id that it will have.

        `lines` are those of the screen above the prompt. Empty unless they show the end of the
        message that was sent last, and nothing that a person has typed after it.
        """
        echo = self._pending_echo()[-1:]
        typed = [(row, self._typed(line)) for row, line in enumerate(lines)]
        row = max((row for row, text in typed if echo and _visible(text) == echo[0]), default=None)
        if row is None or any(self._prompt_end(line) is not None for line in lines[row + 1 :]):
            return {}
        text = "\n".join(_remove_questions(lines[row + 1 :], self._position.questions)).strip("\n")
        return {self._message_id(0): text} if text.strip() else {}

    def read_turn(self, lines: Sequence[str]) -> bool:
        """Add what is new in the history `lines`, which end above the prompt, to the chat.

        Return whether a person has typed a message in the terminal.
        """
        if self._position.turns == 0:  # the output of an agent's start is not part of the chat
            self._advance(lines)
            return False
        new = _remove_questions(lines[self._find_start(lines) :], self._position.questions)
        agent_lines: list[str] = []
        echo = self._pending_echo()
        part, is_typed_by_person = 0, False
        for line in new:
            end = self._prompt_end(line)
            typed = line if end is None else line[end:]
            if echo and _visible(typed) == echo[0]:
                echo.pop(0)
            elif echo and not agent_lines and not typed.strip():
                pass  # a blank line of the message
            elif end is None:
                agent_lines.append(line)
            elif typed.strip():
                part = self._add_message("assistant", agent_lines, part)
                part = self._add_message("user", [typed], part)
                agent_lines, is_typed_by_person = [], True
        self._add_message("assistant", agent_lines, part)
        self._chat.save()
        self._advance(lines)
        return is_typed_by_person

    def _prompt_end(self, line: str) -> int | None:
        """Return where the prompt in front of a typed line ends, None if the line has none."""
        try:
            match = None if self._prompt is None else self._prompt.match(line)
        except PatternTimeout:
            return None  # logged there; the line is taken as the agent's
        return None if match is None else match.end()

    def _typed(self, line: str) -> str:
        """Return a line without the prompt in front of it."""
        return line[self._prompt_end(line) or 0 :]

    def save(self) -> None:
        """Write what has not been written of the chat."""
        self._chat.save()

    def _add_message(self, role: Role, lines: list[str], part: int) -> int:
        """Add a message under an id that this part of this turn always has."""
        if not any(line.strip() for line in lines):
            return part
        message_id = self._message_id(part)
        # The chat is saved before the position. A daemon that was killed in between reads the
        # same lines again; the derived id keeps their messages from being added twice.
        if message_id not in self._chat:
            self._chat.add(role, "text", "\n".join(lines), message_id, source="screen")
        return part + 1

    def _message_id(self, part: int) -> str:
        """Return the id of a message of the turn that is read next."""
        name = f"{self._position.turns} {part}"
        return derived_id("msg", self._record.created_at, self._record.id, name)

    def _pending_echo(self) -> list[str]:
        """Return the lines that were typed, as the terminal echoes them."""
        entries = (self._chat.get(message_id) for message_id in self._position.pending_echoes)
        lines = (
            _visible(line)
            for entry in entries
            if entry is not None
            for typed in self._lines_to_type(entry.id, entry.content)
            for line in typed.split("\n")
        )
        return [line for line in lines if line]

    def _find_start(self, lines: Sequence[str]) -> int:
        """Return the index of the first new line; the terminal may have dropped old ones."""
        anchor, end = _shorten(self._position.anchor), min(self._position.lines, len(lines))
        for start in range(end, len(anchor) - 1, -1):
            if _shorten(lines[start - len(anchor) : start]) == anchor:
                return start
        return 0  # it was cleared

    def _advance(self, lines: Sequence[str]) -> None:
        anchor = _shorten(lines[-_ANCHOR:])
        self._position = _Position(len(lines), anchor, turns=self._position.turns + 1)
        self._save()

    def _save(self) -> None:
        self._state.scrollback = msgspec.json.encode(self._position).decode()
        self._journal.save_session(self._record)


def _shorten(lines: Sequence[str]) -> list[str]:
    return [line[:_ANCHOR_WIDTH] for line in lines]


def _without_white_space(text: str) -> str:
    return "".join(text.split())


def _visible(text: str) -> str:
    """Return a line without characters that a terminal draws differently or not at all."""
    return _INVISIBLE.sub("", text)


def _rest_after(line: str, count: int) -> str:
    """Return the rest of a line after `count` characters, not counting white space."""
    for position, character in enumerate(line):
        count -= not character.isspace()
        if count < 0:
            return line[position:]
    return ""


def _remove_questions(lines: Sequence[str], questions: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return lines without these questions and the answers typed after them."""
    result: list[str] = []
    done = 0
    for question in questions:
        places = [at for at in range(done, len(lines)) if _is_question_at(question, lines, at)]
        if not places:
            continue  # the agent has taken it off its screen
        # A message may quote the question that it leads to: `input('y or n?')`.
        index = next((at for at in places if lines[at].startswith(question[0])), places[0])
        result += lines[done:index]
        before = lines[index][: lines[index].rindex(question[0])]
        result += [before] if before.strip() else []
        done = index + len(question)
    return [*result, *lines[done:]]


def _is_question_at(question: Sequence[str], lines: Sequence[str], at: int) -> bool:
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
