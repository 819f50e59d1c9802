"""From an agent's status to its events: one state machine for every kind of agent.

A turn begins when an agent starts to generate and ends when it is idle again, or fails; an
approval in between belongs to it. So each turn has one `generating_started`, and one
`generating_completed` or `error`, and each question one `waiting_approval`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from outrider.contract.events import AgentEvent, EventName
from outrider.contract.ids import new_id
from outrider.daemon.agents.adapter import Observation
from outrider.daemon.journal import SessionRecord

MAX_RECENT: Final = 32
"""How many events of a session are kept for its debug bundle."""

Emit = Callable[[AgentEvent], None]


class Turns:
    """Makes the events of one session. `recent` has its last ones.

    Args:
        ide_id: the target id that the events carry.
        emit: takes each event, in order.
    """

    def __init__(self, ide_id: str, emit: Emit) -> None:
        self._ide_id = ide_id
        self._emit = emit
        self.recent: deque[AgentEvent] = deque(maxlen=MAX_RECENT)

    def moved(self, record: SessionRecord, seen: Observation, now: int) -> None:
        """Take the next state. What was told already is kept in `record`, over a restart."""
        if seen.status != "error":
            record.failed = None
        match seen.status:
            case "generating":
                if record.generating_since is None:
                    record.generating_since = now
                    self._event(record, seen, now, EventName.GENERATING_STARTED)
            case "waiting_approval":
                if seen.pending is not None and seen.pending.id != record.asked:
                    record.asked = seen.pending.id
                    self._event(
                        record, seen, now, EventName.WAITING_APPROVAL, message=seen.pending.message
                    )
            case "error":
                record.generating_since = None
                if record.failed != (seen.error or ""):
                    record.failed = seen.error or ""
                    self._event(record, seen, now, EventName.ERROR, message=seen.error)
            case "idle":
                if record.generating_since is not None:
                    duration = max(0, now - record.generating_since) / 1000
                    record.generating_since = None
                    self._event(
                        record, seen, now, EventName.GENERATING_COMPLETED, duration=duration
                    )

    def _event(
        self,
        record: SessionRecord,
        seen: Observation,
        now: int,
        name: EventName,
        *,
        duration: float | None = None,
        message: str | None = None,
    ) -> None:
        event = AgentEvent(
            id=new_id("evt"),
            event=name,
            session_id=record.id,
            ide_id=self._ide_id,
            ide_type=record.type,
            chat_title=seen.title,
            duration=duration,
            timestamp=now,
            message=message,
        )
        self.recent.append(event)
        self._emit(event)
