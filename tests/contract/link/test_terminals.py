"""Both ends of the streams of terminals: a playbook, a round trip, and what is malformed."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.frames import DecodeError
from outrider.contract.link.terminals import (
    MAX_DATA,
    MAX_MESSAGE_BYTES,
    MAX_STREAMS,
    WINDOW,
    Closed,
    Data,
    Grant,
    MessageType,
    Open,
    Opened,
    Resize,
    StreamCode,
    StreamEvent,
    TerminalStreams,
    decode,
    encode,
)

SIZES = st.integers(1, 1000)
MESSAGES = st.one_of(
    st.builds(Open, session_id=st.just("session_1"), columns=SIZES, rows=SIZES),
    st.builds(Open, name=st.just("build"), mode=st.sampled_from(["write", "read"])),
    st.builds(Opened, columns=SIZES, rows=SIZES),
    st.builds(Resize, columns=SIZES, rows=SIZES),
    st.builds(Closed, code=st.integers(1000, 4999), reason=st.just("é")),
    st.builds(Data, st.binary(min_size=1, max_size=100)),
    st.builds(Grant, st.integers(1, 2**32 - 1)),
)
STREAMS = st.integers(0, 2**32 - 1)
REQUEST = Open(name="build", columns=100, rows=40)


class Ends:
    """The two ends of one connection; `carry` takes all that they send to the other one."""

    def __init__(self) -> None:
        self.service = TerminalStreams(is_machine=False)
        self.machine = TerminalStreams(is_machine=True)

    def carry(self) -> tuple[list[StreamEvent], list[StreamEvent]]:
        """Return the events at the service and at the machine."""
        while (message := self.service.next_message()) is not None:
            self.machine.receive(message)
        while (message := self.machine.next_message()) is not None:
            self.service.receive(message)
        return self.service.events(), self.machine.events()

    def open(self) -> int:
        stream = self.service.open(REQUEST)
        assert stream is not None
        assert self.carry() == ([], [StreamEvent(stream, REQUEST)])
        self.machine.opened(stream, 100, 40)
        opened = StreamEvent(stream, Opened(columns=100, rows=40))
        assert self.carry() == ([opened], [])
        return stream


def received(events: list[StreamEvent]) -> bytes:
    return b"".join(message.data for _, message in events if isinstance(message, Data))


@given(STREAMS, MESSAGES)
def test_messages_go_round(stream: int, message: Any) -> None:
    assert decode(encode(stream, message)) == (stream, message)


@given(st.lists(st.binary(max_size=60) | st.builds(encode, st.integers(0, 3), MESSAGES)))
def test_nothing_that_arrives_raises_anything_but_a_decode_error(messages: list[bytes]) -> None:
    for end in (TerminalStreams(is_machine=True), TerminalStreams(is_machine=False)):
        end.open(REQUEST)
        for message in messages:
            with contextlib.suppress(DecodeError):
                end.receive(message)
        while end.next_message() is not None:
            pass


def test_a_stream_from_its_opening_to_its_end() -> None:
    ends = Ends()
    stream = ends.open()
    ends.machine.send(stream, b"$ ")
    ends.service.send(stream, b"ls\r")
    ends.service.resize(stream, 1, 1)
    ends.service.resize(stream, 90, 30)
    resized = StreamEvent(stream, Resize(columns=90, rows=30))
    assert ends.carry() == (
        [StreamEvent(stream, Data(b"$ "))],
        [resized, StreamEvent(stream, Data(b"ls\r"))],
    )
    ends.machine.send(stream, b"bye")
    ends.machine.close(stream, StreamCode.ENDED, "The shell has ended")
    at_service, at_machine = ends.carry()
    assert at_service == [
        StreamEvent(stream, Data(b"bye")),
        StreamEvent(stream, Closed(code=StreamCode.ENDED, reason="The shell has ended")),
    ]
    assert at_machine == []
    assert len(ends.service) == len(ends.machine) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * MAX_DATA)), max_size=60))
def test_bytes_arrive_once_and_in_order_within_the_window(steps: list[tuple[bool, int]]) -> None:
    ends = Ends()
    stream = ends.open()
    sent, arrived, waiting = bytearray(), bytearray(), 0
    for is_reading, count in steps:
        if is_reading:
            data = received(ends.carry()[0])
            arrived += data
            waiting += len(data)
            taken = min(waiting, 4 * count)
            ends.service.consumed(stream, taken)
            waiting -= taken
            ends.carry()
        else:
            data = bytes(len(sent) % 251 for _ in range(min(count, ends.machine.room(stream))))
            ends.machine.send(stream, data)
            sent += data
        assert len(sent) - len(arrived) + waiting <= WINDOW
    arrived += received(ends.carry()[0])
    assert arrived == sent


def test_a_viewer_that_does_not_read_stops_only_its_own_stream() -> None:
    ends = Ends()
    slow, quick = ends.open(), ends.open()
    ends.machine.send(slow, b"y" * WINDOW)
    assert ends.machine.room(slow) == 0
    with pytest.raises(ValueError, match="no room"):
        ends.machine.send(slow, b"y")
    ends.machine.send(quick, b"here")
    numbers = []
    while (message := ends.machine.next_message()) is not None:
        numbers.append(decode(message)[0])
        ends.service.receive(message)
    assert quick in numbers[:2]  # streams take turns
    assert len(received(ends.service.events())) == WINDOW + 4
    assert ends.machine.room(slow) == 0
    ends.service.consumed(slow, WINDOW)
    assert ends.carry() == ([], [StreamEvent(slow, Grant(WINDOW))])
    assert ends.machine.room(slow) == WINDOW


def test_more_than_the_window_allows_closes_the_stream() -> None:
    ends = Ends()
    stream, other = ends.open(), ends.open()
    for _ in range(WINDOW // MAX_DATA):
        ends.machine.receive(encode(stream, Data(b"x" * MAX_DATA)))
    ends.machine.events()
    ends.machine.receive(encode(stream, Data(b"x")))
    ((_, closed),) = ends.machine.events()
    assert isinstance(closed, Closed)
    assert closed.code == StreamCode.BAD_MESSAGE
    assert list(ends.machine) == [other]
    ends.machine.receive(encode(other, Grant(1)))  # more than were sent
    assert list(ends.machine) == []
    at_service, _ = ends.carry()
    assert {number for number, message in at_service if isinstance(message, Closed)} == {
        stream,
        other,
    }


@pytest.mark.parametrize(
    "message",
    [
        bytes([MessageType.RESIZE, 0, 0, 0, 1]) + b"{",
        bytes([MessageType.RESIZE, 0, 0, 0, 1]) + b'{"columns": 0, "rows": 1}',
        bytes([MessageType.WINDOW, 0, 0, 0, 1]) + b"\0\0\0\0",
        bytes([MessageType.WINDOW, 0, 0, 0, 1]) + b"\1",
        bytes([MessageType.DATA, 0, 0, 0, 1]),
        encode(1, Opened(columns=1, rows=1)),
    ],
)
def test_a_fault_in_a_stream_closes_only_that_stream(message: bytes) -> None:
    ends = Ends()
    stream, other = ends.open(), ends.open()
    ends.machine.receive(message)
    assert list(ends.machine) == [other]
    at_service, at_machine = ends.carry()
    assert [type(message) for _, message in at_service + at_machine] == [Closed, Closed]
    assert list(ends.service) == [other]
    ends.service.send(stream, b"late")
    ends.machine.receive(encode(stream, Data(b"late")))
    assert ends.carry() == ([], [])


def test_a_fault_in_an_opening_refuses_it() -> None:
    ends = Ends()
    ends.machine.receive(bytes([MessageType.OPEN, 0, 0, 0, 5]) + b'{"columns": 80}')
    message = ends.machine.next_message()
    assert message is not None
    number, closed = decode(message)
    assert number == 5
    assert isinstance(closed, Closed)
    assert closed.code == StreamCode.BAD_MESSAGE
    assert ends.machine.events() == []


@pytest.mark.parametrize(
    "message", [b"", b"\1\0\0\0", encode(1, REQUEST), bytes(MAX_MESSAGE_BYTES + 1)]
)
def test_a_fault_of_the_connection_is_an_error(message: bytes) -> None:
    ends = Ends()
    ends.open()
    with pytest.raises(DecodeError):
        ends.machine.receive(message)


def test_a_message_of_a_newer_peer_is_ignored() -> None:
    ends = Ends()
    stream = ends.open()
    ends.machine.receive(bytes([99, 0, 0, 0, stream]) + b"?")
    assert ends.carry() == ([], [])
    assert list(ends.machine) == [stream]


def test_both_ends_may_close_at_once() -> None:
    ends = Ends()
    stream = ends.open()
    ends.service.close(stream, StreamCode.ENDED)
    ends.machine.close(stream, StreamCode.ENDED)
    ends.machine.close(stream, StreamCode.FAILED, "a second time")
    assert ends.carry() == ([], [])
    assert len(ends.service) == len(ends.machine) == 0


def test_there_is_a_limit_to_the_streams() -> None:
    ends = Ends()
    for _ in range(MAX_STREAMS):
        ends.open()
    assert ends.service.open(REQUEST) is None
    ends.machine.receive(encode(1000, REQUEST))
    message = ends.machine.next_message()
    assert message is not None
    _, closed = decode(message)
    assert isinstance(closed, Closed)
    assert closed.code == StreamCode.TOO_MANY
    assert len(ends.machine) == MAX_STREAMS
