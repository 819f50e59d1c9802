"""Emits the events of one session: of its turns, its state and its chat, and deltas of its texts.

`state_events` decides which events follow from the state and the chat. Here are the timers, and
the journal that records what was emitted.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from outrider.contract.events import MAX_EVENT_CONTROLS, TURN_EVENTS, AgentEvent, QueueEntry
from outrider.contract.ids import creation_time, derived_id, new_id
from outrider.contract.resources import Session
from outrider.machine.agents.adapter import Adapter
from outrider.machine.link.journal import Journal
from outrider.machine.sessions import state_events
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.core.agent_core import AgentCore
from outrider.machine.sessions.core.protocol import Emit
from outrider.machine.sessions.deltas import Deltas, DeltaSink
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.state_events import CurrentState, StateEvents

MAX_RECENT: Final = 32
"""Events of a session that are kept for its debug bundle."""


class EventEmitter:
    """The events of one session.

    Args:
        describe: returns the session as the API shows it.
        emit: takes each event, in order.
        deltas: takes the text of messages while they are written; None if it is not needed.

    Attributes:
        recent: the last events of its turns since this daemon was started, oldest first.
    """

    def __init__(
        self,
        record: SessionRecord,
        adapter: Adapter,
        core: AgentCore,
        *,
        daemon_id: str,
        journal: Journal,
        clock: Clock,
        describe: Callable[[], Session],
        emit: Callable[[AgentEvent], None],
        deltas: DeltaSink | None,
    ) -> None:
        self._record = record
        self._adapter = adapter
        self._core = core
        self._daemon_id = daemon_id
        self._journal = journal
        self._clock = clock
        self._describe = describe
        self._emit = emit
        self._state_events = StateEvents(record)
        self._state_timer: asyncio.TimerHandle | None = None
        self._flushes: dict[str, asyncio.Handle] = {}
        self._deltas = {
            kind: Deltas(record.id, agent.open_texts, deltas)
            for kind, agent in adapter.agents.items()
            if deltas is not None
        }
        self.recent: deque[AgentEvent] = deque(maxlen=MAX_RECENT)

    def emit(self, command: Emit) -> None:
        """Emit an event. One of a chat message has an id that is derived from the message."""
        record, message = self._record, command.chat_message
        is_of_turn = command.event in TURN_EVENTS
        event = agent_event(
            command,
            record,
            daemon_id=self._daemon_id,
            event_id=new_id("evt")
            if message is None
            else derived_id("evt", message.timestamp, record.id, message.id),
            timestamp=self._core.agents.updated_at if is_of_turn else self._clock(),
        )
        if is_of_turn:
            self.recent.append(event)
        self._emit(event)

    def state_changed(self, *, is_interrupted: bool = False) -> None:
        """Emit the events that follow from the session's current state, later ones by a timer."""
        core, now = self._core, self._clock()
        # Nothing follows from the status that is assumed until then.
        if not core.agents.has_observed:
            return
        if self._state_timer is not None:
            self._state_timer.cancel()
            self._state_timer = None
        seen = core.agents.observation
        state = CurrentState(
            session=self._describe(),
            controls=seen.controls[:MAX_EVENT_CONTROLS],
            queue=tuple(
                QueueEntry(
                    message_id=message_id,
                    text=message.as_text(),
                    created_at=creation_time(message_id),
                )
                for message_id, message in core.queue()
            ),
            answering=core.answering,
            interrupted=is_interrupted,
            gone=seen.gone,
        )
        self._emit_all(self._state_events.update(state, now))
        if self._state_events.due is not None:
            delay = (self._state_events.due - now) / 1000
            loop = asyncio.get_running_loop()
            self._state_timer = loop.call_later(delay, self.state_changed)

    def chat_changed(self, agent: str) -> None:
        """Emit new messages soon, those of several changes together."""
        self.texts_changed(agent)
        # One pass of the event loop may bring hundreds of changes, as when a transcript is read.
        if agent not in self._flushes:
            loop = asyncio.get_running_loop()
            self._flushes[agent] = loop.call_soon(self._flush_chat, agent)

    def texts_changed(self, agent: str) -> None:
        """Send what was added to the messages that an agent is writing, soon."""
        if agent in self._deltas:
            self._deltas[agent].changed()

    def emit_messages(self, agent: str, *, is_turn_over: bool) -> None:
        """Emit the complete messages of a chat that have not been emitted."""
        record = self._record
        messages = self._adapter.agents[agent].completed_messages(
            state_events.first_unemitted(record, agent), is_turn_over=is_turn_over
        )
        if messages:
            title = self._core.agents.observation_of(agent).title
            self._emit_all(state_events.new_messages(record, agent, messages, title))

    def stop(self) -> None:
        """Cancel what was to be emitted later."""
        if self._state_timer is not None:
            self._state_timer.cancel()
        for flush in self._flushes.values():
            flush.cancel()
        for deltas in self._deltas.values():
            deltas.stop()

    def _flush_chat(self, agent: str) -> None:
        del self._flushes[agent]
        status = self._core.agents.observation_of(agent).status
        self.emit_messages(agent, is_turn_over=status in {"idle", "error"})

    def _emit_all(self, commands: Iterator[Emit]) -> None:
        """Emit events, then save the record, which says that they were emitted."""
        # In this order: an event that is only in the record would be lost if the daemon is killed
        # now, while one that is only in the outbox is emitted again, under the same id.
        has_emitted = False
        for command in commands:
            self.emit(command)
            has_emitted = True
        if has_emitted:
            self._journal.save_session(self._record)


def agent_event(
    command: Emit, record: SessionRecord, *, daemon_id: str, event_id: str, timestamp: int
) -> AgentEvent:
    """Return the event that a command emits for a session."""
    return AgentEvent(
        id=event_id,
        event=command.event,
        session_id=record.id,
        ide_id=f"{daemon_id}:{record.kind}:{record.type}",
        ide_type=record.type,
        chat_title=command.title,
        duration=command.duration,
        timestamp=timestamp,
        message=command.message,
        session=command.session,
        controls=None if command.controls is None else list(command.controls),
        chat_message=command.chat_message,
        action=command.action,
        answer=command.answer,
        queue=None if command.queue is None else list(command.queue),
    )
