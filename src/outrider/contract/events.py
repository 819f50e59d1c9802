"""What a machine reports: the events of its agents, and requests that it refused them."""

from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from outrider.contract.resources import (
    Control,
    MessageKind,
    MessageSource,
    PendingAction,
    Role,
    Session,
    Tool,
)
from outrider.contract.structs import Count, Timestamp, Wire
from outrider.contract.text import Excerpt, Id, Name, TargetId, Text, Title


class EventName(StrEnum):
    """The events that webhooks can subscribe to; `event` in a delivery.

    When they happen: `TURN_EVENTS` in `machine.sessions.core.turn`, the other `REPORTED_EVENTS` in
    `machine.sessions.state_events`, `machine:*` in the service.
    """

    GENERATING_STARTED = "agent:generating_started"
    GENERATING_COMPLETED = "agent:generating_completed"
    WAITING_APPROVAL = "agent:waiting_approval"
    ERROR = "agent:error"
    SESSION_STARTED = "session:started"
    SESSION_ENDED = "session:ended"
    SESSION_UPDATED = "session:updated"
    CHAT_MESSAGE = "chat:message"
    APPROVAL_OPENED = "approval:opened"
    APPROVAL_RESOLVED = "approval:resolved"
    QUEUE_CHANGED = "queue:changed"
    MACHINE_CONNECTED = "machine:connected"
    MACHINE_DISCONNECTED = "machine:disconnected"
    WEBHOOK_TEST = "webhook:test"


TURN_EVENTS: Final = frozenset(
    {
        EventName.GENERATING_STARTED,
        EventName.GENERATING_COMPLETED,
        EventName.WAITING_APPROVAL,
        EventName.ERROR,
    }
)
"""The events of an agent's turns."""

BASIC_EVENTS: Final = frozenset(
    {
        EventName.GENERATING_STARTED,
        EventName.GENERATING_COMPLETED,
        EventName.WAITING_APPROVAL,
        EventName.ERROR,
    }
)
"""The events that every service takes, of any release. This set never grows."""

NEGOTIATED_EVENTS: Final = frozenset(
    {
        EventName.SESSION_STARTED,
        EventName.SESSION_ENDED,
        EventName.SESSION_UPDATED,
        EventName.CHAT_MESSAGE,
        EventName.APPROVAL_OPENED,
        EventName.APPROVAL_RESOLVED,
        EventName.QUEUE_CHANGED,
    }
)
"""The events that a service takes if its welcome lists them. A new event is added here.

A service of an older release closes the connection when it gets an event that it does not know.
So a machine sends it only `BASIC_EVENTS` and those that its welcome lists.
"""

REPORTED_EVENTS: Final = BASIC_EVENTS | NEGOTIATED_EVENTS
"""The events that machines report; the service creates the others."""

MAX_EVENT_CONTENT: Final = 65_536
"""Characters of a message in an event; our machine agent cuts it to as many bytes of JSON."""

MAX_EVENT_DIFF: Final = 65_536
"""Bytes of JSON to which our machine agent cuts the patches in an event and in a question."""

TRUNCATION_NOTE: Final = "\n[outrider: the rest is left out here; the chat has it]"
"""The end of a message that was cut for its event."""

MAX_EVENT_CONTROLS: Final = 64
"""Controls of an agent in an event; our machine agent leaves out further ones."""


class ChatMessage(Wire, kw_only=True):
    """A message of a chat in an event: a `Message` whose long content is cut, with a note."""

    id: Name
    index: Count
    role: Role
    kind: MessageKind
    content: Annotated[str, Meta(max_length=MAX_EVENT_CONTENT)]
    timestamp: Timestamp
    tool: Tool | None = None
    source: MessageSource | None = None


class QueueEntry(Wire, kw_only=True):
    """A message that waits for an agent, in an event: a `QueuedMessage` whose long text is cut."""

    message_id: Id
    text: Text
    created_at: Timestamp


class Respondent(Wire, kw_only=True):
    """Who answered a pending action: an API key, a user, or a person in the agent's own terminal.

    `id` and `name` are those of the key or the user; null for `terminal`.
    """

    kind: Literal["key", "user", "terminal"]
    id: Id | None = None
    name: Title | None = None


class Answer(Wire, kw_only=True):
    """How a pending action was answered, as far as it is known."""

    action: Literal["approve", "reject"] | None
    option_id: Name | None
    by: Respondent


class AgentEvent(Wire, kw_only=True, omit_defaults=True):
    """An event of a session, one of `REPORTED_EVENTS`, as its machine reports it.

    Attributes:
        duration: seconds, of `agent:generating_completed` only.
        session: the session as it is now, of a session event.
        controls: the agent's controls as they are now, of `session:started` and `session:updated`.
        chat_message: the complete message, of `chat:message`.
        action: the question, of an approval event.
        answer: of `approval:resolved`; null if nobody answered, such as when the agent has ended.
        queue: the messages that wait now, of `queue:changed`.
        truncated: whether it was longer than an event may be (`sizes`) and has been cut.
    """

    id: Id
    event: EventName
    session_id: Id
    ide_id: TargetId
    ide_type: Name
    chat_title: Title | None
    duration: Annotated[float, Meta(ge=0)] | None
    timestamp: Timestamp
    message: Excerpt | None = None
    session: Session | None = None
    controls: Annotated[list[Control], Meta(max_length=MAX_EVENT_CONTROLS)] | None = None
    chat_message: ChatMessage | None = None
    action: PendingAction | None = None
    answer: Answer | None = None
    queue: Annotated[list[QueueEntry], Meta(max_length=64)] | None = None
    truncated: bool = False


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
