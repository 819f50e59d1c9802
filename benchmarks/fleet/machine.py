"""What one simulated machine is and says: the frames of the daemon protocol, as its own type."""

import random
import time
from typing import Final

import msgspec
from msgspec import Raw

from benchmarks.scripted_machine import PROVIDERS, results
from outrider import __version__
from outrider.contract.commands import AgentState, CommandType
from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import (
    PROTOCOL_VERSION,
    Change,
    Command,
    CommandResult,
    Event,
    Failure,
    Hello,
)
from outrider.contract.ids import new_id
from outrider.contract.providers import BUILT_IN
from outrider.contract.resources import (
    Machine,
    Session,
    SummaryMetadata,
    Workspace,
)

_PROVIDERS: Final = PROVIDERS[:5]

_TITLES: Final = (
    "Test the discount that applies above a hundred euros",
    "Move the shop to the new tax table",
    "Find out why the nightly build is slow",
    "Add a page for the terms of delivery",
)
_PROJECTS: Final = ("shop", "ledger", "website", "firmware", "notes")

_GIGABYTE: Final = 10**9


class Enrolled(msgspec.Struct, frozen=True):
    """A machine that the service knows: its id and the token that opens its socket."""

    daemon_id: str
    token: str


class SimulatedMachine:
    """A machine with two sessions and five providers, and the events that wait to be stored.

    Its sessions differ from those of every other machine, as real ones do.
    """

    __slots__ = ("_boot", "_sessions", "daemon_id", "hostname", "last_event", "token", "unstored")

    def __init__(self, enrolled: Enrolled, number: int) -> None:
        self.daemon_id = enrolled.daemon_id
        self.token = enrolled.token
        self.hostname = f"worker-{number:05}"
        self.last_event = 0
        self.unstored: dict[int, AgentEvent] = {}
        self._boot = time.time() - 86_400 * (1 + number % 90)
        self._sessions = [_session("claude-code", number), _session("codex", number)]

    def hello(self) -> Hello:
        """Return the first frame of a connection."""
        return Hello(
            protocol=PROTOCOL_VERSION,
            version=__version__,
            machine=self._machine(),
            providers=_PROVIDERS,
            sessions=self._sessions,
            last_event=self.last_event,
        )

    def welcomed(self, acknowledged: int) -> list[Event]:
        """Take what the service has stored; return the events that are to be told again."""
        self.stored(acknowledged)
        self.last_event = max(self.last_event, acknowledged)  # of an earlier run, where it is more
        return [Event(seq=seq, event=event) for seq, event in sorted(self.unstored.items())]

    def stored(self, seq: int) -> None:
        """Take it that the events up to `seq` are stored."""
        for told in [told for told in self.unstored if told <= seq]:
            del self.unstored[told]

    def heartbeat(self) -> Change:
        """Return the machine's figures of now."""
        return Change(machine=self._machine())

    def turn(self) -> tuple[Change, Event]:
        """Have an agent begin its turn, or end it; return the change and the event."""
        session = self._sessions[0]
        starts = session.status == "idle"
        session.status = "generating" if starts else "idle"
        session.last_activity_at = int(time.time() * 1000)
        event = AgentEvent(
            id=new_id("evt"),
            event=EventName.GENERATING_STARTED if starts else EventName.GENERATING_COMPLETED,
            session_id=session.id,
            ide_id=f"{self.daemon_id}:{session.kind}:{session.type}",
            ide_type=session.type,
            chat_title=session.title,
            duration=None if starts else 12.5,
            timestamp=session.last_activity_at,
        )
        self.last_event += 1
        self.unstored[self.last_event] = event
        return Change(sessions=[session]), Event(seq=self.last_event, event=event)

    def answer(self, command: Command) -> CommandResult:
        """Return the answer to a command: it knows an agent's status and a chat."""
        if command.command == CommandType.READ_CHAT:
            chat = results(self.daemon_id)[command.command]
            return CommandResult(id=command.id, result=chat)
        if command.command != CommandType.AGENT_STATUS:
            failure = Failure(status=400, message=f"The simulator knows no {command.command}")
            return CommandResult(id=command.id, error=failure)
        session = self._sessions[0]
        state = AgentState(
            id=f"{self.daemon_id}:session:{session.id}",
            session_id=session.id,
            agent_type=session.type,
            status=session.status,
            title=session.title,
            summary_metadata=SummaryMetadata(),
            controls=[],
            workspace=session.workspace,
            pending_action=None,
            error=None,
            updated_at=session.last_activity_at,
        )
        return CommandResult(id=command.id, result=Raw(msgspec.json.encode(state)))

    def _machine(self) -> Machine:
        load = round(random.uniform(0.05, 4), 2)
        return Machine(
            hostname=self.hostname,
            platform="linux",
            arch="x86_64",
            release="6.12.0-amd64",
            cpus=8,
            total_mem=32 * _GIGABYTE,
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(time.time() - self._boot, 1),
        )


def _session(agent: str, number: int) -> Session:
    now = int(time.time() * 1000)
    project = _PROJECTS[number % len(_PROJECTS)]
    return Session(
        id=new_id("session"),
        target_id="",
        kind="cli",
        type=agent,
        name=BUILT_IN[agent][1],
        status="idle",
        title=f"{_TITLES[number % len(_TITLES)]} ({number})",
        workspace=Workspace(path=f"/home/dev{number}/{project}", name=project),
        model="claude-sonnet" if agent == "claude-code" else "gpt-5",
        created_at=now,
        last_activity_at=now,
    )
