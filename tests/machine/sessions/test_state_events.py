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


class World:
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

    def sees(self, *states: CurrentState) -> list[Emit]:
        return [event for state in states for event in self.events.update(state, self.now)]

    def names(self, *states: CurrentState) -> list[str]:
        return [event.event for event in self.sees(*states)]

    def says(self, messages: Sequence[Message]) -> list[int]:
        start = first_unemitted(self.record, "robot")
        emitted = new_messages(self.record, "robot", [m for m in messages if m.index >= start], "")
        return [one.chat_message.index for one in emitted if one.chat_message is not None]


def started() -> World:
    world = World()
    world.sees(IDLE)
    return world


def message(index: int, content: str = "text") -> Message:
    return Message(
        id=f"msg_{index}", index=index, role="user", kind="text", content=content, timestamp=1
    )


def test_a_session_starts_once_and_its_state_is_in_that_event() -> None:
    world = World()
    assert world.sees(IDLE, IDLE) == [
        Emit(EventName.SESSION_STARTED, None, session=SESSION, controls=())
    ]
    world.restart()
    assert world.sees(IDLE) == []


def test_a_session_of_an_older_release_has_started() -> None:
    world = World()
    world.record.emitted_started = True
    assert world.names(IDLE) == ["session:updated"]


def test_a_change_of_title_model_or_controls_is_an_update() -> None:
    world = started()
    controls = (Control(id="mode", label="Mode", type="toggle", value=True),)
    changes = [
        with_session(title="Fix it"),
        with_session(model="opus"),
        replace(IDLE, controls=controls),
    ]
    for state in changes:
        world.now += UPDATE_INTERVAL
        assert world.sees(state, state) == [
            Emit(
                EventName.SESSION_UPDATED,
                state.session.title,
                session=state.session,
                controls=state.controls,
            )
        ]


def test_a_later_activity_alone_is_no_update() -> None:
    assert started().sees(with_session(last_activity_at=5)) == []


def test_a_title_that_flickers_does_not_flood() -> None:
    world = started()
    flicker = [with_session(title=str(n)) for n in range(100)]
    assert world.sees(*flicker) == []
    assert world.events.due == 10_000 + UPDATE_INTERVAL
    world.now = world.events.due
    assert world.sees(flicker[-1]) == [
        Emit(EventName.SESSION_UPDATED, "99", session=flicker[-1].session, controls=())
    ]
    assert world.events.due is None


def test_a_title_that_is_what_it_was_when_the_time_comes_is_no_update() -> None:
    world = started()
    world.sees(with_session(title="x"), IDLE)
    assert world.events.due is None
    world.now += UPDATE_INTERVAL
    assert world.sees(IDLE) == []


def test_a_change_of_the_status_is_reported_at_once() -> None:
    world = started()
    assert world.names(with_session(status="generating"), IDLE) == ["session:updated"] * 2


def test_an_approval_that_a_client_answers() -> None:
    """While the answer is being passed on, clients see no question any more."""
    world = started()
    assert world.names(asks()) == ["approval:opened", "session:updated"]
    world.record.answer = BY_KEY
    assert world.names(replace(with_session(status="generating"), answering="act_1")) == [
        "session:updated"
    ]
    resolved, *_ = world.sees(IDLE)
    assert resolved == Emit(EventName.APPROVAL_RESOLVED, None, action=ASKING, answer=BY_KEY)
    assert world.sees(IDLE) == []


def test_an_answer_survives_a_restart() -> None:
    world = started()
    world.sees(asks())
    world.record.answer = BY_KEY
    world.restart()
    assert world.sees(IDLE)[0].answer == BY_KEY


def test_a_question_of_an_interrupted_turn_was_answered_by_nobody() -> None:
    world = started()
    world.sees(asks())
    assert world.sees(replace(IDLE, interrupted=True))[0].answer is None


def test_an_answer_that_the_agent_does_not_take() -> None:
    """The question is still open, and a person answers it in the terminal."""
    world = started()
    world.sees(asks())
    world.record.answer = BY_KEY
    world.sees(replace(with_session(status="generating"), answering="act_1"))
    assert world.names(asks()) == ["session:updated"]
    assert world.sees(IDLE)[0].answer == AT_THE_MACHINE


def test_the_next_question_replaces_the_one_before() -> None:
    world = started()
    world.sees(asks())
    other = PendingAction(id="act_2", message="And this?", options=[])
    assert world.names(asks(other)) == ["approval:resolved", "approval:opened", "session:updated"]


def test_nobody_answers_an_agent_that_has_ended() -> None:
    world = started()
    world.sees(asks())
    assert world.sees(replace(with_session(status="error"), gone=True))[0].answer is None


def test_a_session_that_is_stopped() -> None:
    world = started()
    world.sees(asks())
    resolved, ended = world.events.end(SESSION)
    assert (resolved.event, resolved.answer) == (EventName.APPROVAL_RESOLVED, None)
    assert ended == Emit(EventName.SESSION_ENDED, None, session=SESSION)


def test_the_queue() -> None:
    world = started()
    waiting = tuple(QueueEntry(message_id=str(n), text="x", created_at=1) for n in range(2))
    first, both = replace(IDLE, queue=waiting[:1]), replace(IDLE, queue=waiting)
    assert [one.queue for one in world.sees(first, first, both)] == [waiting[:1], waiting]
    world.restart()
    assert world.sees(both) == []
    assert world.sees(IDLE) == [Emit(EventName.QUEUE_CHANGED, None, queue=())]


def test_messages_are_emitted_once_each_and_in_their_order() -> None:
    world = started()
    assert world.says([message(0), message(1)]) == [0, 1]
    world.restart()
    assert world.says([message(0), message(1), message(2)]) == [2]


def test_a_message_that_is_not_complete_does_not_hold_up_those_after_it() -> None:
    world = started()
    assert world.says([message(0), message(2), message(3)]) == [0, 2, 3]
    world.restart()
    assert world.says([message(2), message(3)]) == []
    assert world.says([message(1), message(2), message(3), message(4)]) == [1, 4]
    assert world.record.emitted_messages == {"robot": EmittedMessages(count=5)}


def test_there_is_a_limit_to_those_after_it() -> None:
    world = started()
    assert len(world.says([message(n) for n in range(1, 2 * MAX_LATER)])) == MAX_LATER
    assert world.says([message(n) for n in range(2 * MAX_LATER)]) == [
        0,
        *range(MAX_LATER + 1, 2 * MAX_LATER),
    ]


def test_the_messages_of_an_older_release_are_not_emitted() -> None:
    world = started()
    world.record.emitted_messages = None
    assert world.says([message(0), message(1)]) == []
    assert world.says([message(0), message(1), message(2)]) == [2]


def test_long_content_is_cut_with_a_note() -> None:
    world = started()
    (event,) = new_messages(world.record, "robot", [message(0, "\x01" * MAX_EVENT_CONTENT)], None)
    assert event.chat_message is not None
    content = event.chat_message.content
    assert content.endswith(TRUNCATION_NOTE)
    assert MAX_EVENT_CONTENT - 10 < json_size(content) <= MAX_EVENT_CONTENT + 2


@given(st.lists(st.tuples(st.sets(st.integers(0, 20)), st.booleans()), max_size=20))
def test_each_message_once_however_they_complete(steps: list[tuple[set[int], bool]]) -> None:
    world, complete, emitted = started(), set[int](), list[int]()
    for new, is_restarted in steps:
        complete |= new
        emitted += world.says([message(n) for n in sorted(complete)])
        if is_restarted:
            world.restart()
    assert sorted(emitted) == sorted(complete)
