"""What this machine has to tell the service: changes, results, events, refusals; all bounded.

What goes out keeps to the limits of `contract.limits`, so that the service never cuts an honest
machine off: texts are cut, and events are spread over time.

A change is on the wire before the result of the command that caused it. Of a session that
changes often, only the newest state waits. What is told while no connection is up is not
kept, save for the events and refusals: a hello tells the rest.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from outrider.contract.events import AgentEvent, Refused
from outrider.contract.frames import (
    Change,
    CommandResult,
    Event,
    FromDaemon,
    Refusal,
    Snapshot,
)
from outrider.contract.limits import (
    OWN_EVENT_BURST,
    OWN_EVENTS_PER_SECOND,
    TokenBucket,
    fitted,
)
from outrider.contract.resources import Machine, Session
from outrider.daemon.journal import Journal
from outrider.daemon.reports import ReportBudget

_EVENT_BATCH: Final = 64

_log = structlog.get_logger(__name__)


class Outgoing:
    """Takes what happens; gives the frames that tell it, in their order.

    Args:
        allowance: how many events may be sent; that of `contract.limits` without it.
    """

    def __init__(self, journal: Journal, allowance: TokenBucket | None = None) -> None:
        self._journal = journal
        self._budget = ReportBudget()
        self._allowance = allowance or TokenBucket(OWN_EVENTS_PER_SECOND, OWN_EVENT_BURST)
        self._events_wait_until: float | None = None
        """Loop time from which on the next event may go out, where one waits for that."""
        self._connected = False
        self._told_events = 0
        self._told_refusals = 0
        self._refusals_wait = False
        self._snapshot: Callable[[], Snapshot] | None = None
        self._machine: Machine | None = None
        self._changed: dict[str, Session] = {}
        self._removed: dict[str, None] = {}
        self._results: list[CommandResult] = []
        self._news = asyncio.Event()

    # What happens

    def session_changed(self, session: Session) -> None:
        """Tell the newest state of a session."""
        if self._connected:
            self._changed[session.id] = session
            self._removed.pop(session.id, None)
            self._news.set()

    def session_removed(self, session_id: str) -> None:
        """Tell that a session no longer exists."""
        if self._connected:
            self._changed.pop(session_id, None)
            self._removed[session_id] = None
            self._news.set()

    def event(self, event: AgentEvent) -> None:
        """Keep an event until the service has acknowledged it, over restarts too."""
        dropped = self._journal.add_event(fitted(event))
        if dropped:
            _log.error("oldest events dropped: too many wait for the service", count=dropped)
        self._news.set()

    def refused(self, refused: Refused) -> None:
        """Keep a refusal until the service has noted it, over restarts too."""
        self._journal.add_refusal(refused)
        self._refusals_wait = True
        self._news.set()

    def machine(self, machine: Machine) -> None:
        """Tell fresh figures of the machine."""
        if self._connected:
            self._machine = machine
            self._news.set()

    def snapshot(self, snapshot: Callable[[], Snapshot]) -> None:
        """Tell everything anew, as it is when it goes out."""
        if self._connected:
            self._snapshot = snapshot
            self._news.set()

    def result(self, result: CommandResult) -> None:
        """Tell the result of a command. At most `MAX_COMMANDS_IN_FLIGHT` can wait."""
        if self._connected:
            self._results.append(result)
            self._news.set()

    def acknowledged(self, seq: int) -> None:
        """Delete the events up to `seq`."""
        self._journal.acknowledge_events(min(seq, self._told_events))

    def noted(self, seq: int) -> None:
        """Delete the refusals up to `seq`."""
        self._journal.forget_refusals(min(seq, self._told_refusals))

    # A connection

    def last_event(self) -> int:
        """Return the number of the newest event."""
        return self._journal.last_event()

    def begin(self, snapshot: Callable[[], Snapshot]) -> Snapshot:
        """Return what a hello tells; keep what happens from here on for the new connection."""
        self._connected = True
        return self._budget.begin(snapshot())

    def resume(self, acknowledged: int) -> None:
        """Go on behind the event `acknowledged`, the newest that the service has."""
        self._journal.resume_events(acknowledged)
        self._told_events = acknowledged
        self._told_refusals = 0
        self._refusals_wait = True
        self._news.set()

    def end(self) -> None:
        """Delete what the next hello will tell, and the results that nobody waits for."""
        self._connected = False
        self._snapshot = self._machine = None
        self._changed.clear()
        self._removed.clear()
        self._results.clear()

    async def wait(self) -> None:
        """Return once there may be something to send."""
        try:
            async with asyncio.timeout_at(self._events_wait_until):
                await self._news.wait()
        except TimeoutError:
            self._events_wait_until = None

    def take(self) -> list[FromDaemon]:
        """Return the frames to send now, in their order; none where there is nothing to tell."""
        self._news.clear()
        frames = [*self._changes(), *self._take_results()]
        frames += [*self._next_events(), *self._next_refusals()]
        if frames:
            self._news.set()  # of events there may be more
        return frames

    def _changes(self) -> list[FromDaemon]:
        frames: list[FromDaemon] = []
        if self._snapshot is not None:
            frames.append(self._budget.begin(self._snapshot()))
            self._changed.clear()
            self._removed.clear()
        elif self._changed or self._removed or self._machine is not None:
            for session_id in self._removed:
                self._budget.remove(session_id)
            fit = (self._budget.fit(session) for session in self._changed.values())
            frames.append(
                Change(
                    sessions=[session for session in fit if session is not None],
                    removed=list(self._removed),
                    machine=self._machine,
                )
            )
            self._changed.clear()
            self._removed.clear()
        self._snapshot = self._machine = None
        return frames

    def _take_results(self) -> list[CommandResult]:
        results, self._results = self._results, []
        return results

    def _next_events(self) -> list[Event]:
        now = asyncio.get_running_loop().time()
        self._events_wait_until = None
        allowed = min(_EVENT_BATCH, self._allowance.available(now))
        if not allowed:
            if self._told_events < self.last_event():
                self._events_wait_until = self._allowance.next_at(now)
            return []
        events = self._journal.events(self._told_events, allowed)
        self._allowance.take(now, len(events))
        if events:
            self._told_events = events[-1][0]
        return [Event(seq=seq, event=event) for seq, event in events]

    def _next_refusals(self) -> list[Refusal]:
        if not self._refusals_wait:
            return []
        refusals = self._journal.refusals(self._told_refusals, _EVENT_BATCH)
        if refusals:
            self._told_refusals = refusals[-1][0]
        else:
            self._refusals_wait = False
        return [Refusal(seq=seq, refused=refused) for seq, refused in refusals]
