"""What the tests of the link share: an event log in memory, and samples of what a machine sends."""

from collections.abc import Callable

from outrider.contract.events import AgentEvent, EventName, Refused
from outrider.contract.frames import Snapshot
from outrider.contract.resources import Machine, Provider, Session


def agent_event(name: str) -> AgentEvent:
    return AgentEvent(
        id=name,
        event=EventName.ERROR,
        session_id="s",
        ide_id="machine_1:cli:codex",
        ide_type="codex",
        chat_title=None,
        duration=None,
        timestamp=1,
    )


def refusal(target: str) -> Refused:
    return Refused(session_id="s", action="a", target=target, timestamp=1)


def session(name: str, title: str = "") -> Session:
    return Session(
        id=name,
        target_id=f"machine_1:session:{name}",
        kind="cli",
        type="codex",
        name="Codex",
        status="idle",
        title=title,
        created_at=1,
        last_activity_at=1,
    )


def provider(name: str) -> Provider:
    return Provider(
        type=name,
        category="cli",
        display_name=name,
        installed=True,
        path=None,
        verified=True,
    )


def report(*sessions: Session, providers: tuple[Provider, ...] = ()) -> Snapshot:
    machine = Machine(
        hostname="box",
        platform="linux",
        arch="x86_64",
        release="6",
        cpus=1,
        total_mem=1,
        free_mem=1,
        loadavg=[],
        uptime=1.0,
    )
    return Snapshot(machine=machine, providers=list(providers), sessions=list(sessions))


class MemoryLog:
    """An `EventLog` that survives the machine agent's process.

    Args:
        on_deleted: called with each event that is deleted because it was acknowledged.
    """

    def __init__(self, on_deleted: Callable[[AgentEvent], None] = lambda _: None) -> None:
        self._on_deleted = on_deleted
        self._last = 0
        self._is_numbered = False
        self._events: dict[int, AgentEvent] = {}
        self._refusals: dict[int, Refused] = {}
        self._last_refusal = 0

    @property
    def waiting(self) -> list[tuple[int, str]]:
        return [(seq, event.id) for seq, event in sorted(self._events.items())]

    def last_event(self) -> int:
        return self._last

    def is_numbered(self) -> bool:
        return self._is_numbered

    def add_event(self, event: AgentEvent) -> None:
        self._last += 1
        self._events[self._last] = event

    def events(self, after: int, limit: int) -> list[tuple[int, AgentEvent]]:
        return [(seq, self._events[seq]) for seq in sorted(self._events) if seq > after][:limit]

    def acknowledge_events(self, acknowledged: int) -> None:
        for seq in [seq for seq in self._events if seq <= acknowledged]:
            self._on_deleted(self._events.pop(seq))

    def renumber_events(self, acknowledged: int) -> None:
        waiting = [self._events[seq] for seq in sorted(self._events)]
        self._events = dict(enumerate(waiting, start=acknowledged + 1))
        self._last = acknowledged + len(waiting)
        self._is_numbered = True

    def add_refusal(self, refused: Refused) -> None:
        self._last_refusal += 1
        self._refusals[self._last_refusal] = refused

    def refusals(self, after: int, limit: int) -> list[tuple[int, Refused]]:
        return [(seq, self._refusals[seq]) for seq in sorted(self._refusals) if seq > after][:limit]

    def acknowledge_refusals(self, acknowledged: int) -> None:
        for seq in [seq for seq in self._refusals if seq <= acknowledged]:
            del self._refusals[seq]
