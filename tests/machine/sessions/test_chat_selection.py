"""Which messages of a chat a response has, and the cursor behind them."""

import pytest

from outrider.contract.commands import ReadChat
from outrider.contract.errors import ApiError
from outrider.contract.resources import AgentStatus, Message
from outrider.contract.sizes import MAX_PAGE_BYTES
from outrider.machine.sessions.chat_selection import (
    ChatCursor,
    messages_of_turn,
    parse_cursor,
    select_messages,
)
from outrider.machine.sessions.core.turn import Turn


def chat(roles: str, content: str = "text") -> list[Message]:
    """Return messages m0, m1, … of a (u)ser or the (a)ssistant."""
    names = {"u": "user", "a": "assistant"}
    return [
        Message(id=f"m{i}", index=i, role=names[role], kind="text", content=content, timestamp=i)  # type: ignore[arg-type]
        for i, role in enumerate(roles)
    ]


def turn_of(
    messages: list[Message], after: str | None, status: AgentStatus, turn: Turn | None = None
) -> tuple[list[str], str]:
    cursor = None if after is None else parse_cursor(after)
    selected, behind = messages_of_turn(messages, cursor, turn, status)
    return [message.id for message in selected], behind


@pytest.mark.parametrize("text", ["0", "m1", "m1~m5", "m1~0"])
def test_a_cursor_and_its_text(text: str) -> None:
    assert str(parse_cursor(text)) == text


def test_cursors_with_one_meaning_have_one_text() -> None:
    assert str(ChatCursor("m1", "m1")) == "m1"
    assert str(ChatCursor(None, None)) == "0"


def test_the_messages_of_a_turn_that_is_over() -> None:
    assert turn_of(chat("uauaa"), "m2", "idle") == (["m3", "m4"], "m4")
    assert turn_of(chat("ua"), "m1", "idle") == ([], "m1")


def test_a_turn_ends_where_the_next_begins() -> None:
    over = Turn("robot", "idle", next_id="m2")
    assert turn_of(chat("uaua"), "m0", "idle", over) == (["m1"], "m1")


def test_a_message_that_may_still_grow_comes_again() -> None:
    assert turn_of(chat("uaa"), "m0", "generating") == (["m1", "m2"], "m0~m1")
    assert turn_of(chat("uaaa"), "m0~m1", "generating") == (["m2", "m3"], "m0~m2")
    assert turn_of(chat("ua"), "m0", "generating") == (["m1"], "m0")


def test_the_cursor_of_a_turn_that_waits_for_approval_is_still_that_of_the_turn() -> None:
    assert turn_of(chat("uaa"), "m0", "waiting_approval") == (["m1", "m2"], "m0~m2")
    assert turn_of(chat("uaaa"), "m0~m2", "idle") == (["m3"], "m3")


def test_without_a_cursor_the_last_turn() -> None:
    assert turn_of(chat("uauaa"), None, "idle") == (["m3", "m4"], "m4")
    assert turn_of(chat("aa"), None, "idle") == (["m0", "m1"], "m1")
    assert turn_of(chat("uaa"), None, "generating") == (["m1", "m2"], "m1")
    assert turn_of([], None, "idle") == ([], "0")
    assert turn_of(chat("a"), "0", "idle") == (["m0"], "m0")


def test_a_message_that_is_not_in_the_chat_yet() -> None:
    assert turn_of(chat("ua"), "m9", "generating", Turn("robot", "generating")) == ([], "m9")


@pytest.mark.parametrize("after", ["m9", "m1~m9", "~", "~m9"])
def test_an_unknown_cursor(after: str) -> None:
    with pytest.raises(ApiError, match="no cursor of this session") as refused:
        turn_of(chat("ua"), after, "idle")
    assert refused.value.status == 400
    assert [detail.path for detail in refused.value.details] == ["after"]


def test_messages_beyond_a_response_are_those_behind_its_cursor() -> None:
    long = chat("uaaa", "x" * (MAX_PAGE_BYTES // 2))
    assert turn_of(long, "m0", "idle") == (["m1"], "m1")
    assert turn_of(long, "m1", "idle") == (["m2"], "m2")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ReadChat(), "01234"),
        (ReadChat(limit=2), "34"),
        (ReadChat(after="m1"), "234"),
        (ReadChat(after="m1", limit=2), "23"),
        (ReadChat(before="m3"), "012"),
        (ReadChat(before="m3", limit=2), "12"),
        (ReadChat(before="m0"), ""),
        (ReadChat(after="m0", before="m4"), "123"),
        (ReadChat(after="m0", before="m4", limit=2), "12"),
        (ReadChat(after="m3", before="m1"), ""),
    ],
)
def test_the_messages_that_a_client_reads(query: ReadChat, expected: str) -> None:
    selected = select_messages(chat("uauau"), query)
    assert "".join(message.id[1:] for message in selected) == expected


@pytest.mark.parametrize("query", [ReadChat(after="m7"), ReadChat(before="m7")])
def test_a_message_that_is_not_in_the_chat(query: ReadChat) -> None:
    with pytest.raises(ApiError) as refused:
        select_messages(chat("ua"), query)
    assert refused.value.status == 400
    assert refused.value.details[0].path == ("before" if query.before else "after")
