"""The base of every kind of agent: what a session does with it, and what most kinds do the same.

For every kind of agent (terminal, protocol, IDE page), the adapter only observes, delivers and
reads; the agent core decides what may be done and when. Except for `messages`, at most
one method of an adapter's agents is called at a time. `deliver`, `choose` and `change` are called
right after `ready`, as is `interrupt`; for `deliver`, `show` is called in between.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from outrider.contract.commands import ChatInput, Picture, Screen
from outrider.contract.errors import bad_request
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    Control,
    EndReason,
    Message,
    PendingAction,
    SummaryItem,
)
from outrider.machine.agents.pane import Pane
from outrider.machine.sessions.record import SessionRecord


@dataclass(frozen=True)
class Observation:
    """The current state of an agent.

    `pending` is set only while `status` is `waiting_approval`, and keeps its id while the same
    question is pending. `error` is set while `status` is `error`, and says what the user must do.
    `gone` means that the agent no longer runs: its session ends, for `end_reason`. `listed` means
    that the session lists it among its agents (those of an IDE, once its window has shown them).
    `assumed` means that the agent has not been observed yet: its status is not known.
    """

    status: AgentStatus
    pending: PendingAction | None = None
    error: str | None = None
    title: str | None = None
    model: str | None = None
    gone: bool = False
    end_reason: EndReason = "crashed"
    listed: bool = False
    cdp_connected: bool = False
    assumed: bool = False
    summary: tuple[SummaryItem, ...] = ()
    controls: tuple[Control, ...] = field(default=(), repr=False)


Observer = Callable[[str, Observation], None]
"""Called with the type of an agent and its state, on the event loop's thread, in order.

Repeated observations are harmless.
"""


ChatObserver = Callable[[str], None]
"""Called with the type of an agent, often, when its chat may have a new complete message."""


NoteRefusal = Callable[[str, str, str], None]
"""Called with the session id, the action and the target of an agent's refused request."""


class Camera(Protocol):
    """Takes screenshots of an agent's window."""

    async def screenshot(self, width: int | None) -> Picture:
        """Return a picture of the window, `width` pixels wide, of 4 MB at most.

        Raises:
            ApiError: 409, the window is minimised or closed; 500, it does not answer.
        """

    async def thumbnail(self) -> Picture:
        """Return a picture of the window, of 20 kB at most, whose text is too small to read.

        Raises:
            ApiError: as `screenshot` does.
        """


class Terminal(Protocol):
    """The terminal that an agent runs in."""

    @property
    def window(self) -> Pane | None:
        """The window that the agent runs in, None once it has ended."""

    async def screen(self) -> Screen:
        """Return what it shows now.

        Raises:
            ApiError: 409, it is gone; 500, it does not answer.
        """


class Agent(ABC):
    """The operations of a session on one agent. `name` is for people."""

    name: str

    @abstractmethod
    async def ready(self) -> None:
        """Return once the agent can be acted upon and its current state was observed.

        Raises:
            ApiError: 500, the agent cannot be reached.
        """

    async def show(self) -> None:  # noqa: B027  # most agents always accept a message
        """Make the agent's chat accept a message; a question that appears is observed.

        Raises:
            ApiError: 500, the chat could not be opened.
        """

    def check(self, message: ChatInput) -> None:  # noqa: B027  # most agents take any message
        """Check that the agent can accept such a message at all; called before it is queued.

        Raises:
            ApiError: 400, it cannot; the text says what to change.
        """

    @abstractmethod
    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Deliver a message; return once the agent has accepted it.

        Accepted means that the text is in the agent's own transcript, or that its protocol has
        acknowledged it. When this returns, the agent has been observed `generating`, and it is
        not observed `idle` before it has processed this message. The user message in `messages()`
        permanently has the id `message_id`.

        Idempotent across restarts: a message that the agent accepted from a daemon that was
        killed before it could record that is not delivered again.

        Raises:
            ApiError: 500, the agent did not accept it; its input is empty.
        """

    @abstractmethod
    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Choose `option` once; if the agent does not offer it, do nothing and return false.

        The disappearance of the question is observed within `answer_timeout` of the return.

        Raises:
            ApiError: 500, the agent did not react.
        """

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change controls by their ids; when this returns, the new values were observed.

        Raises:
            ApiError: 400, there is no such control, or it has no such value;
                500, the agent did not react.
        """
        raise bad_request(f"{self.name} has no controls: {', '.join(values)}", "controls")

    @abstractmethod
    async def interrupt(self) -> None:
        """Interrupt the current turn, and the question that the agent asks in it.

        The end of the turn is observed within `INTERRUPT_TIMEOUT` (agent_core.py) of the return.

        Raises:
            ApiError: 400, this agent cannot be interrupted; 500, it cannot be reached.
        """

    @abstractmethod
    async def messages(self) -> Sequence[Message]:
        """Return the whole chat, oldest first; index, id and timestamp never change."""

    def open_texts(self) -> Mapping[str, str]:
        """Return the texts of the messages that the agent is writing now, by message id.

        Empty for an agent that shows its messages only when they are complete.
        """
        return {}

    @abstractmethod
    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message] | None:
        """Return the messages from index `start` on that will not change, as they were last read.

        No I/O with the agent. What is returned survives a restart of the daemon. None if the chat
        has not been read since the daemon was started.
        """


class Adapter(ABC):
    """Drives one running agent, or an IDE with several. Created by a `Provider`.

    Attributes:
        agents: the agents by type; the first one is the default.
        answer_timeout: seconds within which an answered question must disappear.
        camera: takes pictures of its window, None if it has no window.
        terminal: the terminal that it runs in, None if it runs in none.
    """

    agents: Mapping[str, Agent]
    answer_timeout: ClassVar[float] = 5.0
    camera: Camera | None = None
    terminal: Terminal | None = None

    def __init__(self) -> None:
        self._observer: Observer | None = None
        self._chat_observer: ChatObserver | None = None

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the current state of each agent now, and after every change."""
        self._observer = observer
        self._notify()

    def observe_chats(self, observer: ChatObserver) -> None:
        """Call `observer` after a chat has changed; called before `observe`.

        A message that completes before its turn ends is complete before the end is observed,
        unless the chat can only be read after that.
        """
        self._chat_observer = observer

    @abstractmethod
    def _notify(self) -> None:
        """Call the observer, if there is one, with the current state of each agent."""

    def _chat_changed(self, kind: str) -> None:
        if self._chat_observer is not None:
            self._chat_observer(kind)

    @abstractmethod
    async def close(self) -> None:
        """End the agent and all its processes; `messages` returns its chat after it. Idempotent."""

    @abstractmethod
    async def detach(self) -> None:
        """Stop observing within 4 s, because the daemon is stopping.

        The agent keeps running if it can. One that depends on this daemon's process is ended, and
        the state that `restore` needs is kept.
        """

    @abstractmethod
    def evidence(self) -> dict[str, Any]:
        """Return what the status was derived from, for the debug bundle (JSON values)."""


class SingleAgentAdapter(Adapter, Agent):
    """The adapter of a single agent, which is also its `Agent`."""

    def __init__(self, record: SessionRecord) -> None:
        super().__init__()
        self._record = record
        self.name = record.name
        self.agents = {record.type: self}

    def _notify(self) -> None:
        # None before `observe`, and again once the adapter is detached: nobody listens then.
        if self._observer is not None:
            self._observer(self._record.type, self._observation())

    @abstractmethod
    def _observation(self) -> Observation:
        """Return the current state of the agent."""


class AdapterState:
    """A typed view of a record's `adapter_state`; the caller saves the record after a change."""

    def __init__(self, record: SessionRecord) -> None:
        self.values = record.adapter_state


class StateText:
    """A text in an `AdapterState` under a key, which never changes; None if it is not there."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __get__(self, state: AdapterState, _: type[AdapterState]) -> str | None:
        return state.values.get(self._key)

    def __set__(self, state: AdapterState, value: str | None) -> None:
        if value is None:
            state.values.pop(self._key, None)
        else:
            state.values[self._key] = value
