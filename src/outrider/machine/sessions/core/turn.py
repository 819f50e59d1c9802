"""The turns of agents: their events, and which message began which; free of I/O."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from outrider.contract.errors import ApiError
from outrider.contract.events import EventName
from outrider.contract.resources import AgentStatus
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.core.protocol import Deliver, Emit
from outrider.machine.sessions.record import SessionRecord

_MAX_TURNS: Final = 64
"""Messages whose turns are remembered."""


@dataclass
class Turn:
    """The turn that a message began, or will begin.

    Attributes:
        agent: the type of the agent that the message is for.
        status: `generating` until the turn is over. A message in the queue has the status of the
            turn before it while only a person can end that: while an approval is pending, or the
            agent is gone.
        next_id: the message that began the next turn, once there is one.
    """

    agent: str
    status: AgentStatus
    next_id: str | None = None


class Turns:
    """The turns of one session's agents."""

    def __init__(self, record: SessionRecord) -> None:
        self._record = record
        self._turns: OrderedDict[str, Turn | ApiError] = OrderedDict()  # an error: never delivered
        self._newest: dict[str, str] = {}  # by agent, the message delivered last

    def events(self, observation: Observation, now: int) -> Iterator[Emit]:
        """Yield the events of a status and record that they were emitted.

        A turn begins when an agent starts to generate and ends when it is idle again or fails; an
        approval in between is part of it. So each turn has one `generating_started` and one
        `generating_completed` or `error`, and each question has one `waiting_approval`.

        The record is changed after each `yield`, that is, after the event was emitted: `Save` must
        never persist an event that is not in the outbox.
        """
        record, title, pending = self._record, observation.title, observation.pending
        if observation.status != "error":
            record.emitted_error = None
        match observation.status:
            case "generating" if record.generating_since is None:
                yield Emit(EventName.GENERATING_STARTED, title)
                record.generating_since = now
            case "waiting_approval" if pending and pending.id != record.emitted_action:
                yield Emit(EventName.WAITING_APPROVAL, title, message=pending.message)
                record.emitted_action = pending.id
            case "error":
                error = observation.error or ""
                if record.emitted_error != error:
                    yield Emit(EventName.ERROR, title, message=observation.error)
                record.generating_since, record.emitted_error = None, error
            case "idle" if record.generating_since is not None:
                duration = max(0, now - record.generating_since) / 1000
                yield Emit(EventName.GENERATING_COMPLETED, title, duration=duration)
                record.generating_since = None

    def end(self, delivery: Deliver, status: AgentStatus) -> None:
        """Record how the turn before a delivery ended: the agent is idle, or its turn failed."""
        turn = self._turns.get(self._newest.get(delivery.agent, ""))
        if isinstance(turn, Turn):
            turn.status = "error" if status == "error" else "idle"
            turn.next_id = delivery.message_id

    def begin(self, delivery: Deliver) -> None:
        """Record that the agent has accepted a message."""
        self._newest[delivery.agent] = delivery.message_id
        self._remember(delivery.message_id, Turn(delivery.agent, "generating"))

    def cancel(self, message_id: str, reason: ApiError) -> None:
        """Record that a message will not begin a turn."""
        self._remember(message_id, reason)

    def was_delivered(self, message_id: str) -> bool:
        """Return whether the agent has accepted a message, as far as that is remembered."""
        return isinstance(self._turns.get(message_id), Turn)

    def get(self, message_id: str, observation_of: Callable[[str], Observation]) -> Turn | None:
        """Return the turn of a message that does not wait; see `AgentCore.turn`."""
        turn = self._turns.get(message_id)
        if isinstance(turn, ApiError):
            raise turn
        if turn is None or self._newest.get(turn.agent) != message_id:
            return turn
        return replace(turn, status=observation_of(turn.agent).status)

    def _remember(self, message_id: str, turn: Turn | ApiError) -> None:
        self._turns[message_id] = turn
        if len(self._turns) > _MAX_TURNS:
            self._turns.popitem(last=False)
