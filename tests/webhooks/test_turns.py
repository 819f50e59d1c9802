"""From what an agent is seen to do to its events, for every order of states, over restarts."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.events import AgentEvent, EventName
from outrider.contract.resources import PendingAction
from outrider.daemon.agents.adapter import Observation
from outrider.daemon.agents.turns import Turns
from outrider.daemon.journal import SessionRecord

IDLE = Observation(status="idle")
GENERATING = Observation(status="generating")


def asks(question: str) -> Observation:
    pending = PendingAction(id=question, message=f"May I {question}?", options=[])
    return Observation(status="waiting_approval", pending=pending)


def fails(error: str) -> Observation:
    return Observation(status="error", error=error)


OBSERVATIONS = st.one_of(
    st.just(IDLE),
    st.just(GENERATING),
    st.sampled_from(["act_1", "act_2", "act_3"]).map(asks),
    st.sampled_from(["out of credit", "logged out"]).map(fails),
)


def told(seen: list[Observation], *, restart: bool = False) -> list[AgentEvent]:
    """Return the events of an agent seen so, a second apart; `restart` after each of them."""
    events: list[AgentEvent] = []
    record = SessionRecord(
        id="session_1",
        kind="cli",
        type="claude-code",
        name="Claude Code",
        path="/srv",
        model=None,
        created_at=0,
        last_activity_at=0,
    )
    turns = Turns("machine_1:session:session_1", events.append)
    for second, observation in enumerate(seen):
        turns.moved(record, observation, second * 1000)
        if restart:
            record = msgspec.json.decode(msgspec.json.encode(record), type=SessionRecord)
            turns = Turns("machine_1:session:session_1", events.append)
    return events


def shape(events: list[AgentEvent]) -> list[tuple[Any, ...]]:
    return [(one.event, one.duration, one.message, one.timestamp) for one in events]


@given(st.lists(OBSERVATIONS, max_size=30))
def test_no_event_twice_and_none_missed(seen: list[Observation]) -> None:
    events = told(seen)
    generating = False
    ends = {EventName.GENERATING_COMPLETED, EventName.ERROR}
    for event in events:
        if event.event == EventName.GENERATING_STARTED:
            assert not generating
            generating = True
        elif event.event == EventName.GENERATING_COMPLETED:
            assert generating
        if event.event in ends:
            generating = False
    names = [event.event for event in events]
    questions = [one.pending.id for one in seen if one.pending is not None]
    changes = [q for before, q in zip([None, *questions], questions, strict=False) if q != before]
    assert names.count(EventName.WAITING_APPROVAL) == len(changes)
    errors = [one.error for one in seen]
    changed = [e for before, e in zip([None, *errors], errors, strict=False) if e and e != before]
    assert names.count(EventName.ERROR) == len(changed)
    if generating:
        assert seen[-1].status in ("generating", "waiting_approval")
    assert len({event.id for event in events}) == len(events)


@given(st.lists(OBSERVATIONS, max_size=30))
def test_a_restart_changes_nothing(seen: list[Observation]) -> None:
    assert shape(told(seen, restart=True)) == shape(told(seen))


@given(st.lists(st.tuples(OBSERVATIONS, st.integers(1, 3)), max_size=20))
def test_what_is_seen_again_is_told_once(seen: list[tuple[Observation, int]]) -> None:
    repeated = [one for one, times in seen for _ in range(times)]
    names = [event.event for event in told(repeated)]
    assert names == [event.event for event in told([one for one, _ in seen])]


def test_a_turn_with_an_approval_in_it_is_one_turn() -> None:
    events = told([IDLE, GENERATING, asks("act_1"), GENERATING, asks("act_2"), GENERATING, IDLE])
    assert [(one.event, one.duration) for one in events] == [
        (EventName.GENERATING_STARTED, None),
        (EventName.WAITING_APPROVAL, None),
        (EventName.WAITING_APPROVAL, None),
        (EventName.GENERATING_COMPLETED, 5.0),
    ]
