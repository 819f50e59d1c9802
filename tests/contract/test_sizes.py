"""The cut of events and sessions to a limit in bytes."""

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from outrider.contract.events import TRUNCATION_NOTE, AgentEvent, EventName
from outrider.contract.frames import Event, decode_from_daemon, encode
from outrider.contract.resources import Session
from outrider.contract.sizes import (
    MAX_EVENT_BYTES,
    MAX_REPORTED_BYTES,
    MAX_SESSION_BYTES,
    cut_event,
    cut_session,
    json_bytes,
)
from outrider.contract.text import NO_NUL, PRINTABLE
from outrider.service.webhooks.event_intake import agent_body
from tests.contract import strategies

LONGEST = {PRINTABLE: "\N{GRINNING FACE}", NO_NUL: "\x01", None: "\x01"}
"""The character of each kind of text that takes the most bytes of JSON."""

FEW = settings(max_examples=30, suppress_health_check=list(HealthCheck))


def largest(kind: inspect.Type) -> Any:
    """Return the longest value that a type allows."""
    match kind:
        case inspect.StructType():
            return kind.cls(**{field.name: largest(field.type) for field in kind.fields})
        case inspect.ListType():
            return [largest(kind.item_type)] * (kind.max_length or 0)
        case inspect.UnionType():
            choices = [largest(choice) for choice in kind.types]
            return max(choices, key=json_bytes)
        case inspect.StrType():
            return LONGEST[kind.pattern] * (kind.max_length or 0)
        case inspect.LiteralType():
            return max(kind.values, key=lambda value: len(str(value)))
        case inspect.EnumType():
            return max(kind.cls, key=lambda value: len(str(value)))
        case inspect.IntType():
            return kind.le or 2**53
        case inspect.FloatType():
            return 1e300
        case inspect.BoolType():
            return False
    return None


@cache
def largest_event() -> AgentEvent:
    whole: AgentEvent = largest(inspect.type_info(AgentEvent))
    return whole


def event(name: str, **fields: Any) -> AgentEvent:
    return msgspec.structs.replace(largest_event(), event=EventName(name), id="evt_1", **fields)


def identity(value: AgentEvent) -> tuple[object, ...]:
    return value.id, value.event, value.session_id, value.ide_id, value.ide_type, value.timestamp


def test_the_largest_event_is_cut_to_the_limit() -> None:
    whole = event("chat:message")
    assert json_bytes(whole) > 100_000_000
    cut = cut_event(whole)
    assert json_bytes(cut) <= MAX_REPORTED_BYTES
    assert cut.truncated
    assert identity(cut) == identity(whole)
    assert cut_event(cut) is cut
    assert decode_from_daemon(encode(Event(seq=1, event=cut))) == Event(seq=1, event=cut)
    for name in EventName:
        body = agent_body("machine_" + "0" * 26, msgspec.structs.replace(cut, event=name))
        assert len(body) <= MAX_EVENT_BYTES


@FEW
@given(strategies.of(AgentEvent), st.integers(2_000, 10_000), st.integers(0, 3))
def test_any_event_that_is_cut_is_valid_and_stays_as_it_is(
    reported: AgentEvent, limit: int, times: int
) -> None:
    reported.message = "m" * 1_000 * times
    reported.queue = (reported.queue or []) * 8
    cut = cut_event(reported, limit)
    if json_bytes(reported) <= limit:
        assert cut is reported
        return
    assert cut.truncated
    assert identity(cut) == identity(reported)
    assert cut_event(cut, max(limit, json_bytes(cut))) is cut
    assert msgspec.json.decode(msgspec.json.encode(cut), type=AgentEvent) == cut


def test_options_of_a_question_and_paths_stay() -> None:
    whole = event("approval:opened")
    cut = cut_event(whole)
    assert whole.action is not None
    assert cut.action is not None
    assert [option.id for option in cut.action.options] == [
        option.id for option in whole.action.options
    ]
    assert whole.session is not None
    assert cut.session is not None
    assert whole.session.workspace == cut.session.workspace


def test_only_what_is_longest_is_shortened() -> None:
    others: dict[str, Any] = dict.fromkeys(("session", "controls", "action", "answer", "queue"))
    whole = event("chat:message", **others, chat_title="short", message="m" * 4000)
    assert whole.chat_message is not None
    whole.chat_message = msgspec.structs.replace(whole.chat_message, tool=None)
    cut = cut_event(whole)
    assert (cut.chat_title, cut.message) == ("short", "m" * 4000)
    assert json_bytes(cut) > MAX_REPORTED_BYTES // 3


def test_a_message_says_that_its_rest_is_in_the_chat() -> None:
    cut = cut_event(event("chat:message"))
    assert cut.chat_message is not None
    assert cut.chat_message.content.endswith(TRUNCATION_NOTE)


def test_an_event_within_the_limit_is_not_changed() -> None:
    none: dict[str, Any] = dict.fromkeys(("session", "controls", "chat_message", "action", "queue"))
    reported = event("agent:error", answer=None, **none)
    assert cut_event(reported) is reported
    assert not reported.truncated


@pytest.mark.parametrize("limit", [MAX_SESSION_BYTES])
def test_the_largest_session_is_cut_to_the_limit(limit: int) -> None:
    whole: Session = largest(inspect.type_info(Session))
    whole = msgspec.structs.replace(whole, pending_action=None)
    cut = cut_session(whole)
    assert json_bytes(whole) > limit >= json_bytes(cut)
    assert (cut.id, cut.target_id, cut.workspace) == (whole.id, whole.target_id, whole.workspace)
    assert msgspec.json.decode(msgspec.json.encode(cut), type=Session) == cut
