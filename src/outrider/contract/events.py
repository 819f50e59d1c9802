"""What a machine reports: the events that webhooks carry, and what it refused its agents."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from outrider.contract.structs import Count, Timestamp, Wire
from outrider.contract.text import Excerpt, Id, Name, TargetId, Title


class EventName(StrEnum):
    """Every event, as `event` in a delivery names it."""

    GENERATING_STARTED = "agent:generating_started"
    GENERATING_COMPLETED = "agent:generating_completed"
    WAITING_APPROVAL = "agent:waiting_approval"
    ERROR = "agent:error"
    MACHINE_CONNECTED = "machine:connected"
    MACHINE_DISCONNECTED = "machine:disconnected"
    WEBHOOK_TEST = "webhook:test"


AGENT_EVENTS: Final = frozenset(
    {
        EventName.GENERATING_STARTED,
        EventName.GENERATING_COMPLETED,
        EventName.WAITING_APPROVAL,
        EventName.ERROR,
    }
)
"""The events that come from a machine; the service makes the others."""


class AgentEvent(Wire, kw_only=True):
    """Something that happened to an agent. `duration` is seconds, on completion only."""

    id: Id
    event: EventName
    session_id: Id
    ide_id: TargetId
    ide_type: Name
    chat_title: Title | None
    duration: Annotated[float, Meta(ge=0)] | None
    timestamp: Timestamp
    message: Excerpt | None = None


MAX_REFUSED_TARGET: Final = 1024
"""Characters of what an agent was kept from."""


class Refused(Wire, kw_only=True):
    """Something that a machine kept an agent from doing.

    `action` is such as `agent.fs_read_refused`, `target` what it was about (a path), `timestamp`
    epoch milliseconds. `untold` is how many more of the session's went untold before it.
    """

    session_id: Annotated[str, Meta(max_length=64)]
    action: Annotated[str, Meta(max_length=64)]
    target: Annotated[str, Meta(max_length=MAX_REFUSED_TARGET)]
    timestamp: Timestamp
    untold: Count = 0
