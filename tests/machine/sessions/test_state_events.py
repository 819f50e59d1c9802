"""The events of a session's state and chat, without I/O or waiting."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.events import (
    MAX_EVENT_CONTENT,
    TRUNCATION_NOTE,
    Answer,
    EventName,
    QueueEntry,
    Respondent,
)
from outrider.contract.resources import Control, Message, PendingAction, Session
from outrider.machine.sessions.chat_log import json_size
from outrider.machine.sessions.core.protocol import Emit
from outrider.machine.sessions.record import EmittedMessages, SessionRecord
from outrider.machine.sessions.state_events import (
    AT_THE_MACHINE,
    MAX_LATER,
    UPDATE_INTERVAL,
    CurrentState,
    StateEvents,
    first_unemitted,
    new_messages,
)

SESSION = Session(
    id="session_1",
    target_id="machine_1:session:session_1",
    kind="cli",
    type="robot",
    name="Robot",
    status="idle",
    created_at=1,
    last_activity_at=1,
)
IDLE = CurrentState(SESSION)
ASKING = PendingAction(id="act_1", message="May I?", options=[])
BY_KEY = Answer(action="approve", option_id="1", by=Respondent(kind="key", id="key_1"))


def with_session(**changes: object) -> CurrentState:
    return CurrentState(msgspec.structs.replace(SESSION, **changes))


def asks(action: PendingAction | None = ASKING) -> CurrentState:
    return with_session(status="waiting_approval", pending_action=action)


class Reported:
    """A session's record and what is emitted of it."""

    def __init__(self) -> None:
        self.now = 10_000
        self.record = SessionRecord(
            id="session_1",
            kind="cli",
            type="robot",
            name="Robot",
            path="/srv",
            model=None,
            created_at=0,
            last_activity_at=0,
            emitted_started=False,
            emitted_messages={},
        )
        self.events = StateEvents(self.record)

    def restart(self) -> None:
        self.record = msgspec.json.decode(msgspec.json.encode(self.record), type=SessionRecord)
        self.events = StateEvents(self.record)

    def update(self, *states: CurrentState) -> list[Emit]:
        return [event for state in states for event in self.events.update(state, self.now)]

    def names(self, *states: CurrentState) -> list[str]:
        return [event.event for event in self.update(*states)]

    def report_messages(self, messages: Sequence[Message]) -> list[int]:
        start = first_unemitted(self.record, "robot")
        emitted = new_messages(self.record, "robot", [m for m in messages if m.index >= start], "")
        return [event.chat_message.index for event in emitted if event.chat_message is not None]


def started() -> Reported:
    session = Reported()
    session.update(IDLE)
    return session


def message(index: int, content: str = "text") -> Message:
    return Message(
        id=f"msg_{index}", index=index, role="user", kind="text", content=content, timestamp=1
    )


def test_a_session_starts_once_and_its_state_is_in_that_event() -> None:
    session = Reported()
    assert session.update(IDLE, IDLE) == [
        Emit(EventName.SESSION_STARTED, None, session=SESSION, controls=())
    ]
    session.restart()
    assert session.update(IDLE) == []


def test_a_session_of_an_older_release_has_started() -> None:
    session = Reported()
    session.record.emitted_started = True
    assert session.names(IDLE) == ["session:updated"]


def test_a_change_of_title_model_or_controls_is_an_update() -> None:
    session = started()
    controls = (Control(id="mode", label="Mode", type="toggle", value=True),)
    changes = [
        with_session(title="Fix it"),
        with_session(model="opus"),
        replace(IDLE, controls=controls),
    ]
    for state in changes:
        session.now += UPDATE_INTERVAL
        assert session.update(state, state) == [
            Emit(
                EventName.SESSION_UPDATED,
                state.session.title,
                session=state.session,
                controls=state.controls,
            )
        ]


def test_a_later_activity_alone_is_no_update() -> None:
    assert started().update(with_session(last_activity_at=5)) == []


def test_a_title_that_flickers_does_not_flood() -> None:
    session = started()
    flicker = [with_session(title=str(n)) for n in range(100)]
    assert session.update(*flicker) == []
    assert session.events.due == 10_000 + UPDATE_INTERVAL
    session.now = session.events.due
    assert session.update(flicker[-1]) == [
        Emit(EventName.SESSION_UPDATED, "99", session=flicker[-1].session, controls=())
    ]
    assert session.events.due is None


def test_a_title_that_is_what_it_was_when_the_time_comes_is_no_update() -> None:
    session = started()
    session.update(with_session(title="x"), IDLE)
    assert session.events.due is None
    session.now += UPDATE_INTERVAL
    assert session.update(IDLE) == []


def test_a_change_of_the_status_is_reported_at_once() -> None:
    session = started()
    assert session.names(with_session(status="generating"), IDLE) == ["session:updated"] * 2


def test_an_approval_that_a_client_answers() -> None:
    """While the answer is being passed on, clients see no question any more."""
    session = started()
    assert session.names(asks()) == ["approval:opened", "session:updated"]
    session.record.answer = BY_KEY
    assert session.names(replace(with_session(status="generating"), answering="act_1")) == [
        "session:updated"
    ]
    resolved, *_ = session.update(IDLE)
    assert resolved == Emit(EventName.APPROVAL_RESOLVED, None, action=ASKING, answer=BY_KEY)
    assert session.update(IDLE) == []


def test_an_answer_survives_a_restart() -> None:
    session = started()
    session.update(asks())
    session.record.answer = BY_KEY
    session.restart()
    assert session.update(IDLE)[0].answer == BY_KEY


def test_a_question_of_an_interrupted_turn_was_answered_by_nobody() -> None:
    session = started()
    session.update(asks())
    assert session.update(replace(IDLE, interrupted=True))[0].answer is None


def test_an_answer_that_the_agent_does_not_take() -> None:
    """The question is still open, and a person answers it in the terminal."""
    session = started()
    session.update(asks())
    session.record.answer = BY_KEY
    session.update(replace(with_session(status="generating"), answering="act_1"))
    assert session.names(asks()) == ["session:updated"]
    assert session.update(IDLE)[0].answer == AT_THE_MACHINE


def test_the_next_question_replaces_the_one_before() -> None:
    session = started()
    session.update(asks())
    other = PendingAction(id="act_2", message="And this?", options=[])
    assert session.names(asks(other)) == ["approval:resolved", "approval:opened", "session:updated"]


def test_nobody_answers_an_agent_that_has_ended() -> None:
    session = started()
    session.update(asks())
    assert session.update(replace(with_session(status="error"), gone=True))[0].answer is None


def test_a_session_that_is_stopped() -> None:
    session = started()
    session.update(asks())
    resolved, ended = session.events.end(SESSION)
    assert (resolved.event, resolved.answer) == (EventName.APPROVAL_RESOLVED, None)
    assert ended == Emit(EventName.SESSION_ENDED, None, session=SESSION)


def test_the_queue() -> None:
    session = started()
    waiting = tuple(QueueEntry(message_id=str(n), text="x", created_at=1) for n in range(2))
    first, both = replace(IDLE, queue=waiting[:1]), replace(IDLE, queue=waiting)
    assert [event.queue for event in session.update(first, first, both)] == [waiting[:1], waiting]
    session.restart()
    assert session.update(both) == []
    assert session.update(IDLE) == [Emit(EventName.QUEUE_CHANGED, None, queue=())]


def test_messages_are_emitted_once_each_and_in_their_order() -> None:
    session = started()
    assert session.report_messages([message(0), message(1)]) == [0, 1]
    session.restart()
    assert session.report_messages([message(0), message(1), message(2)]) == [2]


def test_a_message_that_is_not_complete_does_not_hold_up_those_after_it() -> None:
    session = started()
    assert session.report_messages([message(0), message(2), message(3)]) == [0, 2, 3]
    session.restart()
    assert session.report_messages([message(2), message(3)]) == []
    assert session.report_messages([message(1), message(2), message(3), message(4)]) == [1, 4]
    assert session.record.emitted_messages == {"robot": EmittedMessages(count=5)}


def test_there_is_a_limit_to_those_after_it() -> None:
    session = started()
    assert len(session.report_messages([message(n) for n in range(1, 2 * MAX_LATER)])) == MAX_LATER
    assert session.report_messages([message(n) for n in range(2 * MAX_LATER)]) == [
        0,
        *range(MAX_LATER + 1, 2 * MAX_LATER),
    ]


def test_the_messages_of_an_older_release_are_not_emitted() -> None:
    session = started()
    session.record.emitted_messages = None
    assert session.report_messages([message(0), message(1)]) == []
    assert session.report_messages([message(0), message(1), message(2)]) == [2]


def test_long_content_is_cut_with_a_note() -> None:
    session = started()
    (event,) = new_messages(session.record, "robot", [message(0, "\x01" * MAX_EVENT_CONTENT)], None)
    assert event.chat_message is not None
    content = event.chat_message.content
    assert content.endswith(TRUNCATION_NOTE)
    assert MAX_EVENT_CONTENT - 10 < json_size(content) <= MAX_EVENT_CONTENT + 2


@given(st.lists(st.tuples(st.sets(st.integers(0, 20)), st.booleans()), max_size=20))
def test_each_message_once_however_they_complete(steps: list[tuple[set[int], bool]]) -> None:
    session, complete, emitted = started(), set[int](), list[int]()
    for new, is_restarted in steps:
        complete |= new
        emitted += session.report_messages([message(n) for n in sorted(complete)])
        if is_restarted:
            session.restart()
    assert sorted(emitted) == sorted(complete)
