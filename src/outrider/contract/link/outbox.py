"""What waits to be sent to the service: changes, results, events and refusals; free of I/O.

Order: a change is sent before the result of the command that caused it; events are sent in the
order of their numbers. Of a session that changes often, only the newest state waits. While there
is no connection, only events and refusals are kept: the next hello reports the rest.

Events and refusals wait in an `EventLog`, which survives restarts of the machine agent, until the
service has acknowledged them. The service knows the numbers of events: a connection continues after
the newest one that is stored, and a log whose numbers do not agree is renumbered. It knows none of
refusals: each connection sends again all that are not acknowledged.

Events that an older service does not take are not sent to it. Everything that is sent stays within
`contract.limits`: text is cut, sessions share the bytes that the service keeps of a machine, and
events are spread over time.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from outrider.contract.events import BASIC_EVENTS, AgentEvent, Refused
from outrider.contract.frames import (
    Change,
    CommandResult,
    Delta,
    Event,
    FromDaemon,
    Refusal,
    Snapshot,
)
from outrider.contract.limits import (
    MAX_SESSIONS,
    MAX_STATE_BYTES,
    OWN_EVENT_BURST,
    OWN_EVENT_BYTES_BURST,
    OWN_EVENT_BYTES_PER_SECOND,
    OWN_EVENTS_PER_SECOND,
    TokenBucket,
    fitted,
)
from outrider.contract.resources import Machine, Session
from outrider.contract.sizes import cut_event, cut_session, json_bytes

_BATCH: Final = 64
"""Maximum number of events, and of refusals, in one batch of frames."""

MAX_DELTA_BYTES: Final = 256 * 1024
"""Bytes of deltas that may wait; while the socket is slow, further ones are refused."""

_SHORT_BYTES: Final = MAX_STATE_BYTES // 2 // MAX_SESSIONS
"""Bytes of a session once half of the bytes of a machine are used."""


class EventLog(Protocol):
    """Stores events and refusals until they are acknowledged. Each call is durable and atomic.

    Events have the numbers 1, 2, 3, … on their machine; refusals have increasing numbers of their
    own. A full log deletes its oldest entries, which leaves a gap in the numbers.
    """

    def last_event(self) -> int:
        """Return the number of the newest event ever added, 0 before the first."""

    def add_event(self, event: AgentEvent) -> None:
        """Add an event with the next number."""

    def events(self, after: int, limit: int) -> list[tuple[int, AgentEvent]]:
        """Return up to `limit` events with numbers above `after`, oldest first.

        Returns fewer while there are more only where entries are unreadable, and never none.
        """

    def acknowledge_events(self, acknowledged: int) -> None:
        """Delete the events up to this number."""

    def is_numbered(self) -> bool:
        """Return whether the service knows the numbers: `renumber_events` has been called."""

    def renumber_events(self, acknowledged: int) -> None:
        """Give the waiting events the numbers after `acknowledged`, in their order."""

    def add_refusal(self, refused: Refused) -> None:
        """Add a refusal with the next number."""

    def refusals(self, after: int, limit: int) -> list[tuple[int, Refused]]:
        """Return up to `limit` refusals with numbers above `after`, oldest first."""

    def acknowledge_refusals(self, acknowledged: int) -> None:
        """Delete the refusals up to this number."""


def _ignore(*_: object) -> None:
    """Do nothing."""


class Outbox:
    """What waits to be sent. `MachineLink` sends it.

    Args:
        log: stores events and refusals.
        allowance: how many events may be sent; by default that of `contract.limits`.
        byte_allowance: how many bytes of events may be sent; the same.
        on_omitted: called with the id of each session that is not reported: there are too many,
            or they are too long.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        allowance: TokenBucket | None = None,
        byte_allowance: TokenBucket | None = None,
        on_omitted: Callable[[str], None] = _ignore,
    ) -> None:
        self._log = log
        self._on_output: Callable[[], None] = _ignore
        self._allowance = allowance or TokenBucket(OWN_EVENTS_PER_SECOND, OWN_EVENT_BURST)
        self._byte_allowance = byte_allowance or TokenBucket(
            OWN_EVENT_BYTES_PER_SECOND, OWN_EVENT_BYTES_BURST
        )
        self._missing_bytes = 0
        """The bytes of the next event, while it waits for the allowance."""
        self._budget = ReportBudget(on_omitted=on_omitted)
        self._is_connected = False
        self._sent_event = 0
        self._sent_refusal = 0
        self._accepted_events: frozenset[str] | None = None  # None before the first welcome
        self._has_events = self._has_refusals = False  # the log may hold unsent entries
        self._machine: Machine | None = None
        self._is_report_due = False
        self._changed: dict[str, Session] = {}
        self._removed: dict[str, None] = {}
        self._results: list[CommandResult] = []
        self._watched: frozenset[str] | None = frozenset()  # None: all sessions
        self._watch_number = 0
        self._deltas: list[Delta] = []
        self._delta_bytes = 0

    def subscribe(self, on_output: Callable[[], None]) -> None:
        """Call `on_output`, possibly often, when there may be something to send."""
        self._on_output = on_output

    # What happens on the machine

    def session_changed(self, session: Session) -> None:
        """Send the newest state of a session."""
        if self._is_connected:
            self._changed[session.id] = session
            self._removed.pop(session.id, None)
            self._on_output()

    def session_removed(self, session_id: str) -> None:
        """Send that a session no longer exists."""
        if self._is_connected:
            self._changed.pop(session_id, None)
            self._removed[session_id] = None
            self._on_output()

    def event(self, event: AgentEvent) -> None:
        """Send an event, and keep it until the service has acknowledged it.

        One that the service of the newest welcome does not take is dropped.
        """
        if not self._is_accepted(event):
            return
        if event.chat_message is not None:
            self._drop_deltas_of(event.chat_message.id)
        self._log.add_event(cut_event(fitted(event)))
        self._has_events = True
        self._on_output()

    def delta_watch(self, session_id: str) -> int | None:
        """Return a number that changes whenever deltas are asked for anew; None if none are."""
        is_watched = self._watched is None or session_id in self._watched
        return self._watch_number if is_watched and self._is_connected else None

    def delta(self, delta: Delta) -> bool:
        """Send a delta once nothing else waits; return whether there was room for it."""
        size = len(delta.text.encode("utf-8", "replace"))
        if self._delta_bytes + size > MAX_DELTA_BYTES:
            return False
        self._deltas.append(fitted(delta))
        self._delta_bytes += size
        self._on_output()
        return True

    def refused(self, refused: Refused) -> None:
        """Send a refusal, and keep it until the service has acknowledged it."""
        self._log.add_refusal(refused)
        self._has_refusals = True
        self._on_output()

    def machine_changed(self, machine: Machine) -> None:
        """Send new figures of the machine."""
        if self._is_connected:
            self._machine = machine
            self._on_output()

    def report(self) -> None:
        """Send everything anew, in its state at the time of sending."""
        if self._is_connected:
            self._is_report_due = True
            self._on_output()

    def result(self, result: CommandResult) -> None:
        """Send the result of a command. At most `MAX_COMMANDS_IN_FLIGHT` can wait."""
        if self._is_connected:
            self._results.append(result)
            self._on_output()

    # For `MachineLink`

    def last_event(self) -> int:
        """Return the number of the newest event."""
        return self._log.last_event()

    def begin(self, report: Snapshot) -> Snapshot:
        """Return `report` in the form for a hello; keep what changes from now on."""
        self._is_connected = True
        return self._budget.begin(report)

    def resume(self, acknowledged: int, events: Iterable[str] = ()) -> None:
        """Continue after the event `acknowledged`, the newest one that the service has stored.

        `events` are the names of the events that the service takes beside `BASIC_EVENTS`.

        If the log is new, or older than what the service has (a restored backup), its numbers
        denote other events at the service: the waiting events get the numbers after
        `acknowledged`.
        """
        if self._log.is_numbered() and acknowledged <= self._log.last_event():
            self._log.acknowledge_events(acknowledged)
        else:
            self._log.renumber_events(acknowledged)
        self._accepted_events = BASIC_EVENTS | frozenset(events)
        self.watch_deltas([])
        self._sent_event = acknowledged
        self._sent_refusal = 0
        self._has_events = self._has_refusals = True
        self._on_output()

    def watch_deltas(self, sessions: Iterable[str] | None) -> None:
        """Ask for the deltas of these sessions; None: of all."""
        self._watched = None if sessions is None else frozenset(sessions)
        self._watch_number += 1
        self._drop_deltas()

    def end(self) -> None:
        """Delete what the next hello reports, and the results that nobody waits for."""
        self.watch_deltas([])
        self._is_connected = self._is_report_due = False
        self._machine = None
        self._changed.clear()
        self._removed.clear()
        self._results.clear()

    def events_acknowledged(self, seq: int) -> None:
        """Delete the events up to `seq`, but none that was not sent on this connection."""
        self._log.acknowledge_events(min(seq, self._sent_event))

    def refusals_acknowledged(self, seq: int) -> None:
        """Delete the refusals up to `seq`, but none that was not sent on this connection."""
        self._log.acknowledge_refusals(min(seq, self._sent_refusal))

    def next_batch(self, now: float, describe: Callable[[], Snapshot]) -> list[FromDaemon]:
        """Return the next frames in their order; an empty list if there is nothing to send.

        Args:
            describe: returns everything that runs on the machine.
        """
        frames: list[FromDaemon] = [*self._next_changes(describe), *self._results]
        self._results.clear()
        frames += self._next_events(now) + self._next_refusals()
        if not frames and self._deltas:  # they never delay anything else
            frames += self._deltas
            self._drop_deltas()
        return frames

    def next_at(self, now: float) -> float | None:
        """Return when the next event may be sent; None if no event has to wait for that."""
        if not self._has_events:
            return None
        waits = []
        if not self._allowance.available(now):
            waits.append(self._allowance.next_at(now))
        if self._byte_allowance.available(now) < self._missing_bytes:
            waits.append(self._byte_allowance.next_at(now, self._missing_bytes))
        return max(waits, default=None)

    def _next_events(self, now: float) -> list[FromDaemon]:
        allowed = min(_BATCH, self._allowance.available(now)) if self._has_events else 0
        if not allowed or self._byte_allowance.available(now) < self._missing_bytes:
            return []
        frames: list[FromDaemon] = []
        self._missing_bytes = 0
        while not frames and self._has_events and not self._missing_bytes:
            events = self._log.events(self._sent_event, allowed)
            self._has_events = bool(events)  # a page may be short: unreadable entries are left out
            for seq, event in events:
                # Numbered before the welcome of an older service, which closes the connection
                # because of an event that it does not know: left out, which leaves a gap in the
                # numbers.
                if self._is_accepted(event):
                    size = json_bytes(event)
                    if not self._byte_allowance.take(now, size):
                        self._missing_bytes = size
                        break
                    frames.append(Event(seq=seq, event=event))
                self._sent_event = seq
        self._allowance.take(now, len(frames))
        return frames

    def _drop_deltas(self) -> None:
        self._deltas, self._delta_bytes = [], 0

    def _drop_deltas_of(self, message_id: str) -> None:
        """Drop the deltas of a message that is complete: it has all of their text."""
        if any(delta.message_id == message_id for delta in self._deltas):
            deltas = [delta for delta in self._deltas if delta.message_id != message_id]
            self._drop_deltas()
            for delta in deltas:
                self.delta(delta)

    def _is_accepted(self, event: AgentEvent) -> bool:
        return self._accepted_events is None or event.event in self._accepted_events

    def _next_refusals(self) -> list[FromDaemon]:
        if not self._has_refusals:
            return []
        refusals = self._log.refusals(self._sent_refusal, _BATCH)
        self._has_refusals = bool(refusals)
        if refusals:
            self._sent_refusal = refusals[-1][0]
        return [Refusal(seq=seq, refused=refused) for seq, refused in refusals]

    def _next_changes(self, describe: Callable[[], Snapshot]) -> list[FromDaemon]:
        frames: list[FromDaemon] = []
        if self._is_report_due:
            frames.append(self._budget.begin(describe()))
        elif self._changed or self._removed or self._machine is not None:
            for session_id in self._removed:
                self._budget.remove(session_id)
            sessions = []
            for session in self._changed.values():
                fit = self._budget.fit(session)
                if fit is None:  # an unknown session is better than one with an outdated state
                    self._budget.remove(session.id)
                    self._removed[session.id] = None
                else:
                    sessions.append(fit)
            removed = list(self._removed)
            frames.append(Change(sessions=sessions, removed=removed, machine=self._machine))
        self._changed.clear()
        self._removed.clear()
        self._machine, self._is_report_due = None, False
        return frames


class ReportBudget:
    """Keeps sessions within the bytes that the service keeps of a machine.

    A session is reported in full while half of the bytes are free, and with short texts beyond
    that, so that early sessions do not use up the room of later ones. A session for which there
    is no room even then is left out.

    Args:
        limit: bytes of JSON, of all sessions, the machine's figures and its providers.
        on_omitted: called with the id of each session for which there is no room.
    """

    def __init__(
        self, limit: int = MAX_STATE_BYTES, on_omitted: Callable[[str], None] = _ignore
    ) -> None:
        self._limit = limit
        self._on_omitted = on_omitted
        self._sizes: dict[str, int] = {}
        self._used = 0

    def begin(self, report: Snapshot) -> Snapshot:
        """Return a whole report within the budget, and start counting from it."""
        report = fitted(report)
        self._used = json_bytes(report.machine) + json_bytes(report.providers)
        self._sizes.clear()
        # The sessions used last get the room first; the report keeps their order.
        latest_first = sorted(report.sessions, key=lambda s: s.last_activity_at, reverse=True)
        fitting = {session.id: self.fit(session) for session in latest_first}
        sessions = [fit for session in report.sessions if (fit := fitting[session.id]) is not None]
        return Snapshot(machine=report.machine, providers=report.providers, sessions=sessions)

    def fit(self, session: Session) -> Session | None:
        """Return the session in the form to report; None if there is no room for it."""
        session = fitted(session)
        others = self._used - self._sizes.get(session.id, 0)
        size = json_bytes(session)
        if others + size > self._limit // 2:
            session = cut_session(session, _SHORT_BYTES)
            size = json_bytes(session)
        is_one_more = session.id not in self._sizes
        if others + size > self._limit or (is_one_more and len(self._sizes) >= MAX_SESSIONS):
            self._on_omitted(session.id)
            return None
        self._sizes[session.id] = size
        self._used = others + size
        return session

    def remove(self, session_id: str) -> None:
        """Release the bytes of a session."""
        self._used -= self._sizes.pop(session_id, 0)
