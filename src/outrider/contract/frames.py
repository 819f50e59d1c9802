"""The daemon protocol: the JSON frames on a machine's WebSocket.

docs/protocol.md tells how they go.

A frame is a JSON object in one text message, with its kind in `type`. A frame of a kind
that this version does not know is ignored, so that either side may be the newer one.

The types of the fields declare how long each may be, for both sides. `limits` has what a machine
may send beyond that.
"""

from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from outrider.contract.errors import ErrorCode, ErrorDetail, OutriderError
from outrider.contract.events import AgentEvent, Refused
from outrider.contract.limits import MAX_PROVIDERS, MAX_SESSIONS
from outrider.contract.resources import Machine, Provider, Session
from outrider.contract.structs import Wire
from outrider.contract.text import Id, Name, ShortName, Text, explained

PROTOCOL_VERSION: Final = 1
"""What this side speaks. A hello with another one is refused with `UNSUPPORTED_VERSION`."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The largest frame, either way. A larger one closes the socket with 1009."""

MAX_HELLO_BYTES: Final = 4 * 1024 * 1024
"""The largest hello, and so what a machine may send before its welcome. As above."""

MAX_COMMANDS_IN_FLIGHT: Final = 256
"""How many commands one machine may have unanswered before further ones get a 503."""

PING_INTERVAL: Final = 20.0
"""Seconds between the service's pings; a machine silent for two of them is dropped."""

HELLO_TIMEOUT: Final = 10.0
"""Seconds that a machine has for its hello."""


EventNumber = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""The number of an event on its machine; 0 stands for none."""

Millis = Annotated[int, Meta(ge=0, le=24 * 3600 * 1000)]
"""A span of time, at most a day."""


Providers = Annotated[list[Provider], Meta(max_length=MAX_PROVIDERS)]
Sessions = Annotated[list[Session], Meta(max_length=MAX_SESSIONS)]


class CloseCode(IntEnum):
    """Why a socket was closed, beside RFC 6455's own codes."""

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
    """A message that is not a frame. The only error that decoding raises."""


class Hello(Wire, tag="hello", kw_only=True):
    """Daemon → service, first: who is speaking, and what runs on the machine now.

    `last_event` is the number of the newest event that the machine has made, 0 for none.
    """

    protocol: int
    version: ShortName
    machine: Machine
    providers: Providers = []
    sessions: Sessions = []
    last_event: EventNumber = 0


class Welcome(Wire, tag="welcome", kw_only=True):
    """Service → daemon, the answer to hello.

    `acknowledged` is the number of the newest event that the service has stored for this
    machine; the daemon replays those behind it.
    """

    protocol: int
    version: str
    daemon_id: str
    nickname: str
    acknowledged: EventNumber = 0


class Snapshot(Wire, tag="snapshot", kw_only=True):
    """Daemon → service: everything that runs on the machine, in place of what was known."""

    machine: Machine
    providers: Providers
    sessions: Sessions


class Change(Wire, tag="change", kw_only=True):
    """Daemon → service: the sessions that changed or went, and fresh figures of the machine."""

    sessions: Sessions = []
    removed: Annotated[list[Id], Meta(max_length=MAX_SESSIONS)] = []
    machine: Machine | None = None


class Command(Wire, tag="command", kw_only=True):
    """Service → daemon: do this and answer with a `result` of the same id within `timeout_ms`."""

    id: Name
    command: Name
    payload: Raw
    timeout_ms: Millis


class Cancel(Wire, tag="cancel", kw_only=True):
    """Service → daemon: nobody waits for this command any more."""

    id: Name


class Failure(Wire, kw_only=True):
    """Why a command could not be done, as the HTTP response will tell it."""

    status: Annotated[int, Meta(ge=400, le=599)]
    message: Text
    code: ErrorCode | None = None
    details: Annotated[list[ErrorDetail], Meta(max_length=64)] = []


class CommandResult(Wire, tag="result", kw_only=True):
    """Daemon → service: the answer to a command; `result` where `error` is null."""

    id: Name
    result: Raw = Raw(b"null")
    error: Failure | None = None


class Event(Wire, tag="event", kw_only=True):
    """Daemon → service: an event with its number on this machine.

    The numbers grow by one; a gap tells that the machine had to drop events.
    """

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    event: AgentEvent


class Refusal(Wire, tag="refusal", kw_only=True):
    """Daemon → service: what the machine kept an agent from doing, for the account's audit.

    The numbers grow; a gap tells that the machine had to drop some.
    """

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    refused: Refused


class Noted(Wire, tag="noted", kw_only=True):
    """Service → daemon: every refusal up to `seq` is in the audit, or not wanted there."""

    seq: Annotated[int, Meta(ge=1, le=2**53 - 1)]


class Acknowledge(Wire, tag="ack", kw_only=True):
    """Service → daemon: every event up to `seq` is stored and will not be asked for again."""

    seq: EventNumber


class Goodbye(Wire, tag="goodbye", kw_only=True):
    """Either way: this side is about to stop. The daemon reconnects after `reconnect_ms`."""

    reason: Text
    reconnect_ms: Millis = 0


FromDaemon = Hello | Snapshot | Change | CommandResult | Event | Refusal | Goodbye
FromService = Welcome | Command | Cancel | Acknowledge | Noted | Goodbye
Frame = FromDaemon | FromService


class _Kind(msgspec.Struct):
    type: str
    protocol: Any = None  # of an unknown kind, it may be anything


_from_daemon: msgspec.json.Decoder[FromDaemon] = msgspec.json.Decoder(FromDaemon)
_from_service: msgspec.json.Decoder[FromService] = msgspec.json.Decoder(FromService)
_kind = msgspec.json.Decoder(_Kind)
_encoder = msgspec.json.Encoder()

_DAEMON_KINDS: Final = frozenset(
    {"hello", "snapshot", "change", "result", "event", "refusal", "goodbye"}
)
_SERVICE_KINDS: Final = frozenset({"welcome", "command", "cancel", "ack", "noted", "goodbye"})


def close_reason(text: str) -> str:
    """Return `text` as a reason that a WebSocket close can carry: at most 123 bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:123].decode(errors="ignore")


def encode(frame: Frame) -> bytes:
    """Return the frame as the bytes of one WebSocket text message (UTF-8 JSON)."""
    return _encoder.encode(frame)


def decode_from_daemon(data: bytes | str) -> FromDaemon | None:
    """Return the daemon's frame, None for a kind that this version does not know.

    Raises:
        DecodeError: `data` is not a frame.
    """
    try:
        return _from_daemon.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _raise_unless_unknown(data, _DAEMON_KINDS, error)
        return None


def decode_from_service(data: bytes | str) -> FromService | None:
    """Return the service's frame, None for a kind that this version does not know.

    Raises:
        DecodeError: `data` is not a frame.
    """
    try:
        return _from_service.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _raise_unless_unknown(data, _SERVICE_KINDS, error)
        return None


def hello_protocol(data: bytes | str) -> int | None:
    """Return the version that a hello is in, None where this is not a hello with a version.

    For a hello whose other fields this version may not understand.
    """
    try:
        kind = _kind.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return kind.protocol if kind.type == "hello" and type(kind.protocol) is int else None


def _raise_unless_unknown(data: bytes | str, known: frozenset[str], cause: Exception) -> None:
    """Tell a frame of an unknown kind from rubbish, off the hot path."""
    try:
        kind = _kind.decode(data).type
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"Not a frame: {error}") from error
    if kind in known:
        raise DecodeError(f"Not a valid {kind!r} frame: {_explanation(cause)}") from cause


def _explanation(error: Exception) -> str:
    """Return what is wrong and where, short enough for the reason of a close."""
    what, _, place = str(error).partition(" - at `$")
    what = explained(what)
    return f"{what} at {place.rstrip('`').lstrip('.')}" if place else what
