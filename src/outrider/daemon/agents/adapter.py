"""The interface between a session and the kind of agent that it drives.

Whatever an agent speaks (a terminal's screen, a protocol, a page), its adapter turns it
into the five verbs and the one stream of observations below. Queueing, approvals won by
one caller, events and target ids are the session's business, the same for all kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from outrider.contract.commands import ChatInput, Picture
from outrider.contract.resources import (
    ActionOption,
    AgentStatus,
    AgentSummary,
    Control,
    Message,
    PendingAction,
    SummaryItem,
)


@dataclass(frozen=True)
class Observation:
    """What an agent is seen to be doing now.

    `pending` is set exactly while `status` is `waiting_approval`, and keeps its id for as
    long as it is the same question. `error` says, while `status` is `error`, what the
    person must do. `gone` tells that the agent no longer runs.
    """

    status: AgentStatus
    pending: PendingAction | None = None
    error: str | None = None
    title: str | None = None
    model: str | None = None
    gone: bool = False
    cdp_connected: bool = False
    agents: tuple[AgentSummary, ...] = ()
    summary: tuple[SummaryItem, ...] = ()
    controls: tuple[Control, ...] = field(default=(), repr=False)


Observer = Callable[[Observation], None]
"""Told of every change an adapter sees, in order, on the event loop's thread."""


NoteRefusal = Callable[[str, str, str], None]
"""Told the session, the action and the target of what an agent was kept from, for the audit."""


class Adapter(Protocol):
    """One running agent. Made by a `Provider`'s launch or restore."""

    def observe(self, observer: Observer) -> None:
        """Begin to tell `observer` of changes; the first call comes with the present state."""

    async def submit(self, message_id: str, message: ChatInput) -> None:
        """Give the agent a message and return once it has taken it.

        Never answers early: the text has been seen in the agent's own record, or its
        protocol has acknowledged it. By the return the observer has been told `generating`,
        and is not told `idle` before the agent has dealt with this message. The user message
        in `messages()` carries `message_id`, for ever.

        Raises:
            ApiError: 500, the agent did not take it; its input is left empty.
        """

    async def answer(self, action: PendingAction, option: ActionOption) -> None:
        """Choose `option` and return once the question is gone. Types nothing twice.

        Whatever comes of it, the observer is told the present state again before the return.

        Raises:
            ApiError: 409, another question (or none) is there; nothing was typed.
            ApiError: 500, the agent did not react.
        """

    async def change(self, values: Mapping[str, str | bool]) -> None:
        """Change controls, by their ids; the observer is told before the return.

        Raises:
            ApiError: 400, there is no such control, or it has no such value;
                500, the agent did not react.
        """

    async def messages(self) -> Sequence[Message]:
        """Return the whole chat, oldest first; index, id and timestamp never change."""

    async def close(self) -> None:
        """End the agent and every process of it. Harmless if it is gone already."""

    async def detach(self) -> None:
        """Stop looking, within 4 s: the daemon is about to stop.

        The agent goes on where it can. One that cannot live without this daemon is ended, and
        what `restore` needs is kept.
        """

    def evidence(self) -> dict[str, Any]:
        """Return what the status was judged from, for the debug bundle (JSON values)."""


@runtime_checkable
class Ide(Adapter, Protocol):
    """An IDE: a window with one agent or several; the verbs above are for the one selected."""

    selected: str
    """The type of the selected agent."""

    def named(self, agent: str) -> str:
        """Return the type of the agent of this type or name.

        Raises:
            ApiError: 404, the IDE has none such.
        """

    async def select(self, agent: str) -> None:
        """Make the agent of this type the selected one.

        Raises:
            ApiError: 409, another one is at work.
        """

    def observation(self, agent: str) -> Observation:
        """Return what the agent of this type is doing now."""

    async def messages_of(self, agent: str) -> Sequence[Message]:
        """Return the chat with the agent of this type."""

    async def screenshot(self, width: int | None) -> Picture:
        """Return a picture of the window, `width` pixels wide, of 4 MB at the most.

        Raises:
            ApiError: 409, the window is minimised or closed; 500, it does not answer.
        """

    async def thumbnail(self) -> Picture:
        """Return a picture of the window, of 20 kB at the most, whose text is too small to read.

        Raises:
            ApiError: as `screenshot` does.
        """
