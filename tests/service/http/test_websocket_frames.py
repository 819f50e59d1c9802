"""Frames of RFC 6455, against those of `websockets`."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ProtocolError
from websockets.frames import Close, Opcode
from websockets.frames import Frame as TheirFrame
from websockets.protocol import SERVER, Protocol

from outrider.service.http.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    FrameError,
    FrameReader,
    close_payload,
    frame_bytes,
    parse_close,
)

MAX_SIZE = 100_000
MASK = b"\x01\x80\xfe\x37"


def sent(
    first: int, payload: bytes = b"", *, mask: bytes | None = MASK, length: bytes | None = None
) -> bytes:
    """Return a client's frame; with `length`, one that states its length like that."""
    size = len(payload)
    if length is None:
        if size < 126:
            length = bytes((size,))
        else:
            wide = size >= 1 << 16
            length = bytes((127 if wide else 126,)) + size.to_bytes(8 if wide else 2, "big")
    if mask is None:
        return bytes((first,)) + length + payload
    key = mask * (size // 4 + 1)
    masked = bytes(one ^ other for one, other in zip(payload, key, strict=False))
    return bytes((first, length[0] | 0x80)) + length[1:] + mask + masked


def read(*parts: bytes, max_size: int = MAX_SIZE) -> tuple[list[Frame], int | None]:
    """Return the frames up to a close frame, and the code of the error after them."""
    reader = FrameReader(max_size)
    frames: list[Frame] = []
    try:
        for part in parts:
            reader.feed(part)
            while (frame := reader.read()) is not None:
                frames.append(frame)
                if frame[0] == CLOSE:
                    return frames, None
    except FrameError as error:
        return frames, error.code
    return frames, None


def read_by_websockets(*parts: bytes) -> tuple[list[Frame], int | None]:
    """Return the same of the library."""
    protocol = Protocol(SERVER, max_size=MAX_SIZE)
    frames: list[Frame] = []
    for part in parts:
        protocol.receive_data(part)
        for frame in protocol.events_received():
            assert isinstance(frame, TheirFrame)
            frames.append((int(frame.opcode), frame.fin, bytes(frame.data)))
        if protocol.parser_exc is not None:
            assert protocol.close_sent is not None
            return frames, int(protocol.close_sent.code)
        if protocol.close_rcvd is not None:
            break
    return frames, None


def of_size(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


data_sizes = st.sampled_from([0, 1, 3, 125, 126, 127, 400, 65_535, 65_536])
controls = st.builds(
    lambda opcode, size: sent(0x80 | opcode, of_size(size)),
    st.sampled_from([PING, PONG]),
    st.sampled_from([0, 1, 8, 124, 125]),
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Return the frames of a message, and of pings and pongs within and after it."""
    opcode, data = draw(st.sampled_from([TEXT, BINARY])), b""
    parts = draw(st.lists(data_sizes, min_size=1, max_size=3))
    for part, size in enumerate(parts):
        first = (CONTINUATION if part else opcode) | (0x80 if part == len(parts) - 1 else 0)
        data += sent(first, of_size(size)) + b"".join(draw(st.lists(controls, max_size=2)))
    return data


anything = st.builds(
    lambda first, size, mask: sent(first, of_size(size), mask=mask),
    st.integers(0, 255),
    data_sizes,
    st.sampled_from([MASK, b"\0\0\0\0", None]),
)


class TestReader:
    @settings(max_examples=100, deadline=None)
    @given(
        st.lists(messages(), max_size=4),
        st.lists(anything, max_size=2),
        st.lists(st.integers(0, 200_000), max_size=12),
    )
    def test_reads_what_websockets_reads(
        self, valid: list[bytes], more: list[bytes], cuts: list[int]
    ) -> None:
        data = b"".join(valid + more)
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        parts = [data[begin:end] for begin, end in pairwise(places)]
        (ours, code), (their, their_code) = read(*parts), read_by_websockets(*parts)
        if ours and ours[-1][0] == CLOSE:
            # They refuse one within a message, and one that is not valid: here it is a frame.
            assert ours[:-1] == [frame for frame in their if frame[0] != CLOSE]
        else:
            # The code is not compared: of a frame's errors, they report another one first.
            assert (ours, code is None) == (their, their_code is None)

    @pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
    def test_a_frame_may_arrive_byte_by_byte(self, size: int) -> None:
        payload = b"x" * size
        data = sent(0x82, payload) + sent(0x89, b"ping")
        parts = [data[at : at + 1] for at in range(len(data))]
        assert read(*parts) == ([(BINARY, True, payload), (PING, True, b"ping")], None)

    def test_control_frames_may_come_within_a_message(self) -> None:
        data = sent(0x01, b"a") + sent(0x89, b"?") + sent(0x00, b"b") + sent(0x8A) + sent(0x80)
        assert read(data) == (
            [
                (TEXT, False, b"a"),
                (PING, True, b"?"),
                (CONTINUATION, False, b"b"),
                (PONG, True, b""),
                (CONTINUATION, True, b""),
            ],
            None,
        )

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            pytest.param(sent(0x81, mask=None), 1002, id="not masked"),
            pytest.param(sent(0xC1), 1002, id="a reserved bit"),
            pytest.param(sent(0x83), 1002, id="an unknown opcode"),
            pytest.param(sent(0x8B), 1002, id="an unknown opcode of control frames"),
            pytest.param(sent(0x09), 1002, id="a ping in fragments"),
            pytest.param(sent(0x89, b"x" * 126), 1002, id="a long ping"),
            pytest.param(sent(0x80), 1002, id="continues nothing"),
            pytest.param(sent(0x01) + sent(0x81), 1002, id="does not continue"),
            pytest.param(sent(0x82, b"x" * 11), 1009, id="too big"),
            pytest.param(sent(0x02, b"x" * 6) + sent(0x80, b"x" * 5), 1009, id="too big together"),
        ],
    )
    def test_what_is_against_the_protocol(self, data: bytes, code: int) -> None:
        assert read(data, max_size=10)[1] == code

    def test_what_is_too_big_is_refused_before_it_arrives(self) -> None:
        """Or it could be sent slowly, and be kept in memory until it is whole."""
        header = sent(0x82, length=b"\x7f" + (1 << 40).to_bytes(8, "big"))
        assert read(header)[1] == 1009

    def test_the_maximum_is_of_a_message(self) -> None:
        data = sent(0x02, b"x" * 10) + sent(0x80) + sent(0x82, b"x" * 10) + sent(0x89, b"x" * 11)
        assert read(data, max_size=10)[1] is None

    def test_it_may_change(self) -> None:
        reader = FrameReader(1)
        reader.max_size = 2
        reader.feed(sent(0x82, b"xx"))
        assert reader.read() == (BINARY, True, b"xx")

    def test_a_length_may_take_more_bytes_than_it_needs(self) -> None:
        data = sent(0x82, b"x", length=b"\x7e\x00\x01") + sent(
            0x82, b"y", length=b"\x7f" + b"\0" * 7 + b"\1"
        )
        assert read(data) == ([(BINARY, True, b"x"), (BINARY, True, b"y")], None)

    def test_what_was_not_read_can_be_discarded(self) -> None:
        reader = FrameReader(MAX_SIZE)
        reader.feed(sent(0x81, b"a") + sent(0x81, b"b"))
        reader.read()
        reader.clear()
        reader.feed(sent(0x81, b"c"))
        assert reader.read() == (TEXT, True, b"c")


class TestWriting:
    @pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
    def test_a_frame_is_that_of_websockets(self, size: int) -> None:
        theirs = TheirFrame(Opcode.TEXT, b"x" * size).serialize(mask=False)
        assert frame_bytes(TEXT, b"x" * size) == theirs

    def test_a_close_frame(self) -> None:
        assert close_payload(4401, "nö") == Close(4401, "nö").serialize()

    @pytest.mark.parametrize(("code", "reason"), [(1006, ""), (1000, "x" * 124)])
    def test_a_close_frame_that_may_not_be_sent(self, code: int, reason: str) -> None:
        with pytest.raises(ProtocolError):
            close_payload(code, reason)

    def test_the_longest_reason(self) -> None:
        assert parse_close(close_payload(1000, "x" * 123)) == (1000, "x" * 123)


class TestParsingAClose:
    @pytest.mark.parametrize(
        ("data", "close"),
        [(b"", (1005, "")), (b"\x03\xe8", (1000, "")), (b"\x11\x31nein", (4401, "nein"))],
    )
    def test_it_has_a_code_and_a_reason(self, data: bytes, close: tuple[int, str]) -> None:
        assert parse_close(data) == close

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            pytest.param(b"\x03", 1002, id="half a code"),
            pytest.param(b"\x03\xee", 1002, id="a code that may not be sent"),
            pytest.param(b"\x03\xe8\xff", 1007, id="a reason that is not UTF-8"),
        ],
    )
    def test_what_is_not_valid(self, data: bytes, code: int) -> None:
        with pytest.raises(FrameError) as caught:
            parse_close(data)
        assert caught.value.code == code
