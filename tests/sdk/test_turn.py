"""What a stream yields of the frames of a session, whatever was left out or reordered."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.commands import Accepted
from outrider.contract.events import TRUNCATION_NOTE
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.sdk import Delta, Event
from outrider.sdk.turn import StreamedTurn, answer_of

TARGET = "machine_1:session:session_1"
TEXTS = st.text(st.sampled_from("ab\n ✓"), max_size=30)


def delta(message_id: str, revision: int, text: str, *, replaces: bool = False) -> Delta:
    return Delta(
        target_id=TARGET,
        message_id=message_id,
        revision=revision,
        op="replace" if replaces else "append",
        text=text,
    )


def message(message_id: str, index: int, content: str, role: str = "assistant") -> Message:
    fields = {"id": message_id, "index": index, "role": role, "content": content}
    return msgspec.convert(fields | {"kind": "text", "timestamp": 1}, Message)


def event(of: Message) -> Event:
    payload = {"message": msgspec.to_builtins(of)}
    return Event(id="evt", event="chat:message", timestamp=1, target_id=TARGET, payload=payload)


def begun() -> StreamedTurn:
    """Return a turn whose message of the user has come."""
    accepted = Accepted(
        message_id="msg_0", session_id="session_1", status="generating", queued=False, cursor="c"
    )
    turn = StreamedTurn(accepted)
    assert turn.receive(event(message("msg_0", 0, "Hi", "user"))) == []
    return turn


def applied(parts: list[Delta | Message]) -> dict[str, str]:
    """Apply the deltas as a consumer does; check that each message then has its text."""
    texts: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Delta):
            before = texts.get(part.message_id, "") if part.op == "append" else ""
            texts[part.message_id] = before + part.text
        else:
            assert texts.get(part.id, "") == part.content
    return texts


@st.composite
def deltas(draw: st.DrawFn, of: Message) -> list[Delta]:
    """Deltas of a message from the beginning, with some that replace, in pieces of any length."""
    parts: list[Delta] = []
    sent = ""
    for revision, text in enumerate(draw(st.lists(TEXTS, max_size=5))):
        if revision and draw(st.booleans()):
            sent = text  # a screen that was drawn anew
            parts.append(delta(of.id, revision, text, replaces=True))
        else:
            added = of.content[len(sent) :][: draw(st.integers(0, 30))]
            sent += added
            parts.append(delta(of.id, revision, added))
    return parts


@st.composite
def frames(draw: st.DrawFn) -> tuple[list[Message], list[Event | Delta]]:
    """Messages, and the frames of them that arrive: in any order, some left out or twice."""
    contents = draw(st.lists(TEXTS, min_size=1, max_size=3))
    messages = [message(f"msg_{at}", at, text) for at, text in enumerate(contents, 1)]
    every: list[Event | Delta] = []
    for each in messages:
        every += draw(deltas(each))
        is_cut = draw(st.booleans())
        content = each.content[:3] + TRUNCATION_NOTE if is_cut else each.content
        every.append(event(message(each.id, each.index, content)))
    if not every or draw(st.booleans()):
        return messages, every
    return messages, draw(st.lists(st.sampled_from(every), max_size=2 * len(every)))


@given(frames())
def test_the_deltas_of_each_message_give_its_text(
    received: tuple[list[Message], list[Event | Delta]],
) -> None:
    messages, arriving = received
    turn = begun()
    parts = [part for frame in arriving for part in turn.receive(frame)]
    parts += turn.rest(messages, TARGET)
    texts = applied(parts)
    assert {each.id: texts.get(each.id, "") for each in messages} == {
        each.id: each.content for each in messages
    }
    whole = [part for part in parts if isinstance(part, Message)]
    assert sorted(whole, key=lambda each: each.index) == messages


def test_deltas_after_one_that_was_left_out_are_not_passed_on() -> None:
    turn = begun()
    assert len(turn.receive(delta("msg_1", 0, "a"))) == 1
    assert turn.receive(delta("msg_1", 2, "c")) == []
    assert len(turn.receive(delta("msg_1", 3, "abcd", replaces=True))) == 1
    last, whole = turn.receive(event(message("msg_1", 1, "abcde")))
    assert isinstance(last, Delta)
    assert (last.op, last.text, last.revision) == ("append", "e", 4)
    assert isinstance(whole, Message)


def test_a_text_without_deltas_is_one_delta() -> None:
    first, whole = begun().receive(event(message("msg_1", 1, "Hello")))
    assert isinstance(first, Delta)
    assert (first.op, first.text) == ("append", "Hello")
    assert isinstance(whole, Message)


def test_a_machine_agent_that_was_restarted_replaces_the_text() -> None:
    turn = begun()
    turn.receive(delta("msg_1", 0, "Hel"))
    turn.receive(delta("msg_1", 1, "lo"))
    (again,) = turn.receive(delta("msg_1", 0, "Hello wor"))
    assert isinstance(again, Delta)
    assert again.op == "replace"
    parts = turn.receive(event(message("msg_1", 1, "Hello world")))
    assert [part.text for part in parts if isinstance(part, Delta)] == ["ld"]


QUESTION = PendingAction(
    id="act_1",
    message="Which database?",
    options=[
        ActionOption(id="postgres", label="PostgreSQL", kind="allow_once"),
        ActionOption(id="stop", label="Stop and think", kind="reject_once"),
    ],
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("approve", ("approve", None)),
        ("reject", ("reject", None)),
        ("postgres", ("approve", "postgres")),
        ("stop", ("reject", "stop")),
    ],
)
def test_an_answer_is_a_verdict_or_an_option(answer: str, expected: tuple[str, str | None]) -> None:
    assert answer_of(QUESTION, answer) == expected


def test_an_answer_that_is_none_names_the_options() -> None:
    with pytest.raises(ValueError, match="postgres, stop"):
        answer_of(QUESTION, "yes")
