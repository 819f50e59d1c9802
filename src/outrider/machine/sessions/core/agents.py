"""The agents of a session as they were observed, and which of them is selected; free of I/O.

An IDE has several agents, one of which is selected; any other session has one.
"""

from collections.abc import Generator, Mapping
from typing import Any

from outrider.contract.errors import ApiError, ErrorCode, conflict, not_found
from outrider.contract.resources import AgentSummary, PendingAction
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.core.protocol import CoreCommand, Publish, Save
from outrider.machine.sessions.core.turn import Turns
from outrider.machine.sessions.record import SessionRecord


class ObservedAgents:
    """The observed state of each agent.

    Attributes:
        selected: the type of the agent that messages and answers go to.
        observation: the state of the selected agent, as clients see it.
        updated_at: time of its last change in epoch milliseconds.
        has_observed: whether this daemon has observed the selected agent.
    """

    def __init__(
        self, record: SessionRecord, names: Mapping[str, str], turns: Turns, now: int
    ) -> None:
        self._record = record
        self._names = dict(names)
        self._turns = turns
        self._observations: dict[str, Observation] = {}
        self._is_saved = True  # the events of `observation` were emitted and the record saved
        selected = record.selected_agent
        self.selected = selected if selected in self._names and selected else next(iter(names))
        self.observation = Observation(status="generating", assumed=True)
        self.updated_at = now
        self.has_observed = False

    @property
    def selected_name(self) -> str:
        """The name of the selected agent."""
        return self._names[self.selected]

    def name(self, agent: str) -> str:
        """Return the name of the agent of this type."""
        return self._names[agent]

    def find(self, wanted: str | None) -> str:
        """Return the type of the agent with this type or name; for None, of the selected one.

        Raises:
            ApiError: 404, the session has no such agent.
        """
        if wanted is None or wanted in (self._record.type, self._record.name):
            return self.selected
        for kind, name in self._names.items():
            if wanted in (kind, name):
                return kind
        kinds = ", ".join(repr(kind) for kind in self._names)
        raise not_found(f"{self._record.name} has no agent {wanted!r}, only {kinds}")

    def observation_of(self, agent: str) -> Observation:
        """Return the state of the agent of this type, as clients see it."""
        if agent == self.selected:
            return self.observation
        return self._observations.get(agent, Observation(status="idle"))

    def observed(self, agent: str) -> Observation:
        """Return what was observed of an agent last, even if clients see something newer."""
        return self._observations.get(agent, Observation(status="idle"))

    def asks(self, agent: str, action: PendingAction) -> bool:
        """Return whether the agent was last observed with this question."""
        pending = self.observed(agent).pending
        return pending is not None and pending.id == action.id

    def listed(self) -> list[AgentSummary]:
        """Return the agents that the session lists; empty for a session with a single agent."""
        return [
            AgentSummary(type=kind, name=name, status=self.observation_of(kind).status)
            for kind, name in self._names.items()
            if self.observation_of(kind).listed
        ]

    # Changes

    def observe(self, agent: str, observation: Observation) -> bool:
        """Record an observation; return whether an agent that is not selected is listed anew."""
        before = self.listed()
        self._observations[agent] = observation
        return agent != self.selected and self.listed() != before

    def update(self, observation: Observation, now: int) -> Generator[CoreCommand, Any, bool]:
        """Set the selected agent's state; yield the events that follow, return if it differs."""
        if observation == self.observation and self._is_saved and self.has_observed:
            return False
        before, self.observation = self.observation, observation
        self.updated_at = now
        has_changed = (observation.status, observation.pending, observation.error) != (
            before.status,
            before.pending,
            before.error,
        )
        if has_changed or not self.has_observed or not self._is_saved:
            # If a command fails, as on a full disk, the next observation repeats what is missing.
            self.has_observed, self._is_saved = True, False
            self._record.last_activity_at = now
            yield from self._turns.events(observation, now)
            yield Save()
            self._is_saved = True
        yield Publish()
        return True

    # Checks

    @property
    def accepts_messages(self) -> bool:
        """Whether the agent accepts a message: it is idle, or its turn failed but it is running."""
        return self.observation.status in {"idle", "error"} and not self.observation.gone

    def is_at_work(self, agent: str) -> bool:
        """Return whether a turn of this agent is in progress; a question is part of its turn."""
        return self.observation_of(agent).status in {"generating", "waiting_approval"}

    def check_can_send(self) -> None:
        """Check that the selected agent runs and asks nothing."""
        self.check_runs()
        if self.observation.pending is not None:
            raise conflict(
                "The agent waits for an approval: approve or reject that first",
                ErrorCode.APPROVAL_PENDING,
            )

    def check_runs(self) -> None:
        """Check that the selected agent runs."""
        if self.observation.gone:
            raise self.gone_error()

    def gone_error(self) -> ApiError:
        """Return the error for an act on an agent that has ended."""
        why = (self.observation.error or "The agent has ended").rstrip(".")
        return ApiError(500, f"{why}. Launch it again")
