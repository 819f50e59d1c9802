"""What one simulated machine is and says: the frames of the daemon protocol, as its own type."""

import random
import time
from typing import Final

import msgspec
from msgspec import Raw
from tests.rig.machine import hello
from tests.rig.samples import STATE, session

from benchmarks import scripted_machine
from benchmarks.scripted_machine import MACHINE, PROVIDERS, answer
from outrider.contract.commands import CommandType
from outrider.contract.events import AgentEvent, EventName
from outrider.contract.frames import Change, Command, CommandResult, Event, Hello
from outrider.contract.resources import Machine, Session, Workspace

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
        return hello(
            *self._sessions,
            machine=self._machine(),
            providers=_PROVIDERS,
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
        event = scripted_machine.event(self.daemon_id, session)
        if starts:
            event.event, event.duration = EventName.GENERATING_STARTED, None
        self.last_event += 1
        self.unstored[self.last_event] = event
        return Change(sessions=[session]), Event(seq=self.last_event, event=event)

    def answer(self, command: Command) -> CommandResult:
        """Return the result of a command: it knows an agent's status and a chat."""
        if command.command != CommandType.AGENT_STATUS:
            return answer(command)
        session = self._sessions[0]
        state = STATE | {
            "id": f"{self.daemon_id}:session:{session.id}",
            "sessionId": session.id,
            "status": session.status,
            "title": session.title,
            "updatedAt": session.last_activity_at,
        }
        return CommandResult(id=command.id, result=Raw(msgspec.json.encode(state)))

    def _machine(self) -> Machine:
        load = round(random.uniform(0.05, 4), 2)
        return msgspec.structs.replace(
            MACHINE,
            hostname=self.hostname,
            free_mem=random.randrange(4 * _GIGABYTE, 28 * _GIGABYTE),
            loadavg=[load, round(load * 0.9, 2), round(load * 0.7, 2)],
            uptime=round(time.time() - self._boot, 1),
        )


def _session(agent: str, number: int) -> Session:
    now = int(time.time() * 1000)
    project = _PROJECTS[number % len(_PROJECTS)]
    return session(
        type=agent,
        title=f"{_TITLES[number % len(_TITLES)]} ({number})",
        workspace=Workspace(path=f"/home/dev{number}/{project}", name=project),
        model="claude-sonnet" if agent == "claude-code" else "gpt-5",
        created_at=now,
        last_activity_at=now,
    )
