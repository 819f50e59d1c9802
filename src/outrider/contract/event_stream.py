"""The event log as the API shows it: the query, a page of events, and the frames of a stream."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from outrider.contract.structs import Wire
from outrider.contract.text import Name, TargetId
from outrider.contract.webhooks import Event

EventCursor = str
"""A place in the account's log; opaque to clients. Those of later events are greater.

Not limited in length: a cursor that is none of ours is a gap and not an error, which would end an
EventSource for good.
"""

MAX_WAIT = 60
"""Seconds for which a request may wait for the first event."""

MAX_PAGE = 500

StreamResume = Literal["fresh", "ok", "gap"]


class EventQuery(Wire, kw_only=True):
    """Selects events."""

    events: Annotated[str, Meta(max_length=1024)] | None = None
    """Names of events, separated by commas: `agent:error`, or `agent:*` for all of a kind."""
    daemon_id: Name | None = None
    """A machine's id: only events of this machine."""
    target: TargetId | None = None
    """A target id: only events of this session."""
    deltas: Literal["true", "false"] = "false"
    """Whether a stream also has `chat:delta` frames: the text of messages as agents write it."""
    after: EventCursor | None = None
    """The cursor after which to begin. In a stream the header `Last-Event-ID` takes precedence."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    """How many events a JSON response has, at most."""
    wait: Annotated[int, Meta(ge=0, le=MAX_WAIT)] = 0
    """Seconds that a JSON response may wait for the first event."""


class AccountEvent(Wire, kw_only=True, omit_defaults=True):
    """An event: the body that a webhook gets for it, and its cursor."""

    cursor: str
    """The event's place in the account's log."""
    id: str
    """The event's id: the same in a webhook's delivery."""
    event: Event
    """The event's name."""
    timestamp: int
    """When it happened, in epoch milliseconds."""
    daemon_id: str
    """The machine's id."""
    session_id: str | msgspec.UnsetType = msgspec.UNSET
    """The session's id. Not with `machine:*`."""
    target_id: str | msgspec.UnsetType = msgspec.UNSET
    """The session's target id, which names it exactly. Not with `machine:*`."""
    ide_id: str | msgspec.UnsetType = msgspec.UNSET
    """A target id of the session. Not with `machine:*`."""
    ide_type: str | msgspec.UnsetType = msgspec.UNSET
    """The agent's type. Not with `machine:*`."""
    duration: float | msgspec.UnsetType | None = msgspec.UNSET
    """The length of the turn in seconds. Only with `agent:generating_completed`."""
    payload: dict[str, Any]
    """What is specific to this kind of event."""


class EventPage(Wire, kw_only=True):
    """Events of the account's log, oldest first."""

    events: list[AccountEvent]
    """The events."""
    cursor: str
    """The cursor to continue after."""
    resume: StreamResume
    """`ok`: no selected event between `after` and `cursor` is missing; more may follow after
    `cursor`. `gap`: `after` is unknown or older than the log, so events may be missing; continue
    after `cursor`. `fresh`: there was no `after`, and these are the oldest events of the log."""


class StreamReady(Wire, kw_only=True):
    """`stream:ready`: the first frame of a stream."""

    resume: StreamResume
    cursor: str


class StreamHeartbeat(Wire, kw_only=True):
    """`stream:heartbeat`: everything up to the cursor has been sent."""

    cursor: str


class ChatDelta(Wire, kw_only=True):
    """`chat:delta`: a part of a message that an agent is writing. It is not repeated."""

    target_id: str
    message_id: str
    revision: int
    op: Literal["append", "replace"]
    text: str


StreamEndReason = Literal["slow_consumer", "draining", "unauthorized", "max_age"]


class StreamEnd(Wire, kw_only=True):
    """`stream:end`: the last frame of a stream. `retry_after_ms` is when to connect again."""

    reason: StreamEndReason
    retry_after_ms: int
