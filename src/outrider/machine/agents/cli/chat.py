"""The chat of an agent in a terminal: from the agent's own transcript, or read off its screen.

    transcript ─ RecordedChat ─┐
                               ├─ ChatSource ─▶ CliAgent, StatusMonitor
    terminal ─ ScreenChat ─────┘

A source knows which messages there are and whether the agent has accepted one; what the agent is
doing is decided elsewhere (`status.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from outrider.contract.resources import Message
from outrider.machine.agents.cli.adapter_state import CliState
from outrider.machine.agents.cli.keyboard import typeable
from outrider.machine.agents.cli.open_message import OpenMessage
from outrider.machine.agents.cli.screen import Reading
from outrider.machine.agents.cli.scrollback import Scrollback
from outrider.machine.agents.cli.spec import CliSpec
from outrider.machine.agents.cli.transcripts.transcript import Transcript, catch_up
from outrider.machine.agents.pane import Pane
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.tmux.server import PaneSnapshot, Tmux

_DEAD = "Pane is dead"

TurnRead = Literal["read", "typed", "outdated"]
"""`typed`: a person has typed a message. `outdated`: the screen has changed since the snapshot."""


class ChatSource(ABC):
    """Where the chat of one agent comes from.

    Attributes:
        transcript: the agent's own record, None if it keeps none.
        on_change: called after messages have been added.
    """

    transcript: Transcript | None = None

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None

    @property
    def prompts(self) -> int:
        """The number of user messages in the agent's own record."""
        return 0 if self.transcript is None else self.transcript.prompts

    @abstractmethod
    def was_delivered(self, message_id: str, text: str) -> bool:
        """Return whether an earlier daemon has delivered this message already.

        It may have been killed after it typed the message and before it recorded that.
        """

    @contextmanager
    def delivering(self, text: str) -> Iterator[None]:  # noqa: ARG002
        """Report no new messages during the block, in which `text` is delivered."""
        yield

    def add_delivered(self, message_id: str, text: str) -> None:  # noqa: B027  # a record has it
        """Add a message that the agent has accepted."""

    @abstractmethod
    def is_accepted(self, message_id: str, text: str, after: int, *, is_drawn: bool) -> bool:
        """Return whether the agent has accepted a message, behind its first `after` prompts.

        `is_drawn`: the screen has changed since the message was typed.
        """

    async def read(self) -> None:  # noqa: B027  # a screen is read at the end of a turn
        """Read what is new, before the status of the agent is decided."""

    async def read_turn(self, pane: Pane, snapshot: PaneSnapshot, reading: Reading) -> TurnRead:  # noqa: ARG002
        """Read the turn that ends with this snapshot."""
        return "read"

    async def read_question(  # noqa: B027
        self, pane: Pane, snapshot: PaneSnapshot, reading: Reading, action_id: str
    ) -> None:
        """Note the question on the screen, which is not part of the chat."""

    @abstractmethod
    async def messages(self, *, is_turn_over: bool) -> Sequence[Message]:
        """Return the whole chat."""

    @abstractmethod
    def open_texts(self, screen: str, rows: int, *, is_turn_over: bool) -> Mapping[str, str]:
        """Return the text that the screen shows of the message that the agent is writing.

        Its lines end where those of the screen end; the complete message is as the agent wrote
        it. `rows` is the number of lines at the end of the screen that are the agent's prompt.
        """

    @abstractmethod
    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message] | None:
        """Return the messages from index `start` on that will not change; None: not known yet."""

    def save(self) -> None:  # noqa: B027
        """Write what has not been written of the chat."""


class RecordedChat(ChatSource):
    """The chat in the agent's own transcript, which has ids that the journal keeps."""

    def __init__(
        self, transcript: Transcript, spec: CliSpec, record: SessionRecord, journal: Journal
    ) -> None:
        super().__init__()
        self.transcript: Transcript = transcript
        self._record = record
        self._state = CliState(record)
        self._journal = journal
        self._guards = spec.input.guards()
        self._open_message = (
            None
            if spec.open_message is None
            else OpenMessage(spec.open_message, transcript, record, journal)
        )
        self._delivered_text: str | None = None
        self._has_read = False  # to its end, once
        self._message_count = 0

    def was_delivered(self, message_id: str, text: str) -> bool:
        """Look for the message in the journal, then in the transcript."""
        if message_id in self._journal.message_ids(self._record.id).values():
            return True
        last = self._state.last_typed
        if last is None or last.message_id != message_id:
            return False
        return self._find(message_id, text, last.prompts)

    @contextmanager
    def delivering(self, text: str) -> Iterator[None]:
        """Hold back new messages: the delivered one does not have its id yet."""
        self._delivered_text = text
        try:
            yield
        finally:
            self._delivered_text = None

    def is_accepted(self, message_id: str, text: str, after: int, *, is_drawn: bool) -> bool:  # noqa: ARG002
        """Return whether the transcript has the message."""
        self.transcript.poll()
        return self._find(message_id, text, after)

    async def read(self) -> None:
        """Read the transcript to its end; report new messages."""
        await catch_up(self.transcript)
        count, before = self.transcript.message_count, self._message_count
        self._has_read, self._message_count = True, count
        if count != before:
            self.on_change()

    async def messages(self, *, is_turn_over: bool) -> Sequence[Message]:
        """Return the whole chat, with the end of the transcript if its agent has ended."""
        await catch_up(self.transcript)
        if is_turn_over:
            self.transcript.end_turn()
        await self.read()
        return self._messages(self._message_ids())

    def open_texts(self, screen: str, rows: int, *, is_turn_over: bool) -> Mapping[str, str]:  # noqa: ARG002
        """Return the text of the message that the transcript does not have yet."""
        message = self._open_message
        if message is None or self._delivered_text is not None or not self._has_read:
            return {}
        if is_turn_over:
            # First the id, in case the transcript has the message: then it keeps its id.
            message.assign_id()
            message.drop()
            return {}
        return message.texts(screen)

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message] | None:
        """Return the messages that will not change.

        None while a message is being delivered, or is to be delivered again because an earlier
        daemon was killed meanwhile: what the transcript has of it does not have its id yet.
        """
        if not self._has_read or self._delivered_text is not None:
            return None
        ids, last = self._message_ids(), self._state.last_typed
        is_missing = last is not None and last.message_id not in ids.values()
        if last and is_missing and self._text_of_delivery(last.message_id) is not None:
            return None
        messages = self._messages(ids, start)
        unfinished = 0 if is_turn_over else self.transcript.unfinished_count
        return messages[: max(0, len(messages) - unfinished)]

    def _messages(self, ids: Mapping[str, str], start: int = 0) -> Sequence[Message]:
        """Return the messages from index `start` on; save the ids of those that may still change.

        They are derived from what the transcript has of a message now. The agent may change that,
        and a reader that is created after a restart sees only the result.
        """
        transcript = self.transcript
        messages = transcript.messages(ids, self._guards, start)
        unfinished = messages[max(0, len(messages) - transcript.unfinished_count) :]
        if unfinished:
            pieces = transcript.pieces(unfinished[0].index)
            for piece, message in zip(pieces, unfinished, strict=True):
                if piece.key not in ids:
                    self._journal.save_message_id(self._record.id, piece.key, message.id)
        return messages

    def _message_ids(self) -> dict[str, str]:
        """Return the ids that messages have, by their keys in the transcript.

        Called before any message of the transcript is returned: a message that was delivered, or
        had deltas, gets its id here if the transcript has it now.
        """
        if self._open_message is not None:
            self._open_message.assign_id()
        ids, last = self._journal.message_ids(self._record.id), self._state.last_typed
        if last is not None and last.message_id not in ids.values():
            text = self._text_of_delivery(last.message_id)
            if text is not None and self._find(last.message_id, text, last.prompts):
                return self._journal.message_ids(self._record.id)
        return ids

    def _text_of_delivery(self, message_id: str) -> str | None:
        """Return the text of a message that is delivered now, or is to be delivered again.

        None for any other: what the transcript has of it is not the message that was sent.
        """
        # The message that is being typed has left the queue only when it is accepted.
        if self._delivered_text is not None:
            return self._delivered_text
        queue = dict(self._journal.queue(self._record.id))
        return typeable(queue[message_id].as_text()) if message_id in queue else None

    def _find(self, message_id: str, text: str, after: int) -> bool:
        """Return whether the transcript has the message; save the message id for its key."""
        key = self.transcript.find_prompt(text, after)
        if key is not None:
            self._journal.save_message_id(self._record.id, key, message_id)
        return key is not None


class ScreenChat(ChatSource):
    """The chat of an agent that keeps no record, read off its terminal after each turn."""

    def __init__(self, scrollback: Scrollback, tmux: Tmux) -> None:
        super().__init__()
        self._scrollback = scrollback
        self._tmux = tmux
        self._snapshot: PaneSnapshot | None = None
        self._question: str | None = None

    def was_delivered(self, message_id: str, text: str) -> bool:  # noqa: ARG002
        """Return whether the chat log has the message."""
        return message_id in self._scrollback

    def add_delivered(self, message_id: str, text: str) -> None:
        """Add the message; its echo on the terminal is left out."""
        self._scrollback.add_sent_message(message_id, text)

    def is_accepted(self, message_id: str, text: str, after: int, *, is_drawn: bool) -> bool:  # noqa: ARG002
        """Return whether the screen has changed."""
        return is_drawn

    async def read_turn(self, pane: Pane, snapshot: PaneSnapshot, reading: Reading) -> TurnRead:
        """Read the lines above the prompt, which the turn has added to the terminal's history."""
        if snapshot == self._snapshot:
            return "read"
        shown, lines = await self._tmux.history(pane)
        # History and screen are read by two commands of tmux: in between, the agent may draw.
        if not snapshot.ended and shown != snapshot.text:
            return "outdated"
        if snapshot.ended:
            # What tmux writes into the window of a program that has ended.
            lines = [line for line in lines if not line.startswith(_DEAD)]
        rows = 0 if snapshot.ended else reading.rows
        is_typed = self._scrollback.read_turn(lines_above(lines, rows))
        self._snapshot = snapshot
        self.on_change()
        return "typed" if is_typed else "read"

    async def read_question(
        self, pane: Pane, snapshot: PaneSnapshot, reading: Reading, action_id: str
    ) -> None:
        """Record the lines of a question, which are left out of the chat."""
        if reading.question is None or action_id == self._question:
            return
        shown, lines = await self._tmux.history(pane)
        if shown == snapshot.text:
            self._scrollback.add_question(lines, reading.question.drawn)
            self._question = action_id

    async def messages(self, *, is_turn_over: bool) -> Sequence[Message]:  # noqa: ARG002
        """Return what was read."""
        return self._scrollback.messages()

    def open_texts(self, screen: str, rows: int, *, is_turn_over: bool) -> Mapping[str, str]:
        """Return what follows the echo of the message that was sent last."""
        lines = lines_above(screen.split("\n"), rows)
        return {} if is_turn_over else self._scrollback.open_texts(lines)

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message]:  # noqa: ARG002
        """Return what was read: it does not change."""
        return self._scrollback.messages(start)

    def save(self) -> None:
        """Write what has not been written of the chat."""
        self._scrollback.save()


def lines_above(lines: list[str], rows: int) -> list[str]:
    """Return the lines above the last `rows` lines, not counting blank ones."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    while end and rows:
        end -= 1
        rows -= bool(lines[end].strip())
    return lines[:end]
