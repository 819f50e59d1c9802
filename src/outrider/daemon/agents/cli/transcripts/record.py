"""What a reader of an agent's own record offers, whatever the record looks like."""

import asyncio
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from outrider.contract.resources import Message

_MAX_POLLS: Final = 4096

Activity = Literal["busy", "waiting", "idle"]
"""What the record says of the agent now; `waiting` is for its user to answer something."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call without a result yet. `started` is epoch milliseconds."""

    id: str
    started: int


class Guards:
    """What keeps an agent from acting on a message instead of reading it.

    Args:
        before: messages that match this pattern are given `mark` in front.
        behind: messages in which this pattern is found are given a space at the end.
    """

    def __init__(
        self, before: str | None = None, behind: str | None = None, mark: str = " "
    ) -> None:
        self._mark = mark
        self._before = None if before is None else re.compile(before)
        self._behind = None if behind is None else re.compile(behind)

    def add(self, text: str) -> str:
        """Return `text` as the agent is given it."""
        before = self._mark if self._before is not None and self._before.match(text) else ""
        behind = " " if self._behind is not None and self._behind.search(text) else ""
        return before + text + behind

    def remove(self, text: str) -> str:
        """Return what `add` was given; the agent may have taken the last space off itself."""
        bare = text.removeprefix(self._mark)
        if self._before is not None and bare != text and self._before.match(bare):
            text = bare
        if self._behind is not None and text.endswith(" ") and self._behind.search(text[:-1]):
            text = text[:-1]
        return text


class Transcript(Protocol):
    """The record of one conversation, read as it grows. All calls are quick, local reads."""

    title: str | None
    model: str | None
    failure: str | None
    """The error that ended the newest turn, None where it did not end with one."""

    @property
    def prompts(self) -> int:
        """How many messages of the user the record holds."""

    def poll(self) -> bool:
        """Read what has been recorded since the last time. Never fails over a broken line.

        Return whether there is more, so that a long record holds up the event loop for a part of
        it at a time; until then, what this tells is out of date.
        """

    def activity(self) -> Activity | None:
        """Return what the agent itself says that it is doing, None where the record is mute."""

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
