"""What a machine reports: the events of its agents, and requests that it refused them."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from outrider.contract.structs import Count, Timestamp, Wire
from outrider.contract.text import Excerpt, Id, Name, TargetId, Title


class EventName(StrEnum):
    """The events that webhooks can subscribe to; `event` in a delivery.

    `daemon.agents.core` decides when an agent's event happens. A new one is added to `AGENT_EVENTS`
    too, and needs a new `PROTOCOL_VERSION`: an older service closes the connection because of it.
    """

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
"""The events that machines report; the service creates the others."""


class AgentEvent(Wire, kw_only=True):
    """An event of an agent. `duration` is in seconds, and set on completion only."""

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
"""Characters of a refusal's target."""


class Refused(Wire, kw_only=True):
    """A request of an agent that its machine refused.

    Attributes:
        action: such as `agent.fs_read_refused`.
        target: what the request was about, such as a path.
        suppressed: how many earlier refusals of the session were not reported.
    """

    session_id: Annotated[str, Meta(max_length=64)]
    action: Annotated[str, Meta(max_length=64)]
    target: Annotated[str, Meta(max_length=MAX_REFUSED_TARGET)]
    timestamp: Timestamp
    suppressed: Count = msgspec.field(default=0, name="untold")
