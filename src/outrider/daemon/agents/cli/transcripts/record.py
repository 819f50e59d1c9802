"""What a reader of an agent's own record offers, whatever the record looks like."""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from outrider.contract.resources import Message
from outrider.daemon.agents.guards import Guards

_MAX_POLLS: Final = 4096

Activity = Literal["busy", "waiting", "idle"]
"""What the record says of the agent now; `waiting` is for its user to answer something."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call without a result yet. `started` is epoch milliseconds."""

    id: str
    started: int


class Transcript(Protocol):
    """The record of one conversation, read as it grows. All calls are quick, local reads."""

    title: str | None
    model: str | None
    failure: str | None
    """The error that ended the newest turn, None if it did not end with one."""

    @property
    def prompts(self) -> int:
        """How many messages of the user the record holds."""

    def poll(self) -> bool:
        """Read what has been recorded since the last time. Never fails over a broken line.

        Return whether there is more, so that a long record holds up the event loop for a part of
        it at a time; until then, what this tells is out of date.
        """

    def activity(self) -> Activity | None:
        """Return what the agent itself says that it is doing, None if the record is mute."""

    def open_calls(self) -> Sequence[ToolCall]:
        """Return the tool calls without a result, oldest first."""

    def sent(self, text: str, after: int) -> str | None:
        """Return the record's key of the user message `text` behind the first `after` ones."""

    def messages(self, ids: Mapping[str, str], guards: Guards) -> list[Message]:
        """Return the whole chat.

        `ids` has the message id of those that were sent through Outrider, by their keys;
        `guards` is what was put around these for the agent, and is taken off again.
        """


@runtime_checkable
class OfProcess(Transcript, Protocol):
    """A transcript of which only the running agent tells where it is."""

    def run_by(self, pid: int, kept: MutableMapping[str, str]) -> None:
        """Find it by the agent's process. What finds it again without that goes into `kept`.

        `kept` outlives the daemon; a later reader has it in its environment.
        """


async def catch_up(transcript: Transcript) -> None:
    """Read all that has been recorded, and let others run meanwhile."""
    for _ in range(_MAX_POLLS):
        if not transcript.poll():
            return
        await asyncio.sleep(0)
