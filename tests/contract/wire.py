"""Messages that a peer may send: well-formed frames, slightly broken ones, rubbish, huge ones."""

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from outrider.contract.frames import FromDaemon, FromService, encode
from tests.contract import strategies

Message = str | bytes

HUGE: list[Message] = [
    "x" * (17 * 1024 * 1024),
    "[" * 1_000_000,
    '{"type": "event", "seq": ' + "9" * 100_000 + "}",
    '{"type": "hello", "protocol": ' + "1" * 5_000 + "}",
    '{"type": "goodbye", "reason": "' + "\\u0000" * 100_000 + '"}',
    '{"type": "change", "removed": [' + '"a",' * 200_000 + '"a"]}',
    '{"type": "result", "id": "a", "result": ' + "[" * 100_000 + "]" * 100_000 + "}",
    b"\0" * 1_000_000,
]


def _encoded(frame: Any) -> str:
    try:
        return encode(frame).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a number beyond JSON's
        return msgspec.json.encode({"type": "change", "sessions": [None]}).decode()


@st.composite
def _damaged(draw: st.DrawFn, frames: st.SearchStrategy[Any]) -> Message:
    whole = bytearray(_encoded(draw(frames)).encode())
    for _ in range(draw(st.integers(1, 3))):
        whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
    data = bytes(whole[: draw(st.integers(1, len(whole)))])
    return data if draw(st.booleans()) else data.decode(errors="replace")


def messages(kinds: Any) -> st.SearchStrategy[Message]:
    """Return what a peer may send whose frames are of these kinds."""
    sound = st.one_of([strategies.of(kind) for kind in get_args(kinds)])
    beyond = st.one_of([strategies.beyond(kind) for kind in get_args(kinds)])
    return st.one_of(
        sound.map(_encoded),
        beyond.map(_encoded),
        _damaged(sound),
        st.binary(max_size=100),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
        st.sampled_from(HUGE),
    )


from_daemon = messages(FromDaemon)
from_service = messages(FromService)
