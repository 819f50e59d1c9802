"""The events that a machine reports and that webhooks carry."""

from enum import StrEnum
from typing import Final

from outrider.contract.structs import Wire


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

    id: str
    event: EventName
    session_id: str
    ide_id: str
    ide_type: str
    chat_title: str | None
    duration: float | None
    timestamp: int
    message: str | None = None
