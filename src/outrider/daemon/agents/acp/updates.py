"""What an agent tells of its session without being asked: taken in, whatever it is."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    SessionNotification,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)
from pydantic import ValidationError

from outrider.daemon.agents.acp.chat import Chat
from outrider.daemon.agents.acp.controls import Controls

_KEPT: Final = 50


class Updates:
    """Takes the updates, in order.

    Args:
        session: returns the agent's own id of the session, None while it is not known.
        works: called before what shows that the agent is at work on a message.
        changed: called after what a status shows has changed.

    Attributes:
        listening: whether the chat is taken; not while an agent tells an earlier one anew.
        title: what the agent calls the session.
        usage: how full its context is.
        recent: the kinds of the newest updates.
        unreadable: how many were none.
    """

    def __init__(
        self,
        chat: Chat,
        controls: Controls,
        *,
        session: Callable[[], str | None],
        works: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._chat = chat
        self._controls = controls
        self._session = session
        self._works = works
        self._changed = changed
        self.listening = False
        self.title: str | None = None
        self.usage: UsageUpdate | None = None
        self.recent: deque[str] = deque(maxlen=_KEPT)
        self.unreadable = 0

    def take(self, parameters: Any) -> None:
        """Take the parameters of an update."""
        try:
            notification = SessionNotification.model_validate(parameters)
        except ValidationError:
            self.unreadable += 1
            return
        if notification.session_id != (self._session() or notification.session_id):
            return  # another session of the same agent, such as a helper of its own
        update = notification.update
        self.recent.append(update.session_update)
        match update:
            case CurrentModeUpdate() | ConfigOptionUpdate():
                self._controls.take(update)
                self._changed()
            case SessionInfoUpdate():
                self.title = update.title or self.title
                self._changed()
            case UsageUpdate():
                self.usage = update
            case _ if not self.listening:
                return  # an earlier chat told anew: it is here already
            case AgentMessageChunk() | AgentThoughtChunk():
                self._works()
                self._chat.said(update)
            case ToolCallStart() | ToolCallProgress():
                self._works()
                self._chat.called(update)
            case AgentPlanUpdate():
                self._works()
                self._chat.planned(update)
