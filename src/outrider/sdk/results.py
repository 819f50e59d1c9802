"""What the client returns beside the structs of `outrider.contract`: replies and events."""

from typing import Any, Literal, TypeVar

import msgspec

from outrider.contract.commands import QueuedMessage
from outrider.contract.event_stream import ChatDelta
from outrider.contract.events import Answer, EventName
from outrider.contract.resources import AgentStatus, Message, PendingAction, Session
from outrider.contract.structs import Wire
from outrider.sdk.decoding import converted

T = TypeVar("T")


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """What an agent answered to a message."""

    messages: list[Message]
    """The messages of the turn, oldest first: text, thinking, tool calls and their results."""
    status: AgentStatus
    """The status that ended the turn: `idle`, or `error` if it failed."""
    cursor: str | None
    """The place in the chat after this reply."""
    error: str | None = None
    """Why the turn failed; None unless the status is `error`."""

    @property
    def text(self) -> str:
        """The text of the reply, without thinking and tools."""
        return text_of(self.messages)


class Event(Wire, kw_only=True):
    """An event of the account. Fields that an event does not have are None."""

    cursor: str = ""
    """The event's place in the account's log, to resume after it."""
    id: str
    """The event's id: the same in a webhook's delivery."""
    event: str
    """The event's name, such as `agent:waiting_approval`."""
    timestamp: int
    """When it happened, in epoch milliseconds."""
    daemon_id: str | None = None
    """The machine's id."""
    session_id: str | None = None
    """The session's id. Not with `machine:*`."""
    target_id: str | None = None
    """The session's target id, for `client.agent`. Not with `machine:*`."""
    ide_id: str | None = None
    """A target id of the session. Not with `machine:*`."""
    ide_type: str | None = None
    """The agent's type. Not with `machine:*`."""
    duration: float | None = None
    """The length of the turn in seconds. Only with `agent:generating_completed`."""
    payload: dict[str, Any] = {}
    """What is specific to this kind of event, as it was sent; the properties are typed."""
    body: str = ""
    """The JSON exactly as the service sent it: the body that a webhook gets."""

    @property
    def message(self) -> Message | None:
        """The message, of `chat:message`."""
        return self._part("message", Message) if self.event == EventName.CHAT_MESSAGE else None

    @property
    def session(self) -> Session | None:
        """The session as it is after the event, of `session:*`."""
        return self._part("session", Session)

    @property
    def action(self) -> PendingAction | None:
        """The question, of `approval:*`."""
        return self._part("action", PendingAction)

    @property
    def answer(self) -> Answer | None:
        """How the question was answered and by whom, of `approval:resolved`; else None.

        Also None if nobody answered, such as when the agent has ended.
        """
        # The resolution alone is also there when the agent itself has taken its question back.
        if self.payload.get("answeredBy") is None:
            return None
        names = {"action": "resolution", "optionId": "optionId", "by": "answeredBy"}
        return converted({to: self.payload.get(of) for to, of in names.items()}, Answer)

    @property
    def queue(self) -> list[QueuedMessage] | None:
        """The messages that wait for the agent, of `queue:changed`."""
        return self._part("messages", list[QueuedMessage])

    @property
    def error(self) -> str | None:
        """What went wrong, of `agent:error`, if the agent said it."""
        return self._part("message", str) if self.event == EventName.ERROR else None

    def _part(self, name: str, kind: type[T]) -> T | None:
        value = self.payload.get(name)
        return None if value is None else converted(value, kind)


class Delta(ChatDelta, kw_only=True):
    """A part of a message that an agent is writing; the whole message follows.

    Attributes:
        target_id: the target id of the session.
        message_id: the id of the message.
        revision: counts the deltas of a message; where it skips, some were left out.
        op: whether `text` is added to the message so far, or replaces it.
        text: the text.
    """

    @property
    def event(self) -> Literal["chat:delta"]:
        """The name of the event."""
        return "chat:delta"


def text_of(messages: list[Message]) -> str:
    """Return what an agent said in these messages, without thinking and tools."""
    return "\n\n".join(
        message.content
        for message in messages
        if message.role == "assistant" and message.kind == "text"
    )
