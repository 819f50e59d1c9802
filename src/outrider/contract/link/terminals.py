r"""Terminals on a machine's link: their binary messages and the state of their streams; no I/O.

A stream is one viewer of one terminal. The service opens it, and both ends send bytes:

    service                                                    machine agent
    open() ───────────── OPEN ───────────────▶ Open ─▶ attach, then opened()
    Opened ◀──────────── OPENED ─────────────┘
    Data ◀────────────── DATA (output) ─────── send(), at most `room` bytes
    consumed() ───────── WINDOW ─────────────▶ Grant
    send(), resize() ─── DATA, RESIZE ───────▶ Data, Resize
    close() ──────────── CLOSED ─────────────▶ Closed      (or the other way)

`encode` and `decode` are the codec. `TerminalStreams` has the streams of one connection, at either
end: report received messages to it, take its `events`, and pull what is to be sent with
`next_message`, whenever the socket has nothing more urgent to send.

Invariants:

- Each direction of a stream has a window of `WINDOW` bytes. `send` accepts only what the window
  allows, so what waits to be sent, and what has arrived and is not `consumed`, is bounded by it.
- So everything that was sent before `close` can be sent without waiting for the other end.
- Numbers of streams increase and are never reused on a connection: a message that was under way
  when its stream was closed cannot be taken for one of another stream.
- A malformed message never raises anything but `DecodeError`: if its header cannot be read, the
  connection is to be closed; a fault within a stream closes only that stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from outrider.contract.commands import TerminalName
from outrider.contract.frames import DecodeError
from outrider.contract.structs import Wire
from outrider.contract.text import Id, Text

WINDOW: Final = 256 * 1024
"""Bytes that may be under way in each direction of a stream."""

MAX_DATA: Final = 16 * 1024
"""Bytes in one DATA message: frames that wait behind one are not delayed by a large state."""

MAX_STREAMS: Final = 64
"""Streams of a machine; a further OPEN is refused."""

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""The longest message that is accepted."""

_HEADER: Final = Struct(">BI")
_GRANT: Final = Struct(">I")
_GRANT_FROM: Final = WINDOW // 4
"""Bytes consumed before the other end is granted more: one WINDOW message for many of DATA."""

Columns = Annotated[int, Meta(ge=1, le=1000)]
"""The width or the height of a terminal, in characters."""


class MessageType(IntEnum):
    """The first byte of a message. Messages of other kinds are ignored."""

    OPEN = 1
    OPENED = 2
    DATA = 3
    RESIZE = 4
    WINDOW = 5
    CLOSED = 6


class StreamCode(IntEnum):
    """Why a stream was closed; each is a close code of a WebSocket too."""

    ENDED = 1000
    """The program has ended, or the viewer has left."""
    GOING_AWAY = 1001
    """The connection or this side is about to end: open the terminal again."""
    BAD_MESSAGE = 4400
    FORBIDDEN = 4403
    NOT_FOUND = 4404
    CONFLICT = 4409
    """The agent has no terminal."""
    TOO_MANY = 4429
    FAILED = 4500


# Messages


class Open(Wire, kw_only=True):
    """Service → daemon: open a stream to the terminal of a session, or to a named terminal.

    A viewer in mode `read` types and resizes nothing.
    """

    session_id: Id | None = None
    name: TerminalName | None = None
    mode: Literal["write", "read"] = "write"
    columns: Columns = 80
    rows: Columns = 24

    def __post_init__(self) -> None:
        if (self.session_id is None) == (self.name is None):
            raise ValueError("either `sessionId` or `name` must be given")


class Opened(Wire, kw_only=True):
    """Daemon → service: the stream is open; the terminal has this size now."""

    columns: Columns
    rows: Columns


class Resize(Wire, kw_only=True):
    """Service → daemon: the viewer's screen has this size now."""

    columns: Columns
    rows: Columns


class Closed(Wire, kw_only=True):
    """Either way: the stream is closed. `code` is a `StreamCode`; a newer peer may have others."""

    code: Annotated[int, Meta(ge=1000, le=4999)]
    reason: Text = ""


@dataclass(frozen=True)
class Data:
    """Either way: bytes of the terminal, at least state."""

    data: bytes


@dataclass(frozen=True)
class Grant:
    """Either way: the receiver of DATA has consumed this many bytes; as many more may be sent."""

    count: int


StreamMessage = Open | Opened | Resize | Closed | Data | Grant

_JSON: Final[dict[MessageType, type[Open] | type[Opened] | type[Resize] | type[Closed]]] = {
    MessageType.OPEN: Open,
    MessageType.OPENED: Opened,
    MessageType.RESIZE: Resize,
    MessageType.CLOSED: Closed,
}
_KINDS: Final = {kind: number for number, kind in _JSON.items()}


class StreamError(DecodeError):
    """The payload of a message is malformed: close its stream."""

    def __init__(self, stream: int, reason: str) -> None:
        super().__init__(reason)
        self.stream = stream


def encode(stream: int, message: StreamMessage) -> bytes:
    """Return a message of a stream as the bytes of one binary WebSocket message."""
    match message:
        case Data(data):
            return _HEADER.pack(MessageType.DATA, stream) + data
        case Grant(count):
            return _HEADER.pack(MessageType.WINDOW, stream) + _GRANT.pack(count)
    return _HEADER.pack(_KINDS[type(message)], stream) + msgspec.json.encode(message)


def decode(data: bytes) -> tuple[int, StreamMessage | None]:
    """Return the stream and its message; None for a message of an unknown kind.

    Raises:
        StreamError: the payload is malformed: the stream is to be closed.
        DecodeError: the header is: the connection is to be closed.
    """
    if len(data) < _HEADER.size:
        raise DecodeError(f"A binary message of {len(data)} bytes has no header")
    if len(data) > MAX_MESSAGE_BYTES:
        raise DecodeError(f"A binary message has more than {MAX_MESSAGE_BYTES} bytes")
    number, stream = _HEADER.unpack_from(data)
    try:
        kind = MessageType(number)
    except ValueError:
        return stream, None
    payload = data[_HEADER.size :]
    if kind is MessageType.DATA:
        if not payload:
            raise StreamError(stream, "A DATA message is empty")
        return stream, Data(payload)
    if kind is MessageType.WINDOW:
        if len(payload) != _GRANT.size or not any(payload):
            raise StreamError(stream, "A WINDOW message does not hold a number above 0")
        return stream, Grant(_GRANT.unpack(payload)[0])
    try:
        return stream, msgspec.json.decode(payload, type=_JSON[kind])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StreamError(stream, f"Not a valid {kind.name} message: {error}"[:200]) from error


class StreamEvent(NamedTuple):
    """What has happened to a stream: a message of the other end, or its end because of a fault.

    - `Open`: call `opened` or `close`. Its data may arrive before that.
    - `Data`: call `consumed` as soon as the bytes are passed on.
    - `Grant`: `room` has grown.
    - `Opened`, `Resize`; `Closed` is the last state.
    """

    stream: int
    message: StreamMessage


class _Stream:
    """The state of one stream. `outgoing` never has more than `credit` bytes."""

    def __init__(self, greeting: Open | None = None) -> None:
        self.greeting: Open | Opened | None = greeting
        self.outgoing = bytearray()
        self.credit = WINDOW
        """Bytes that may be sent, those in `outgoing` included."""
        self.ungranted = 0
        """Bytes that have arrived and are not granted again, whether consumed or not."""
        self.consumed = 0
        """Those of `ungranted` that are consumed."""
        self.size: Resize | None = None
        self.closing: Closed | None = None

    @property
    def has_output(self) -> bool:
        return bool(self.outgoing) or self.has_control or self.closing is not None

    @property
    def has_control(self) -> bool:
        return self.greeting is not None or self.size is not None or self.consumed >= _GRANT_FROM


class TerminalStreams:
    """The streams of one connection, at one end.

    Args:
        is_machine: whether this is the machine's end: streams are opened by the service.
    """

    def __init__(self, *, is_machine: bool) -> None:
        self._is_machine = is_machine
        self._last = 0
        self._streams: dict[int, _Stream] = {}
        """In the order in which they may send: the one that has just sent comes last."""
        self._refusals: dict[int, Closed] = {}
        """Of streams that never came about, or broke the protocol: CLOSED is to be sent."""
        self._events: list[StreamEvent] = []

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[int]:
        """Return the numbers of the streams that are not closed."""
        return iter([number for number, stream in self._streams.items() if stream.closing is None])

    # Output

    def events(self) -> list[StreamEvent]:
        """Return the events that have happened, in this order; each is returned once."""
        events, self._events = self._events, []
        return events

    def next_message(self) -> bytes | None:
        """Return the next message to send, None if there is none; streams take turns."""
        if self._refusals:
            number = next(iter(self._refusals))
            return encode(number, self._refusals.pop(number))
        number = next((n for n, stream in self._streams.items() if stream.has_control), 0) or next(
            (n for n, stream in self._streams.items() if stream.has_output), 0
        )
        if not number:
            return None
        stream = self._streams.pop(number)
        message = _take(stream)
        if not isinstance(message, Closed):
            self._streams[number] = stream
        return encode(number, message)

    def room(self, stream: int) -> int:
        """Return how many bytes `send` accepts now; 0 for a stream that is closed."""
        state = self._open(stream)
        return 0 if state is None else state.credit - len(state.outgoing)

    # What this end does. A stream that is closed already is ignored.

    def open(self, request: Open) -> int | None:
        """Open a stream and return its number; None if the connection has `MAX_STREAMS`."""
        if len(self._streams) >= MAX_STREAMS:
            return None
        self._last += 1
        self._streams[self._last] = _Stream(request)
        return self._last

    def opened(self, stream: int, columns: int, rows: int) -> None:
        """Answer `OpenRequested`: the terminal is attached, and has this size."""
        state = self._open(stream)
        if state is not None:
            state.greeting = Opened(columns=columns, rows=rows)

    def send(self, stream: int, data: bytes) -> None:
        """Send bytes, at most `room`.

        Raises:
            ValueError: there is not so much room.
        """
        state = self._open(stream)
        if state is None:
            return
        if len(data) > state.credit - len(state.outgoing):
            raise ValueError(f"Stream {stream} has no room for {len(data)} bytes")
        state.outgoing += data

    def resize(self, stream: int, columns: int, rows: int) -> None:
        """Send the size of the viewer's screen; only the newest one waits."""
        state = self._open(stream)
        if state is not None:
            state.size = Resize(columns=columns, rows=rows)

    def consumed(self, stream: int, count: int) -> None:
        """Report that received bytes are passed on: the other end may send as many more."""
        state = self._open(stream)
        if state is not None:
            state.consumed = min(state.consumed + count, state.ungranted)

    def close(self, stream: int, code: StreamCode, reason: str = "") -> None:
        """Close a stream after what was sent on it."""
        state = self._open(stream)
        if state is not None:
            state.closing = Closed(
                code=code, reason=reason[:1024].replace("\0", "\N{REPLACEMENT CHARACTER}")
            )

    # Input

    def receive(self, data: bytes) -> None:
        """Report a binary message that has arrived.

        Raises:
            DecodeError: close the connection.
        """
        try:
            number, message = decode(data)
        except StreamError as error:
            if error.stream in self._streams:
                self._fail(error.stream, str(error))
            elif self._is_machine and data[0] == MessageType.OPEN and error.stream > self._last:
                self._last = error.stream
                self._refuse(error.stream, StreamCode.BAD_MESSAGE, str(error))
            return
        if isinstance(message, Open):
            self._receive_open(number, message)
            return
        stream = self._open(number)
        if stream is not None and message is not None:
            self._receive(number, stream, message)
        elif isinstance(message, Closed):
            self._streams.pop(number, None)  # both ends have closed it

    def _receive_open(self, number: int, request: Open) -> None:
        if not self._is_machine:
            raise DecodeError("Only the service opens streams")
        if number <= self._last:
            raise DecodeError(f"The number {number} of a stream is not above the last one")
        self._last = number
        if len(self._streams) >= MAX_STREAMS:
            reason = f"{MAX_STREAMS} terminals are open on this machine: close one of them"
            self._refuse(number, StreamCode.TOO_MANY, reason)
            return
        self._streams[number] = _Stream()
        self._events.append(StreamEvent(number, request))

    def _receive(self, number: int, stream: _Stream, message: StreamMessage) -> None:
        fault = None
        match message:
            case Data(data):
                stream.ungranted += len(data)
                if stream.ungranted > WINDOW:
                    fault = "More bytes arrived than the window allows"
            case Grant(count):
                if stream.credit + count > WINDOW:
                    fault = "More bytes were granted than were sent"
                else:
                    stream.credit += count
            case Closed():
                del self._streams[number]
            case Resize() if self._is_machine:
                pass
            case Opened() if not self._is_machine:
                pass
            case _:
                fault = f"{type(message).__name__} came from the wrong end"
        if fault is None:
            self._events.append(StreamEvent(number, message))
        else:
            self._fail(number, fault)

    def _open(self, number: int) -> _Stream | None:
        """Return the state of a stream that this end has not closed."""
        state = self._streams.get(number)
        return None if state is None or state.closing is not None else state

    def _fail(self, number: int, reason: str) -> None:
        """Close a stream on which the other end broke the protocol, and drop what waits."""
        stream = self._streams.pop(number)
        closed = self._refuse(number, StreamCode.BAD_MESSAGE, reason)
        if stream.closing is None:
            self._events.append(StreamEvent(number, closed))

    def _refuse(self, number: int, code: StreamCode, reason: str) -> Closed:
        if len(self._refusals) >= MAX_STREAMS:
            raise DecodeError("Too many streams are refused at once")
        closed = self._refusals[number] = Closed(code=code, reason=reason)
        return closed


def _take(stream: _Stream) -> StreamMessage:
    """Remove and return the next message of a stream that has output."""
    if stream.greeting is not None:
        greeting, stream.greeting = stream.greeting, None
        return greeting
    if stream.size is not None:
        size, stream.size = stream.size, None
        return size
    if stream.consumed >= _GRANT_FROM:
        count, stream.consumed = stream.consumed, 0
        stream.ungranted -= count
        return Grant(count)
    if stream.outgoing:
        data = bytes(stream.outgoing[:MAX_DATA])
        del stream.outgoing[:MAX_DATA]
        stream.credit -= len(data)
        return Data(data)
    assert stream.closing is not None
    return stream.closing
