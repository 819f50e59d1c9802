"""The chat with one agent of an IDE: what its page shows, kept with ids that stay.

The page's rows have names of their own; the journal remembers which message each became.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from outrider.contract.resources import Message
from outrider.daemon.agents.transcript import Entry, Transcript
from outrider.daemon.journal import Journal

GUARD = "\u200b"
"""Stands in front of a message that the agent would take for a command; nobody sees it."""


class Row(msgspec.Struct, kw_only=True):
    """One entry of a chat as the page's script tells it. `key` never changes."""

    key: str
    role: Literal["user", "assistant", "tool", "system"]
    kind: Literal["text", "thinking", "tool_call", "tool_result"] = "text"
    content: str


class Chat:
    """The messages of one agent.

    Args:
        kind: the agent, which the names of its rows begin with in the journal.
    """

    def __init__(
        self, session_id: str, kind: str, transcript: Transcript, journal: Journal
    ) -> None:
        self._session_id = session_id
        self._prefix = f"{kind}:"
        self._transcript = transcript
        self._journal = journal
        self._entries: dict[str, Entry] = {}
        self._known = journal.message_ids(session_id)
        self._offered: tuple[str, str] | None = None
        self._answered = False

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._transcript

    def offer(self, message_id: str, text: str) -> None:
        """Expect a user's row with this text: it becomes the message `message_id`."""
        self._offered = (message_id, text)
        self._answered = False

    def withdraw(self) -> None:
        """Expect it no more."""
        self._offered = None

    @property
    def taken(self) -> bool:
        """Whether the row that was expected has come."""
        return self._offered is None

    @property
    def answered(self) -> bool:
        """Whether the agent has said anything since the last message that was offered."""
        return self._answered

    def merge(self, rows: Sequence[Row]) -> None:
        """Take the page's rows, in their order. Rows that are gone from the page stay."""
        turn = 0
        for row in rows:
            content = row.content.removeprefix(GUARD) if row.role == "user" else row.content
            if row.role == "user":
                turn = self._turn(row.key, content, turn)
            name = self._name(row.key, turn)
            entry = self._entry(name)
            if entry is None:
                self._begin(name, row, content)
            elif _plain(entry.content) != _plain(content):
                self._transcript.replace(entry, content, row.role)

    def messages(self) -> list[Message]:
        """Return what is known of the chat, oldest first."""
        return self._transcript.messages()

    def save(self) -> None:
        """Write what has not been written yet."""
        self._transcript.save()

    def _turn(self, key: str, content: str, least: int) -> int:
        """Return how often the page has used this key for another message before, at least `least`.

        A page that is loaded again may have lost its newest messages: the next ones get the
        keys of those.
        """
        turn = least
        while (entry := self._entry(self._name(key, turn))) is not None:
            if _plain(entry.content) == _plain(content):
                break
            if self._entry(self._name(key, turn + 1)) is None and not self._expects(content):
                break
            turn += 1
        return turn

    def _name(self, key: str, turn: int) -> str:
        return self._prefix + (f"{key}~{turn}" if turn else key)

    def _expects(self, content: str) -> bool:
        return self._offered is not None and _plain(content) == _plain(self._offered[1])

    def _entry(self, name: str) -> Entry | None:
        entry = self._entries.get(name)
        if entry is None and (message_id := self._known.get(name)) is not None:
            entry = self._transcript.get(message_id)
            if entry is not None:
                self._entries[name] = entry
        return entry

    def _begin(self, name: str, row: Row, content: str) -> None:
        message_id = self._known.get(name)
        offered = self._offered
        if offered is not None and row.role == "user" and self._expects(content):
            (message_id, content), self._offered = offered, None  # a page may fold white space
        elif row.role != "user" and self._offered is None:
            self._answered = True
        entry = self._transcript.add(row.role, row.kind, content, message_id)
        self._entries[name] = entry
        self._known[name] = entry.id
        self._journal.save_message_id(self._session_id, name, entry.id)


def _plain(text: str) -> str:
    return " ".join(text.split())
