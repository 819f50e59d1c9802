"""The response to a wait for an agent."""

from typing import Literal

from outrider.contract.resources import AgentStatus, Message, PendingAction
from outrider.contract.structs import Wire


class Waited(Wire, kw_only=True):
    """Why a wait has ended, and the messages of the turn."""

    reason: Literal["idle", "waiting_approval", "error", "timeout", "offline", "ended"]
    """The status of `until` that the turn has reached; `timeout`: none within the time; `offline`:
    the machine is not connected; `ended`: the session was stopped.
    """
    cursor: str | None
    """The `after` of the next wait, which returns the messages behind these; null if nothing is
    known of the chat, because the machine is offline.
    """
    status: AgentStatus | None
    """What the agent is doing, or was when it was last known; null if that is not known. It may
    already be at work on the next message.
    """
    messages: list[Message]
    """The messages behind `after`, oldest first; without `after`, those behind the last message of
    a user. At the end of the time the last one may be incomplete: the next wait returns it again.
    """
    pending_action: PendingAction | None
    """The question that a user must approve or reject; null if there is none."""
