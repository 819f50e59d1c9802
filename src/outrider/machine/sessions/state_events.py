"""Decides which events follow from the state of a session and from its chat, free of I/O.

    core, adapter ── CurrentState ─▶ StateEvents.update ─▶ Emit   session:*, approval:*, queue:*
    adapter ──────── messages ─────▶ new_messages ───────▶ Emit   chat:message

The events of a turn (`agent:*`) are the core's. These follow from a comparison of the state with
what was emitted before, which the session's record has. So what changes while the daemon is down
is emitted after its restart.

The record is changed after each `yield`, that is, after the event was emitted. The caller saves it
at the end: if the daemon is killed in between, the next one emits again (at least once). The id of
a message's event is derived from the message, so that the service stores it once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.contract.events import (
    MAX_EVENT_CONTENT,
    TRUNCATION_NOTE,
    Answer,
    ChatMessage,
    EventName,
    QueueEntry,
    Respondent,
)
from outrider.contract.resources import Control, Message, Session
from outrider.machine.agents.tools import tool_in_event
from outrider.machine.sessions.chat_log import truncate_content
from outrider.machine.sessions.core.protocol import Emit
from outrider.machine.sessions.record import EmittedMessages, SessionRecord

UPDATE_INTERVAL: Final = 1000
"""Milliseconds between two `session:updated`, unless the status, question or error has changed."""

MAX_LATER: Final = 256
"""Messages after an incomplete one that are emitted before it; further ones wait for it."""

AT_THE_MACHINE: Final = Answer(action=None, option_id=None, by=Respondent(kind="terminal"))
"""An answer that was given in the agent's own terminal or window."""


@dataclass(frozen=True)
class CurrentState:
    """What the events of a session are derived from.

    Attributes:
        answering: the pending action that a client's answer is being passed to.
        interrupted: whether the agent's turn is being interrupted, which ends its question.
        gone: whether the agent has ended.
    """

    session: Session
    controls: tuple[Control, ...] = ()
    queue: tuple[QueueEntry, ...] = ()
    answering: str | None = None
    interrupted: bool = False
    gone: bool = False


class StateEvents:
    """The events of one session's state.

    Args:
        record: the session's record, changed in place.

    Attributes:
        due: when to call `update` again, in epoch milliseconds; None if nothing is held back.
    """

    def __init__(self, record: SessionRecord) -> None:
        self._record = record
        self._last: Session | None = None
        self._last_at = 0
        self.due: int | None = None

    def update(self, state: CurrentState, now: int) -> Iterator[Emit]:
        """Yield the events that follow from the current state."""
        record, title = self._record, state.session.title
        if not record.emitted_started:
            yield Emit(
                EventName.SESSION_STARTED, title, session=state.session, controls=state.controls
            )
            record.emitted_started = True
            self._set_emitted(state, now)
        yield from self._update_action(state)
        yield from self._update_session(state, now)
        waiting = [message.message_id for message in state.queue]
        if waiting != record.emitted_queue:
            yield Emit(EventName.QUEUE_CHANGED, title, queue=state.queue)
            record.emitted_queue = waiting

    def end(self, session: Session) -> Iterator[Emit]:
        """Yield the events of a session that has ended."""
        if self._record.open_action is not None:
            yield from self._resolve(session.title, None)
        yield Emit(EventName.SESSION_ENDED, session.title, session=session)

    def _update_action(self, state: CurrentState) -> Iterator[Emit]:
        record, pending = self._record, state.session.pending_action
        opened = record.open_action
        if opened is not None and opened.id != state.answering:
            if pending is None or pending.id != opened.id:
                unanswered = None if state.gone or state.interrupted else AT_THE_MACHINE
                yield from self._resolve(state.session.title, record.answer or unanswered)
            else:
                record.answer = None  # the agent did not take it
        if pending is not None and record.open_action is None:
            yield Emit(EventName.APPROVAL_OPENED, state.session.title, action=pending)
            record.open_action = pending

    def _resolve(self, title: str | None, answer: Answer | None) -> Iterator[Emit]:
        record = self._record
        yield Emit(EventName.APPROVAL_RESOLVED, title, action=record.open_action, answer=answer)
        record.open_action = record.answer = None

    def _update_session(self, state: CurrentState, now: int) -> Iterator[Emit]:
        self.due = None
        if _digest(state) == self._record.emitted_state:
            return
        session, last = state.session, self._last
        is_urgent = last is None or (session.status, session.pending_action, session.error) != (
            last.status,
            last.pending_action,
            last.error,
        )
        if not is_urgent and now < self._last_at + UPDATE_INTERVAL:
            self.due = self._last_at + UPDATE_INTERVAL
            return
        yield Emit(
            EventName.SESSION_UPDATED, session.title, session=session, controls=state.controls
        )
        self._set_emitted(state, now)

    def _set_emitted(self, state: CurrentState, now: int) -> None:
        self._record.emitted_state = _digest(state)
        self._last, self._last_at = state.session, now


def new_messages(
    record: SessionRecord, agent: str, messages: Sequence[Message], title: str | None
) -> Iterator[Emit]:
    """Yield the events of the complete messages that have not been emitted yet.

    Args:
        messages: the complete ones with indexes from `first_unemitted` on, in order.
    """
    if record.emitted_messages is None:
        # An older release wrote this record: who wants these messages has read the chat.
        record.emitted_messages = {}
        end = messages[-1].index + 1 if messages else 0
        record.emitted_messages[agent] = EmittedMessages(count=end)
        return
    emitted = record.emitted_messages.setdefault(agent, EmittedMessages())
    for message in messages:
        if message.index < emitted.count or message.index in emitted.later:
            continue
        if message.index > emitted.count and len(emitted.later) >= MAX_LATER:
            return
        yield Emit(EventName.CHAT_MESSAGE, title, chat_message=_in_event(message))
        emitted.later.append(message.index)
        while emitted.count in emitted.later:
            emitted.later.remove(emitted.count)
            emitted.count += 1


def first_unemitted(record: SessionRecord, agent: str) -> int:
    """Return the index of the first message of a chat that has not been emitted."""
    emitted = (record.emitted_messages or {}).get(agent)
    return 0 if emitted is None else emitted.count


def _in_event(message: Message) -> ChatMessage:
    return ChatMessage(
        id=message.id,
        index=message.index,
        role=message.role,
        kind=message.kind,
        content=truncate_content(
            message.content, MAX_EVENT_CONTENT - len(TRUNCATION_NOTE), TRUNCATION_NOTE
        ),
        timestamp=message.timestamp,
        tool=tool_in_event(message.tool),
        source=message.source,
    )


def _digest(state: CurrentState) -> str:
    """Return a digest of what `session:updated` reports; a later activity alone is no change."""
    session = msgspec.structs.replace(state.session, last_activity_at=0)
    encoded = msgspec.json.encode((session, state.controls))
    return hashlib.sha256(encoded).hexdigest()[:32]
