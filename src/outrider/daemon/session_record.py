"""What the journal knows of a session: pure data, so that the core of a session may use it."""

from typing import Final

import msgspec

from outrider.contract.providers import Category
from outrider.contract.structs import Wire

_SELECTED: Final = "agent"


class SessionRecord(Wire, kw_only=True):
    """What it takes to find a session again after a restart.

    The names of the fields on disk never change, whatever they are called here.

    Attributes:
        generating_since: when the turn that is not over began; its event has been emitted.
        emitted_action: the id of the newest action whose event has been emitted.
        emitted_error: the error that the agent is in and whose event has been emitted.
        adapter_state: what the adapter needs to find its agent and its chat again.
    """

    id: str
    kind: Category
    type: str
    name: str
    path: str
    model: str | None
    created_at: int
    last_activity_at: int
    generating_since: int | None = None
    emitted_action: str | None = msgspec.field(default=None, name="asked")
    emitted_error: str | None = msgspec.field(default=None, name="failed")
    adapter_state: dict[str, str] = msgspec.field(default_factory=dict, name="native")

    @property
    def selected_agent(self) -> str | None:
        """The type of the agent that messages go to, in an IDE with several."""
        return self.adapter_state.get(_SELECTED)

    @selected_agent.setter
    def selected_agent(self, agent: str) -> None:
        self.adapter_state[_SELECTED] = agent
