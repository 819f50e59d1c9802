"""A playbook: a list of events and the commands that they are expected to make.

    assert (
        playbook
        >> SubmitRequest(1, "msg_1", text("hello"))
        << Prepare("robot", for_message=True)
        >> Ready()
        << Deliver("robot", "msg_1", text("hello"))
    )

After mitmproxy's. Every command must be in the book, in its order; `seconds(n)` lets time pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from outrider.contract.commands import Accepted, ChatInput, ResolveAction, Resolved, TextPart
from outrider.contract.resources import ActionOption, AgentStatus, PendingAction
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.core.agent_core import AgentCore
from outrider.machine.sessions.core.protocol import (
    AnswerRequest,
    CoreCommand,
    CoreEvent,
    Dequeue,
    Emit,
    Enqueue,
    Observed,
    Refuse,
    Reply,
    Save,
    SubmitRequest,
)
from outrider.machine.sessions.record import SessionRecord

ROBOT = "robot"
IDLE = Observation(status="idle")
GENERATING = Observation(status="generating")
OPTIONS = [
    ActionOption(id="1", label="Yes", kind="allow_once"),
    ActionOption(id="2", label="Always", kind="allow_always"),
    ActionOption(id="3", label="No", kind="reject_once"),
]
ANSWER_TIMEOUT = 5.0


@dataclass
class Journal:
    """What outlives a daemon: the session's record, encoded, and its queue."""

    record: bytes
    queue: list[tuple[str, ChatInput]] = field(default_factory=list)

    def take(self, command: CoreCommand, record: SessionRecord) -> None:
        """Carry out what a command writes."""
        match command:
            case Enqueue(message_id, message, is_first):
                self.queue.insert(0 if is_first else len(self.queue), (message_id, message))
            case Dequeue(message_id):
                self.queue = [entry for entry in self.queue if entry[0] != message_id]
            case Save():
                self.record = msgspec.json.encode(record)


@runtime_checkable
class Like(Protocol):
    """A pattern that stands for a command."""

    def matches(self, command: CoreCommand | None) -> bool:
        """Return whether this is such a command."""


@dataclass(frozen=True)
class Refused:
    """A refusal with this status and code, and these words in its text."""

    request: int
    status: int
    words: str = ""
    code: str | None = None

    def matches(self, command: CoreCommand | None) -> bool:
        """Return whether this is such a refusal."""
        return (
            isinstance(command, Refuse)
            and command.request == self.request
            and (command.error.status, command.error.code) == (self.status, self.code)
            and self.words in command.error.message
        )


@dataclass(frozen=True)
class Emitted:
    """An event of this name (without `agent:`), whatever it says."""

    name: str

    def matches(self, command: CoreCommand | None) -> bool:
        """Return whether this is such an event."""
        return isinstance(command, Emit) and command.event == f"agent:{self.name}"


def seconds(count: float) -> float:
    """Return an entry of a playbook that lets so many seconds pass."""
    return count


class Playbook:
    """Plays events into a core and compares the commands that come of them."""

    def __init__(self, *agents: str, journal: Journal | None = None, now: int = 0) -> None:
        self.journal = journal or Journal(msgspec.json.encode(_record()))
        self.now = now
        self._agents = agents or (ROBOT,)
        self._script: list[str] = []
        self._came: list[CoreCommand] = []
        self.core = self._core()

    def restart(self) -> Self:
        """Kill the daemon: a new core, from what the journal has."""
        self._expect_nothing()
        self._script.append("== restart")
        self.core = self._core()
        return self

    def __rshift__(self, event: CoreEvent | float) -> Self:
        """Let an event happen, once every command so far has been expected."""
        self._expect_nothing()
        if isinstance(event, float | int):
            self.now += round(event * 1000)
            return self
        self._script.append(f">> {event}")
        for command in self.core.handle(event, self.now):
            self.journal.take(command, self.core.record)
            self._came.append(command)
        return self

    def __lshift__(self, expected: CoreCommand | Like | Sequence[CoreCommand | Like]) -> Self:
        """Expect this command next, or these; an empty list: no more of them."""
        commands = expected if isinstance(expected, Sequence) else [expected]
        if not commands:
            self._expect_nothing()
        for command in commands:
            came = self._came.pop(0) if self._came else None
            if not (command.matches(came) if isinstance(command, Like) else command == came):
                self._fail(f"expected  {command}\ncame      {came}")
            self._script.append(f"<< {came}")
        return self

    def __bool__(self) -> bool:
        self._expect_nothing()
        return True

    def play(self, *events: CoreEvent | float) -> list[CoreCommand]:
        """Let events happen whose commands are not what the test is about; return these."""
        self._expect_nothing()
        came: list[CoreCommand] = []
        for event in events:
            self >> event
            came += self._came
            self._came = []
        return came

    def _core(self) -> AgentCore:
        return AgentCore(
            msgspec.json.decode(self.journal.record, type=SessionRecord),
            {kind: kind.title() for kind in self._agents},
            queue=list(self.journal.queue),
            answer_timeout=ANSWER_TIMEOUT,
            now=self.now,
        )

    def _expect_nothing(self) -> None:
        if self._came:
            came = "\n".join(f"          {command}" for command in self._came)
            self._fail(f"not in the book:\n{came}")

    def _fail(self, why: str) -> None:
        raise AssertionError("\n".join(["the playbook does not fit:", *self._script, why]))


def _record() -> SessionRecord:
    return SessionRecord(
        id="session_1",
        kind="cli",
        type=ROBOT,
        name="Robot",
        path="/srv",
        model=None,
        created_at=0,
        last_activity_at=0,
    )


def text(words: str) -> ChatInput:
    """Return a message."""
    return ChatInput(parts=[TextPart(text=words)])


def submit(request: int, agent: str | None = None, **more: Any) -> SubmitRequest:
    """Send the message `msg_<request>`."""
    return SubmitRequest(request, f"msg_{request}", text(f"message {request}"), agent, **more)


def sees(observation: Observation, agent: str = ROBOT) -> Observed:
    """Look at the agent."""
    return Observed(agent, observation)


def asks(action_id: str, message: str = "May I?") -> Observation:
    """Return the state of an agent that asks something."""
    return Observation(status="waiting_approval", pending=pending(action_id, message))


def pending(action_id: str, message: str = "May I?") -> PendingAction:
    """Return a question."""
    return PendingAction(id=action_id, message=message, options=OPTIONS)


def fails(error: str, *, gone: bool = False) -> Observation:
    """Return the state of an agent that failed."""
    return Observation(status="error", error=error, gone=gone)


def approve(request: int, action_id: str | None = None, **more: Any) -> AnswerRequest:
    """Approve what is pending."""
    return AnswerRequest(request, ResolveAction(action="approve", action_id=action_id, **more))


def accepted(request: int, *, status: AgentStatus = "generating", queued: bool = False) -> Reply:
    """Expect the reply to `submit(request)`."""
    message_id = f"msg_{request}"
    result = Accepted(
        message_id=message_id,
        session_id="session_1",
        status=status,
        queued=queued,
        cursor=message_id,
    )
    return Reply(request, result)


def resolved(
    request: int, action_id: str, *, option: str = "1", status: AgentStatus = "generating"
) -> Reply:
    """Expect the reply to `approve(request)`."""
    result = Resolved(action="approve", action_id=action_id, option_id=option, status=status)
    return Reply(request, result)


def emitted(commands: Iterable[CoreCommand]) -> list[str]:
    """Return the names of the events among these commands, without `agent:`."""
    return [
        command.event.removeprefix("agent:") for command in commands if isinstance(command, Emit)
    ]
