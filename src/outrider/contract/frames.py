"""The daemon protocol: the JSON frames on a machine's WebSocket.

contributing/protocol.md describes their order and meaning.

A frame is a JSON object in one text message, with its kind in `type`. Frames of an unknown kind are
ignored, so that either side may be newer.

The types of the fields declare their limits, for both sides. `limits` has the limits of a machine's
frames together.
"""

from enum import IntEnum
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Raw

from outrider.contract.errors import ErrorCode, ErrorDetail, OutriderError
from outrider.contract.events import MAX_EVENT_CONTENT, AgentEvent, Refused
from outrider.contract.limits import MAX_PROVIDERS, MAX_SESSIONS
from outrider.contract.resources import Machine, Provider, Session
from outrider.contract.structs import Wire
from outrider.contract.text import Id, Name, ShortName, Text, explained

PROTOCOL_VERSION: Final = 1
"""The supported version. A hello with another one is refused with `UNSUPPORTED_VERSION`."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame, either way. A larger one closes the socket with 1009."""

MAX_HELLO_BYTES: Final = 4 * 1024 * 1024
"""The largest hello, and so the most that a machine may send before its welcome."""

MAX_COMMANDS_IN_FLIGHT: Final = 256
"""Commands of one machine that may be in flight; further ones get a 503."""

UNKNOWN_COMMAND: Final = "does not know the command"
"""Part of the error (400, with the detail `type`) of a daemon that does not know a command."""

PING_INTERVAL: Final = 20.0
"""Seconds between the service's pings. `service/server.py` says how long a machine may leave one
unanswered."""

HELLO_TIMEOUT: Final = 10.0
"""Seconds from the upgrade in which a machine must send its hello."""


EventNumber = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The number of an event on its machine; 0 means none."""

Millis = Annotated[int, Meta(ge=0, le=24 * 3600 * 1000)]
"""A duration in milliseconds, at most a day."""


ReportedProviders = Annotated[list[Provider], Meta(max_length=MAX_PROVIDERS)]
ReportedSessions = Annotated[list[Session], Meta(max_length=MAX_SESSIONS)]


class CloseCode(IntEnum):
    """Why a socket was closed, in addition to the codes of RFC 6455."""

    GOING_AWAY = 1001
    TRY_AGAIN_LATER = 1013
    BAD_FRAME = 4400
    UNAUTHORIZED = 4401
    DISCONNECTED = 4403
    HELLO_TIMEOUT = 4408
    REPLACED = 4409
    TOO_MUCH_STATE = 4413
    UNSUPPORTED_VERSION = 4426
    TOO_MANY_EVENTS = 4429


class DecodeError(OutriderError):
    """The message is not a valid frame. Decoding raises no other error."""


class Hello(Wire, tag="hello", kw_only=True):
    """Daemon → service, the first frame: the machine and its current state.

    `last_event` is the number of the machine's newest event, 0 for none. `terminals` says that
    the daemon takes the binary messages of `link.terminals`.
    """

    protocol: int
    version: ShortName
    machine: Machine
    providers: ReportedProviders = []
    sessions: ReportedSessions = []
    last_event: EventNumber = 0
    terminals: bool = False


class Welcome(Wire, tag="welcome", kw_only=True):
    """Service → daemon, the response to hello.

    `acknowledged` is the number of the newest event that the service has stored for this
    machine; the daemon sends all later ones again. `events` are the names of the further events
    that the service takes, beside `contract.events.BASIC_EVENTS`.
    """

    protocol: int
    version: str
    daemon_id: str
    nickname: str
    acknowledged: EventNumber = 0
    events: list[str] = []


class Snapshot(Wire, tag="snapshot", kw_only=True):
    """Daemon → service: the complete state of the machine; it replaces the previous one."""

    machine: Machine
    providers: ReportedProviders
    sessions: ReportedSessions


class Change(Wire, tag="change", kw_only=True):
    """Daemon → service: changed and removed sessions, and the machine with its current load."""

    sessions: ReportedSessions = []
    removed: Annotated[list[Id], Meta(max_length=MAX_SESSIONS)] = []
    machine: Machine | None = None


class Command(Wire, tag="command", kw_only=True, omit_defaults=True):
    """Service → daemon: execute this and send a `result` with the same id within `timeout_ms`.

    `traceparent` continues the trace of the request (W3C Trace Context), and is not validated
    here: it must not make a command fail.
    """

    id: Name
    command: Name
    payload: Raw
    timeout_ms: Millis
    traceparent: str | None = None


class Cancel(Wire, tag="cancel", kw_only=True):
    """Service → daemon: no client waits for this command."""

    id: Name


class Failure(Wire, kw_only=True):
    """Why a command failed: the error response for the client."""

    status: Annotated[int, Meta(ge=400, le=599)]
    message: Text
    code: ErrorCode | None = None
    details: Annotated[list[ErrorDetail], Meta(max_length=64)] = []


class CommandResult(Wire, tag="result", kw_only=True):
    """Daemon → service: the result of a command; `result` is set if `error` is null."""

    id: Name
    result: Raw = Raw(b"null")
    error: Failure | None = None


class Event(Wire, tag="event", kw_only=True):
    """Daemon → service: an event with its number on this machine.

    The numbers increase by one; a gap means that the machine had to drop events.
    """

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    event: AgentEvent


class Refusal(Wire, tag="refusal", kw_only=True):
    """Daemon → service: a request of an agent that the machine refused, for the audit log.

    The numbers increase; a gap means that the machine had to drop some.
    """

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    refused: Refused


class AcknowledgeRefusals(Wire, tag="noted", kw_only=True):
    """Service → daemon: every refusal up to `seq` is in the audit log, or dropped by its limit."""

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]


class Delta(Wire, tag="delta", kw_only=True):
    """Daemon → service: more text of a message that an agent is writing.

    Sent only while the service asks for it, not numbered and not repeated. `replace` replaces the
    text so far, `append` adds to it. `revision` increases by one with each delta of a message.
    """

    session_id: Id
    message_id: Name
    revision: EventNumber
    op: Literal["append", "replace"]
    text: Annotated[str, Meta(max_length=MAX_EVENT_CONTENT)]


class WatchDeltas(Wire, tag="deltas", kw_only=True):
    """Service → daemon: send deltas of these sessions from now on; null: of all, empty: of none.

    It replaces an earlier one. A new connection begins without deltas.
    """

    sessions: list[str] | None


class Acknowledge(Wire, tag="ack", kw_only=True):
    """Service → daemon: every event up to `seq` is stored; the daemon may delete it."""

    seq: EventNumber


class Goodbye(Wire, tag="goodbye", kw_only=True):
    """Either way: this side is stopping. The daemon moves within `reconnect_ms`."""

    reason: Text
    reconnect_ms: Millis = 0


FromDaemon = Hello | Snapshot | Change | CommandResult | Event | Refusal | Delta | Goodbye
FromService = Welcome | Command | Cancel | Acknowledge | AcknowledgeRefusals | WatchDeltas | Goodbye
Frame = FromDaemon | FromService


class _Kind(msgspec.Struct):
    type: str
    protocol: Any = None  # of an unknown kind, it may be anything


_FrameT = TypeVar("_FrameT")
_from_daemon: msgspec.json.Decoder[FromDaemon] = msgspec.json.Decoder(FromDaemon)
_from_service: msgspec.json.Decoder[FromService] = msgspec.json.Decoder(FromService)
_kind = msgspec.json.Decoder(_Kind)


def close_reason(text: str) -> str:
    """Return `text` cut to the limit of a WebSocket close reason, 123 bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:123].decode(errors="ignore")


def encode(frame: Frame) -> bytes:
    """Return the frame as the bytes of one WebSocket text message (UTF-8 JSON)."""
    return msgspec.json.encode(frame)


def decode_from_daemon(data: bytes | str) -> FromDaemon | None:
    """Return the daemon's frame, or None for an unknown kind.

    Raises:
        DecodeError: `data` is not a frame.
    """
    return _decode(_from_daemon, FromDaemon, data)


def decode_from_service(data: bytes | str) -> FromService | None:
    """Return the service's frame, as `decode_from_daemon` does."""
    return _decode(_from_service, FromService, data)


def hello_protocol(data: bytes | str) -> int | None:
    """Return the protocol version of a hello, or None if this is not a hello with a version.

    Works even if this version cannot decode the other fields.
    """
    try:
        kind = _kind.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return kind.protocol if kind.type == "hello" and type(kind.protocol) is int else None


def _decode(
    decoder: msgspec.json.Decoder[_FrameT], kinds: Any, data: bytes | str
) -> _FrameT | None:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # Not kept in a variable after this block: with its traceback it would be a reference cycle
        # that holds 16 MiB of `data` until the next garbage collection.
        try:
            kind = _kind.decode(data).type
        except (msgspec.DecodeError, UnicodeError, RecursionError) as no_frame:
            raise DecodeError(f"Not a frame: {no_frame}") from no_frame
        if any(kind == frame.__struct_config__.tag for frame in get_args(kinds)):
            raise DecodeError(f"Not a valid {kind!r} frame: {_explanation(error)}") from error
        return None  # a frame of a newer version


def _explanation(error: Exception) -> str:
    """Return the error and its place, short enough for a close reason."""
    what, _, place = str(error).partition(" - at `$")
    what = explained(what)
    return f"{what} at {place.rstrip('`').lstrip('.')}" if place else what
