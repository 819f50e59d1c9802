"""The interface between a session and the kind of agent that it drives.

Whatever an agent uses (a terminal's screen, a protocol, a page), its adapter only observes,
delivers and reads. What may be done, and when, is decided by the session's core (core.py). At
most one of the methods of an adapter's agents is called at a time, `messages` aside; `deliver`,
`choose` and `change` are called right after `ready`, and a message after `show`, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.contract.commands import ChatInput, Picture
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    Control,
    Message,
    PendingAction,
    SummaryItem,
)


@dataclass(frozen=True)
class Observation:
    """The present state of an agent.

    `pending` is set exactly while `status` is `waiting_approval`, and keeps its id for as
    long as it is the same question. `error` says, while `status` is `error`, what the
    person must do. `gone` means that the agent no longer runs, `listed` that the session lists
    it among its agents (an IDE's agents, once its window has shown them).
    """

    status: AgentStatus
    pending: PendingAction | None = None
    error: str | None = None
    title: str | None = None
    model: str | None = None
    gone: bool = False
    listed: bool = False
    cdp_connected: bool = False
    summary: tuple[SummaryItem, ...] = ()
    controls: tuple[Control, ...] = field(default=(), repr=False)


Observer = Callable[[str, Observation], None]
"""Takes the type of an agent and its state, on the event loop's thread.

Called in the order of what happens. Repeated observations are harmless.
"""


NoteRefusal = Callable[[str, str, str], None]
"""Takes the session id, the action and the target of an agent's request that was refused."""


class Camera(Protocol):
    """What takes pictures of an agent's window."""

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


class Agent(Protocol):
    """One agent, as the session acts upon it."""

    @property
    def name(self) -> str:
        """Its name, for people."""

    async def ready(self) -> None:
        """Return once the agent can be acted upon; its present state has been observed by then.

        Raises:
            ApiError: 500, the agent cannot be reached.
        """

    async def show(self) -> None:
        """Make the agent's chat accept a message; a question that it asks then is observed.

        Raises:
            ApiError: 500, it does not get there.
        """

    def check(self, message: ChatInput) -> None:
        """Check that the agent can take such a message, before it is accepted.

        Raises:
            ApiError: 400, it never can; the text says what to change.
        """

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        """Give the agent a message and return once it has taken it.

        Never answers early: the text has been seen in the agent's own record, or its
        protocol has acknowledged it. By the return the agent has been observed `generating`,
        and is not observed `idle` before it has dealt with this message. The user message
        in `messages()` carries `message_id`, for ever.

        A message that the agent has taken already, from a daemon that was killed before it
        could note that, is not given again.

        Raises:
            ApiError: 500, the agent did not take it; its input is left empty.
        """

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        """Choose `option`, once; return whether the agent offers it. Nothing is typed if not.

        That the question is gone is observed, within `answer_timeout` of the return.

        Raises:
            ApiError: 500, the agent did not react.
        """

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change controls, by their ids; the new values have been observed by the return.

        Raises:
            ApiError: 400, there is no such control, or it has no such value;
                500, the agent did not react.
        """

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat, oldest first; index, id and timestamp never change."""


class Adapter(Protocol):
    """What a session drives: one running agent, or an IDE with several.

    Made by a `Provider`'s launch or restore. The adapter of a single agent is that agent, too.
    """

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by their types; the one to be used by default is the first."""

    @property
    def answer_timeout(self) -> float:
        """Seconds within which a question that was answered must be gone."""

    @property
    def camera(self) -> Camera | None:
        """What takes pictures of its window, where it has one."""

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the present state of each agent now, and after every change."""

    async def close(self) -> None:
        """End the agent and every process of it. Harmless if it is gone already."""

    async def detach(self) -> None:
        """Stop observing, within 4 s: the daemon is about to stop.

        The agent keeps running if it can. One that cannot live without this daemon is ended,
        and what `restore` needs is kept.
        """

    def evidence(self) -> dict[str, Any]:
        """Return what the status was derived from, for the debug bundle (JSON values)."""
