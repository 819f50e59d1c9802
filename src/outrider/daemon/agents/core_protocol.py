"""The events that the core of a session takes and the commands that it yields (see core.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outrider.contract.commands import ChatInput, ResolveAction, Result
from outrider.contract.errors import ApiError
from outrider.contract.events import EventName
from outrider.contract.resources import ActionOption, PendingAction
from outrider.daemon.agents.adapter import Observation

# Events


@dataclass(frozen=True)
class Observed:
    """The adapter has looked at an agent. Repeated observations are harmless."""

    agent: str
    observation: Observation


@dataclass(frozen=True)
class Submit:
    """Somebody sends a message, changes controls, or both.

    `request` names the caller in the reply. Without `message`, only controls are changed. Without
    `agent`, it is for the selected one. `delivery` says what to do while the agent is at work:
    queue the message, interrupt the turn first, or refuse.
    """

    request: int
    message_id: str
    message: ChatInput | None
    agent: str | None = None
    controls: Mapping[str, str | bool] = field(default_factory=dict)
    delivery: Literal["queue", "interrupt", "reject"] = "queue"


@dataclass(frozen=True)
class Answer:
    """Somebody answers the pending action."""

    request: int
    answer: ResolveAction


@dataclass(frozen=True)
class Interrupt:
    """Somebody wants the current turn to end."""

    request: int


@dataclass(frozen=True)
class TakeBack:
    """Somebody takes a queued message back."""

    request: int
    message_id: str


@dataclass(frozen=True)
class Ready:
    """`Prepare` is done: the agent can be acted upon, and its present state has been observed."""


@dataclass(frozen=True)
class Done:
    """The act is done. `offered` is false where the agent does not offer the chosen option."""

    offered: bool = True


@dataclass(frozen=True)
class Failed:
    """`Prepare` or the act has failed; nothing of it is left in the agent's input."""

    error: ApiError


@dataclass(frozen=True)
class Tick:
    """The time of the last `SetTimer` has passed."""


@dataclass(frozen=True)
class Close:
    """The session ends, or the daemon does: nothing is begun any more."""


Event = Observed | Submit | Answer | Interrupt | TakeBack | Ready | Done | Failed | Tick | Close


# Commands


@dataclass(frozen=True)
class Prepare:
    """Get the agent ready to be acted upon and observe it; then `Ready` or `Failed`.

    `for_message` says that a message is to be typed: its input must be there.
    """

    agent: str
    for_message: bool = False


@dataclass(frozen=True)
class Deliver:
    """Give the agent a message; then `Done` once it has taken it, or `Failed`."""

    agent: str
    message_id: str
    message: ChatInput


@dataclass(frozen=True)
class Choose:
    """Choose an option of the question that the agent asks; then `Done` or `Failed`."""

    agent: str
    action: PendingAction
    option: ActionOption


@dataclass(frozen=True)
class Change:
    """Change controls; then `Done` or `Failed`."""

    agent: str
    controls: Mapping[str, str | bool]


@dataclass(frozen=True)
class InterruptAgent:
    """Have the agent end its turn; then `Done` or `Failed`."""

    agent: str


@dataclass(frozen=True)
class SetTimer:
    """Have `Tick` come after so many seconds, in place of an earlier one; None: not at all."""

    seconds: float | None


@dataclass(frozen=True)
class Enqueue:
    """Write a queued message to the journal."""

    message_id: str
    message: ChatInput


@dataclass(frozen=True)
class Dequeue:
    """Remove a message from the journal's queue."""

    message_id: str


@dataclass(frozen=True)
class Save:
    """Write the session's record to the journal."""


@dataclass(frozen=True)
class Emit:
    """Send an event, durably. `duration` is seconds."""

    event: EventName
    title: str | None = None
    duration: float | None = None
    message: str | None = None


@dataclass(frozen=True)
class Publish:
    """Tell the service the session's new state."""


@dataclass(frozen=True)
class Reply:
    """Answer a request. `result` is None if success is all there is to say."""

    request: int
    result: Result | None = None


@dataclass(frozen=True)
class Refuse:
    """Refuse a request, or report that it failed."""

    request: int
    error: ApiError


@dataclass(frozen=True)
class Postpone:
    """Log that a queued message was not taken; it is tried again once the status has changed."""

    message_id: str
    error: ApiError


Act = Deliver | Choose | Change | InterruptAgent
Command = (
    Prepare | Act | SetTimer | Enqueue | Dequeue | Save | Emit | Publish | Reply | Refuse | Postpone
)
