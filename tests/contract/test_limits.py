"""The limits that machines keep to, and what makes a frame keep to them."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from outrider.contract.commands import COMMANDS, Chat, CommandType
from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import (
    CommandResult,
    Event,
    FromDaemon,
    close_reason,
    decode_from_daemon,
    encode,
)
from outrider.contract.limits import TokenBucket, fitted
from outrider.contract.resources import Message
from tests.contract import strategies

KINDS = [kind for kind in get_args(FromDaemon) if kind is not CommandResult]


def limits(kind: inspect.Type, place: str) -> list[tuple[str, bool]]:
    """Return the texts and lists of a type, and whether each has a longest length."""
    match kind:
        case inspect.StructType():
            name = kind.cls.__name__
            return [
                found
                for field in kind.fields
                for found in limits(field.type, f"{name}.{field.name}")
            ]
        case inspect.UnionType():
            return [found for choice in kind.types for found in limits(choice, place)]
        case inspect.ListType():
            return [(place, kind.max_length is not None), *limits(kind.item_type, place)]
        case inspect.StrType():
            return [(place, kind.max_length is not None)]
    return []


@pytest.mark.parametrize("kind", get_args(FromDaemon))
def test_every_text_and_list_from_a_machine_has_a_limit(kind: type) -> None:
    found = limits(inspect.type_info(kind), "")
    assert [place for place, is_limited in found if not is_limited] == []


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_made_fit_is_taken(kind: Any, data: st.DataObject) -> None:
    """Whatever an agent or a file system gives, our own machine agent is never cut off for it."""
    frame = data.draw(strategies.beyond(kind))
    frame = msgspec.structs.replace(frame, **({"seq": 1} if hasattr(frame, "seq") else {}))
    if hasattr(frame, "protocol"):
        frame.protocol = 1
    sent = fitted(frame)
    taken = decode_from_daemon(encode(sent))
    assert taken is not None
    assert taken == sent
    assert fitted(taken) == taken


@given(st.one_of([strategies.of(kind) for kind in get_args(FromDaemon)]))
def test_what_fits_stays_as_it_is(frame: Any) -> None:
    assert fitted(frame) == frame


@pytest.mark.parametrize("command", list(CommandType))
@given(data=st.data())
def test_results_are_made_fit_too(command: CommandType, data: st.DataObject) -> None:
    """They hold sessions' questions, whose limits the service checks there as well."""
    if command == CommandType.CHAT_DEBUG:
        return  # it is bounded by itself
    result = data.draw(strategies.beyond(COMMANDS[command].result))
    sent = fitted(result)
    try:
        encoded = msgspec.json.encode(sent)
    except (UnicodeEncodeError, OverflowError):
        return  # a text or number without a limit: the command is answered with a 500
    assert msgspec.json.decode(encoded, type=COMMANDS[command].result) == sent


def test_long_text_is_cut_and_a_chat_is_not() -> None:
    event = AgentEvent(
        id="evt_1",
        event=EventName.ERROR,
        session_id="s",
        ide_id="machine_1:cli:codex",
        ide_type="codex",
        chat_title="a\x1b\nb" + "x" * 2000,
        duration=-1.0,
        timestamp=-5,
        message="y" * 5000,
    )
    sent = fitted(Event(seq=1, event=event)).event
    assert sent.chat_title is not None
    assert sent.chat_title.startswith("a��bxxx")
    assert (len(sent.chat_title), sent.chat_title[-1]) == (1024, "…")
    assert sent.message == "y" * 4095 + "…"
    assert (sent.duration, sent.timestamp) == (0, 0)
    assert event.timestamp == -5
    message = Message(id="m", index=0, role="user", kind="text", content="z" * 100_000, timestamp=1)
    chat = Chat(
        id="t",
        session_id="s",
        agent_type="codex",
        title=None,
        status="idle",
        messages=[message],
        pending_action=None,
        total_messages=1,
    )
    assert fitted(chat) is chat


def test_a_burst_and_then_a_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert [bucket.take(100.0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.next_at(100.0) == pytest.approx(100.1)
    assert not bucket.take(100.05)
    assert bucket.take(100.1)
    assert bucket.available(100.3) == 2
    assert not bucket.take(100.3, 3)
    assert bucket.take(100.3, 2)
    assert bucket.available(10_000.0) == 5
    assert bucket.next_at(10_000.0) == 10_000.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 3)), max_size=60))
def test_no_window_sees_more_than_burst_and_rate(steps: list[tuple[float, int]]) -> None:
    bucket, now, taken = TokenBucket(rate=3, burst=4), 0.0, []
    for pause, count in steps:
        now += pause
        if bucket.take(now, count):
            taken.append((now, count))
    for first, (start, _) in enumerate(taken):
        total = 0
        for end, count in taken[first:]:
            total += count
            assert total <= 4 + 3 * (end - start) + 1e-6


@given(st.text())
def test_a_reason_fits_into_a_close(text: str) -> None:
    assert len(close_reason(text).encode()) <= 123
