"""The events that the core of a session processes, and the commands that it yields."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.contract.commands import ChatInput, DeliveryMode, ResolveAction, Result, Verdict
from outrider.contract.errors import ApiError
from outrider.contract.events import Answer, ChatMessage, EventName, QueueEntry, Respondent
from outrider.contract.resources import ActionOption, Control, PendingAction, Session
from outrider.machine.agents.adapter import Observation

# Events


@dataclass(frozen=True)
class Observed:
    """The adapter has observed an agent. Repeated observations are harmless."""

    agent: str
    observation: Observation


@dataclass(frozen=True)
class SubmitRequest:
    """A client sends a message, changes controls, or both.

    `request` identifies the request in the reply. Without `message`, only controls are changed.
    Without `agent`, the selected one is used. `delivery` says what to do while the agent is
    generating: queue the message, interrupt the turn first, or refuse.
    """

    request: int
    message_id: str
    message: ChatInput | None
    agent: str | None = None
    controls: Mapping[str, str | bool] = field(default_factory=dict)
    delivery: DeliveryMode = "queue"


@dataclass(frozen=True)
class AnswerRequest:
    """A client answers the pending action; `by` is None if the service does not say who."""

    request: int
    answer: ResolveAction
    by: Respondent | None = None


@dataclass(frozen=True)
class InterruptRequest:
    """A client interrupts the current turn of an agent; without `agent`, of the selected one."""

    request: int
    agent: str | None = None


@dataclass(frozen=True)
class WithdrawRequest:
    """A client withdraws a queued message."""

    request: int
    message_id: str


@dataclass(frozen=True)
class Ready:
    """`Prepare` succeeded: the agent can be acted upon and its current state was observed."""


@dataclass(frozen=True)
class Done:
    """The act was executed. `offered` is false if the agent does not offer the chosen option."""

    offered: bool = True


@dataclass(frozen=True)
class Failed:
    """`Prepare` or the act has failed; the agent's input is empty."""

    error: ApiError


@dataclass(frozen=True)
class Tick:
    """The timer of the last `SetTimer` has expired."""


@dataclass(frozen=True)
class Stopping:
    """The session or the daemon is stopping: no further act is started."""


Request = SubmitRequest | AnswerRequest | InterruptRequest | WithdrawRequest
CoreEvent = Observed | Request | Ready | Done | Failed | Tick | Stopping


# Commands


@dataclass(frozen=True)
class Prepare:
    """Prepare the agent for an act and observe it; then `Ready` or `Failed`.

    `for_message` is true if a message is to be typed, which needs the agent's input.
    """

    agent: str
    for_message: bool = False


@dataclass(frozen=True)
class Deliver:
    """Deliver a message; then `Done` once the agent has accepted it, or `Failed`."""

    agent: str
    message_id: str
    message: ChatInput


@dataclass(frozen=True)
class Choose:
    """Choose an option of the question that the agent asks; then `Done` or `Failed`."""

    agent: str
    action: PendingAction
    option: ActionOption
    by: Respondent | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the option approves or rejects."""
        return "approve" if self.option.kind.startswith("allow") else "reject"


@dataclass(frozen=True)
class ChangeControls:
    """Change controls; then `Done` or `Failed`."""

    agent: str
    controls: Mapping[str, str | bool]


@dataclass(frozen=True)
class InterruptAgent:
    """Interrupt the agent's turn; then `Done` or `Failed`. A pending question ends with it."""

    agent: str


@dataclass(frozen=True)
class SetTimer:
    """Send `Tick` after `seconds`, in place of an earlier timer; None cancels the timer."""

    seconds: float | None


@dataclass(frozen=True)
class Enqueue:
    """Write a queued message to the journal, behind the others or as the first."""

    message_id: str
    message: ChatInput
    is_first: bool = False


@dataclass(frozen=True)
class Dequeue:
    """Remove a message from the journal's queue."""

    message_id: str


@dataclass(frozen=True)
class Save:
    """Write the session's record to the journal."""


@dataclass(frozen=True)
class Emit:
    """Send an event, durably. `duration` is seconds; the other fields are those of `AgentEvent`."""

    event: EventName
    title: str | None = None
    duration: float | None = None
    message: str | None = None
    session: Session | None = None
    controls: tuple[Control, ...] | None = None
    chat_message: ChatMessage | None = None
    action: PendingAction | None = None
    answer: Answer | None = None
    queue: tuple[QueueEntry, ...] | None = None


@dataclass(frozen=True)
class Publish:
    """Send the session's new state to the service."""


@dataclass(frozen=True)
class Reply:
    """Reply to a request that succeeded. `result` is None if it has no result."""

    request: int
    result: Result | None = None


@dataclass(frozen=True)
class Refuse:
    """Refuse a request, or report that it failed."""

    request: int
    error: ApiError


@dataclass(frozen=True)
class Postpone:
    """Log a failed delivery of a queued message; it is retried once the status has changed."""

    message_id: str
    error: ApiError


Act = Deliver | Choose | ChangeControls | InterruptAgent
CoreCommand = (
    Prepare | Act | SetTimer | Enqueue | Dequeue | Save | Emit | Publish | Reply | Refuse | Postpone
)
