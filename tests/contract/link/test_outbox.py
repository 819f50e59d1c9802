"""What a machine reports fits into what the service keeps of it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.events import AgentEvent, ChatMessage, EventName
from outrider.contract.frames import Delta, Event, Snapshot
from outrider.contract.limits import MAX_SESSIONS, TokenBucket
from outrider.contract.link.outbox import Outbox, ReportBudget
from outrider.contract.resources import ActionOption, Control, Machine, PendingAction, Session
from outrider.contract.sizes import MAX_REPORTED_BYTES, json_bytes
from tests.contract.link.memory_log import MemoryLog, agent_event
from tests.contract.link.memory_log import session as plain

MACHINE = Machine(
    hostname="box",
    platform="linux",
    arch="x86_64",
    release="6",
    cpus=1,
    total_mem=1,
    free_mem=1,
    loadavg=[],
    uptime=1,
)


def session(name: str, length: int, last_activity_at: int = 1) -> Session:
    return msgspec.structs.replace(
        plain(name, "t" * min(length, 1000)),
        error="e" * min(length, 16_000),
        last_activity_at=last_activity_at,
        pending_action=PendingAction(
            id="act_1",
            message="m" * min(length, 16_000),
            options=[ActionOption(id="1", label="l" * min(length, 1000), kind="allow_once")],
        ),
    )


def report(*sessions: Session) -> Snapshot:
    return Snapshot(machine=MACHINE, providers=[], sessions=list(sessions))


def size(kept: dict[str, Session]) -> int:
    return sum(len(msgspec.json.encode(session)) for session in kept.values())


def test_what_has_room_is_reported_in_full() -> None:
    sessions = [session(str(index), 5000) for index in range(20)]
    assert ReportBudget().begin(report(*sessions)).sessions == sessions


def test_what_has_none_is_shortened_the_latest_last() -> None:
    sessions = [session(str(index), 20_000, index) for index in range(MAX_SESSIONS)]
    fitted = ReportBudget().begin(report(*sessions)).sessions
    assert [kept.id for kept in fitted] == [kept.id for kept in sessions]
    assert fitted[-1] == sessions[-1]
    first = fitted[0]
    assert first.error is not None
    assert first.error.endswith("e…")
    assert first.pending_action is not None
    assert first.pending_action.message.endswith("m…")
    assert first.pending_action.id == "act_1"
    assert size({kept.id: kept for kept in fitted}) < 2 * 1024 * 1024


def test_one_too_many_is_left_out() -> None:
    budget = ReportBudget()
    budget.begin(report(*(session(str(index), 1) for index in range(MAX_SESSIONS))))
    assert budget.fit(session("more", 1)) is None
    assert budget.fit(session("0", 2)) == session("0", 2)
    budget.remove("1")
    assert budget.fit(session("more", 1)) is not None


def test_what_is_removed_makes_room() -> None:
    budget = ReportBudget(limit=25_000)
    budget.begin(report())
    assert budget.fit(session("a", 4000)) == session("a", 4000)
    shortened = budget.fit(session("b", 4000))
    assert shortened is not None
    assert shortened != session("b", 4000)
    budget.remove("a")
    assert budget.fit(session("b", 4000)) == session("b", 4000)


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9000)), max_size=40),
    st.integers(5_000, 40_000),
)
def test_it_is_never_more_than_may_be(steps: list[tuple[str, int | None]], limit: int) -> None:
    """Counted as the service does: the bytes of each session as it was reported last."""
    budget = ReportBudget(limit)
    budget.begin(report())
    kept: dict[str, Session] = {}
    for name, length in steps:
        if length is None:
            budget.remove(name)
            kept.pop(name, None)
        elif (fitted := budget.fit(session(name, length))) is not None:
            kept[name] = fitted
        assert size(kept) + len(msgspec.json.encode(MACHINE)) + 2 <= limit


def event(number: int, name: EventName = EventName.ERROR) -> AgentEvent:
    return msgspec.structs.replace(agent_event(str(number)), event=name)


def sent(outbox: Outbox) -> list[tuple[int, str]]:
    frames = outbox.next_batch(0.0, report)
    return [(frame.seq, frame.event.id) for frame in frames if isinstance(frame, Event)]


def test_an_older_service_gets_only_the_events_that_it_knows() -> None:
    """One that it does not know makes it close the connection."""
    log = MemoryLog()
    outbox = Outbox(log)
    outbox.event(event(1))
    for number in range(2, 200):  # more than a batch, before the first welcome
        outbox.event(event(number, EventName.CHAT_MESSAGE))
    outbox.event(event(200))
    outbox.begin(report())
    outbox.resume(0)
    assert sent(outbox) + sent(outbox) == [(1, "1"), (200, "200")]
    outbox.events_acknowledged(200)
    outbox.event(event(201, EventName.QUEUE_CHANGED))  # not even numbered
    outbox.event(event(202))
    assert sent(outbox) == [(201, "202")]
    outbox.events_acknowledged(201)
    assert log.waiting == []


def test_a_newer_service_gets_what_the_older_one_did_not_take() -> None:
    """Unless an event after it was acknowledged."""
    outbox = Outbox(MemoryLog())
    outbox.event(event(1, EventName.CHAT_MESSAGE))
    outbox.begin(report())
    outbox.resume(0)
    assert sent(outbox) == []
    outbox.resume(0, [EventName.CHAT_MESSAGE])
    assert sent(outbox) == [(1, "1")]
    outbox.event(event(2, EventName.CHAT_MESSAGE))
    outbox.event(event(3, EventName.QUEUE_CHANGED))  # this service does not list it
    assert sent(outbox) == [(2, "2")]


def delta(text: str, message: str = "msg_1") -> Delta:
    return Delta(session_id="s", message_id=message, revision=0, op="append", text=text)


def test_deltas_are_sent_while_they_are_asked_for_and_nothing_else_waits() -> None:
    outbox = Outbox(MemoryLog())
    assert outbox.delta_watch("s") is None
    outbox.begin(report())
    outbox.resume(0)
    outbox.watch_deltas(["s"])
    first = outbox.delta_watch("s")
    assert (first is None, outbox.delta_watch("other")) == (False, None)
    outbox.event(event(1))
    assert outbox.delta(delta("a"))
    assert sent(outbox) == [(1, "1")]
    assert outbox.next_batch(0.0, report) == [delta("a")]
    outbox.watch_deltas(None)
    assert outbox.delta_watch("other") not in (None, first)
    outbox.end()
    assert outbox.delta_watch("s") is None


def test_deltas_have_a_limit_and_go_when_their_message_is_complete() -> None:
    outbox = Outbox(MemoryLog())
    outbox.begin(report())
    outbox.resume(0, [EventName.CHAT_MESSAGE])
    outbox.watch_deltas(None)
    while outbox.delta(delta("x" * 10_000)):
        pass
    message = ChatMessage(
        id="msg_1", index=0, role="assistant", kind="text", content="x", timestamp=1
    )
    outbox.event(msgspec.structs.replace(event(1, EventName.CHAT_MESSAGE), chat_message=message))
    assert outbox.delta(delta("y", "msg_2"))
    assert sent(outbox) == [(1, "1")]
    assert outbox.next_batch(0.0, report) == [delta("y", "msg_2")]


def test_events_wait_for_their_bytes() -> None:
    log = MemoryLog()
    outbox = Outbox(log, byte_allowance=TokenBucket(rate=1_000, burst=5_000))
    outbox.begin(report())
    outbox.resume(0, ["agent:error"])
    for number in range(4):
        event = agent_event(str(number))
        event.message = "x" * 2_000
        outbox.event(event)
    assert [frame.seq for frame in batch(outbox, 0.0)] == [1, 2]
    assert batch(outbox, 0.0) == []
    at = outbox.next_at(0.0)
    assert at is not None
    assert 0 < at <= 2
    assert [frame.seq for frame in batch(outbox, at)] == [3]
    assert [frame.seq for frame in batch(outbox, at + 10)] == [4]
    assert outbox.next_at(at + 10) is None


def test_an_event_that_is_too_long_is_cut_before_it_is_kept() -> None:
    log = MemoryLog()
    outbox = Outbox(log)
    event = agent_event("long")
    control = Control(id="m", label="M", type="select", options=["o" * 1024] * 1024)
    event.controls = [control] * 64
    outbox.event(event)
    ((_, kept),) = log.events(0, 10)
    assert kept.truncated
    assert json_bytes(kept) <= MAX_REPORTED_BYTES


def batch(outbox: Outbox, now: float) -> list[Event]:
    """Return the events that may be sent at a time."""
    return [frame for frame in outbox.next_batch(now, report) if isinstance(frame, Event)]
