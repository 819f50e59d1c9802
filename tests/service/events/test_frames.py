"""Playbooks of the frame buffer: what a client gets that reads slowly, or not at all."""

from outrider.service.events.frames import (
    MAX_BYTES,
    MAX_FRAMES,
    FrameBudget,
    FrameBuffer,
    cursor_of,
    cursor_text,
    end_frame,
    event_frame,
    heartbeat_frame,
    ready_frame,
)
from outrider.service.events.log import LoggedEvent


def test_frames_are_taken_in_order_with_the_newest_cursor() -> None:
    buffer = FrameBuffer()
    buffer.add_event(1, b"one ")
    buffer.add_delta(b"delta ")
    buffer.add_event(2, b"two ")
    buffer.add_delta(b"delta")
    assert buffer.take() == (b"one delta two delta", 2)
    assert buffer.is_empty
    assert buffer.take() == (b"", None)


def test_a_chunk_is_limited() -> None:
    buffer = FrameBuffer()
    for cursor in range(1, 4):
        buffer.add_event(cursor, b"12345")
    assert buffer.take(max_bytes=6) == (b"1234512345", 2)
    assert buffer.take(max_bytes=6) == (b"12345", 3)


def test_a_client_that_does_not_read_loses_its_deltas_first() -> None:
    buffer = FrameBuffer(max_frames=3)
    for delta in (b"a", b"b", b"c"):
        buffer.add_delta(delta)
    buffer.add_event(1, b"one ")
    assert not buffer.overflowed
    buffer.add_event(2, b"two ")
    assert buffer.take() == (b"one two ", 2)


def test_then_its_stream() -> None:
    buffer = FrameBuffer(max_frames=3)
    for cursor in range(1, 5):
        buffer.add_event(cursor, b"event")
    assert buffer.overflowed
    assert buffer.is_empty
    buffer.add_event(5, b"event")
    buffer.add_delta(b"delta")
    assert buffer.is_empty


def test_a_delta_never_ends_a_stream() -> None:
    buffer = FrameBuffer(max_frames=2)
    buffer.add_event(1, b"one ")
    buffer.add_event(2, b"two ")
    buffer.add_delta(b"delta")
    assert not buffer.overflowed
    assert buffer.take() == (b"one two ", 2)


def test_bytes_are_limited_too() -> None:
    buffer = FrameBuffer(max_bytes=10)
    buffer.add_event(1, b"12345")
    buffer.add_event(2, b"12345")
    assert not buffer.overflowed
    buffer.add_event(3, b"1")
    assert buffer.overflowed


def test_room_comes_back_with_reading() -> None:
    buffer = FrameBuffer(max_frames=2, max_bytes=10)
    for cursor in range(1, 100):
        buffer.add_event(cursor, b"12345")
        assert buffer.take() == (b"12345", cursor)
    assert not buffer.overflowed


def test_one_frame_may_be_larger_than_the_buffer() -> None:
    buffer = FrameBuffer(max_bytes=10)
    buffer.add_event(1, b"x" * 100)
    assert buffer.take() == (b"x" * 100, 1)


def test_the_limits_are_the_contract_s() -> None:
    assert (MAX_FRAMES, MAX_BYTES) == (1000, 1024 * 1024)


def test_cursors_sort_as_texts() -> None:
    cursors = [0, 1, 9, 10, 99, 100, 10**15]
    texts = [cursor_text(cursor) for cursor in cursors]
    assert texts == sorted(texts)
    assert [cursor_of(text) for text in texts] == cursors


def test_what_is_no_cursor() -> None:
    for text in ("", "evt_1", "-1", "1.0", " 1", "1\n", "١", "9" * 19):  # noqa: RUF001
        assert cursor_of(text) is None


def test_the_frames_of_a_stream() -> None:
    event = LoggedEvent(7, "agent:error", b'{"id":"evt_1"}')
    assert event_frame(event) == (
        b'id: 0000000000000007\nevent: agent:error\ndata: {"id":"evt_1"}\n\n'
    )
    assert ready_frame("gap", 7) == (
        b'event: stream:ready\ndata: {"resume":"gap","cursor":"0000000000000007"}\n\n'
    )
    assert heartbeat_frame(7) == (
        b'event: stream:heartbeat\ndata: {"cursor":"0000000000000007"}\n\n'
    )
    assert end_frame("draining", 1500) == (
        b'retry: 1500\nevent: stream:end\ndata: {"reason":"draining","retryAfterMs":1500}\n\n'
    )


def test_the_buffers_of_an_account_share_a_budget() -> None:
    budget = FrameBudget(max_bytes=6 * MAX_BYTES, max_account_bytes=3 * MAX_BYTES)
    frame = b"x" * MAX_BYTES
    mine = [FrameBuffer(budget=budget, account_id="mine") for _ in range(4)]
    for number, buffer in enumerate(mine):
        buffer.add_event(number, frame)
    assert [buffer.overflowed for buffer in mine] == [False, False, False, True]
    mine[0].take()
    again = FrameBuffer(budget=budget, account_id="mine")
    again.add_event(4, frame)
    assert not again.overflowed


def test_every_account_has_some_room_in_the_budget_of_a_node() -> None:
    budget = FrameBudget(max_bytes=2 * MAX_BYTES, max_account_bytes=2 * MAX_BYTES)
    frame = b"x" * MAX_BYTES
    for name, fits in (("a", True), ("a", True), ("b", True), ("b", False), ("a", False)):
        buffer = FrameBuffer(budget=budget, account_id=name)
        buffer.add_event(1, frame)
        assert buffer.overflowed is not fits


def test_a_buffer_that_is_cleared_gives_its_room_back() -> None:
    budget = FrameBudget(max_bytes=MAX_BYTES, max_account_bytes=MAX_BYTES)
    for number in range(3):
        buffer = FrameBuffer(budget=budget, account_id="a")
        buffer.add_delta(b"x" * (MAX_BYTES // 2))
        buffer.add_event(number, b"x" * (MAX_BYTES // 2))
        assert not buffer.overflowed
        buffer.clear()
        assert buffer.is_empty
