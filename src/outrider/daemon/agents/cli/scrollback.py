"""The chat with an agent that keeps no record of it: what its terminal has shown, turn by turn.

When a turn is over, what has come onto the screen since the last one is read from the
terminal's history: lines that were typed there are the user's, the others the agent's. Where
that has been read to is kept with the session, the chat in a file, so both outlive the daemon.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.daemon.agents.cli.state import CliState
from outrider.daemon.agents.transcript import Role, Transcript
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

HISTORY: Final = 50_000
"""Lines that a terminal keeps whose screen is the only record of the chat."""

_ANCHOR: Final = 12


class _Read(msgspec.Struct):
    """How far the history has been read: so many lines, the last of which are `anchor`.

    `sent` has the ids of the messages whose echo is still to come; `turns` counts the reads.
    """

    lines: int = 0
    anchor: list[str] = []
    sent: list[str] = []
    turns: int = 0


class Scrollback:
    """The chat of one session.

    Args:
        chat: where it is kept.
        prompt: what stands in front of what is typed; None where an agent shows nothing there.
    """

    def __init__(
        self, chat: Transcript, prompt: str | None, record: SessionRecord, journal: Journal
    ) -> None:
        self._chat = chat
        self._prompt = None if prompt is None else re.compile(prompt)
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
        """Take a message that the agent was given; its echo will be left out."""
        self._chat.add("user", "text", text, message_id)
        self._chat.save()
        self._read.sent.append(message_id)
        self._save()

    def take(self, lines: Sequence[str]) -> bool:
        """Take what has come since the last time: `lines` is all of the history, no prompt.

        Tell whether somebody has typed a message in the terminal.
        """
        if self._read.turns == 0:  # what an agent shows when it starts is no chat
            self._go_on(lines)
            return False
        new = lines[self._start(lines) :]
        said: list[str] = []
        echo = self._echo()
        part, by_hand = 0, False
        for line in new:
            match = None if self._prompt is None else self._prompt.match(line)
            typed = line if match is None else line[match.end() :]
            if echo and typed.strip() == echo[0].strip():
                echo.pop(0)
            elif match is None:
                said.append(line)
            elif typed.strip():
                part = self._say("assistant", said, part)
                part = self._say("user", [typed], part)
                said, by_hand = [], True
        self._say("assistant", said, part)
        self._chat.save()
        self._go_on(lines)
        return by_hand

    def delete(self) -> None:
        """Forget the chat."""
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
        """Return the lines that were sent, as they will be seen again."""
        entries = (self._chat.get(message_id) for message_id in self._read.sent)
        return [
            line
            for entry in entries
            if entry is not None
            for line in entry.content.split("\n")
            if line.strip()
        ]

    def _start(self, lines: Sequence[str]) -> int:
        """Return where what is new begins; the terminal may have dropped its oldest lines."""
        anchor, end = self._read.anchor, min(self._read.lines, len(lines))
        for start in range(end, len(anchor) - 1, -1):
            if list(lines[start - len(anchor) : start]) == anchor:
                return start
        return 0  # it was cleared

    def _go_on(self, lines: Sequence[str]) -> None:
        self._read = _Read(len(lines), list(lines[-_ANCHOR:]), [], self._read.turns + 1)
        self._save()

    def _save(self) -> None:
        self._state.scrollback = msgspec.json.encode(self._read).decode()
        self._journal.save_session(self._record)
