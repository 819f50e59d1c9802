"""What the journal keeps for the adapter of an agent in a terminal, typed."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from outrider.daemon.processes import ProcessGroup
from outrider.daemon.session_record import SessionRecord


class Delivery(NamedTuple):
    """A message that was about to be typed when the agent's record held so many prompts."""

    message_id: str
    prompts: int


class CliState:
    """A view of a record's `adapter_state`; the caller saves the record after a change.

    Attributes:
        values: the state itself. As environment variables, they are the places where the agent
            had its record when it was launched, and what a reader adds to find it again.
    """

    def __init__(self, record: SessionRecord) -> None:
        self.values = record.adapter_state

    def set_places(self, environment: Mapping[str, str]) -> None:
        """Save the variables that say where the agent keeps its transcript."""
        self.values |= environment

    def set_process(self, pid: int) -> None:
        """Save what identifies the agent's first process."""
        self.values |= _mark(pid)

    async def end_orphan(self, grace: float) -> None:
        """End what is left of an agent whose terminal is gone, as `ProcessGroup.end` does."""
        left = await asyncio.to_thread(_orphaned, self.values)
        if left is not None:
            await left.end(grace)

    @property
    def delivery(self) -> Delivery | None:
        """The message that was typed last, or was about to be."""
        message_id, _, prompts = self.values.get("typing", "").partition(" ")
        return Delivery(message_id, int(prompts)) if message_id else None

    @delivery.setter
    def delivery(self, delivery: Delivery) -> None:
        self.values["typing"] = f"{delivery.message_id} {delivery.prompts}"

    @property
    def scrollback(self) -> str | None:
        """How far the terminal's history has been read, as JSON."""
        return self.values.get("scrollback")

    @scrollback.setter
    def scrollback(self, position: str) -> None:
        self.values["scrollback"] = position


def _mark(pid: int) -> dict[str, str]:
    """Return the pid and start time, which identify a process even if its pid is reused."""
    try:
        return {"pid": str(pid), "started": repr(psutil.Process(pid).create_time())}
    except psutil.NoSuchProcess:
        return {}


def _orphaned(marked: Mapping[str, str]) -> ProcessGroup | None:
    """Return the processes left of an agent whose terminal is gone, by its `_mark`.

    Not every agent ends with its terminal. One that tmux still holds is no orphan.
    """
    if "pid" not in marked:
        return None
    pid = int(marked["pid"])
    try:
        first = psutil.Process(pid)
        if repr(first.create_time()) != marked["started"]:
            return None
        parent = first.parent()
        if parent is not None and parent.name().startswith("tmux"):
            return None
    except psutil.Error:
        return ProcessGroup(pid, None)  # others may be left in its session
    return ProcessGroup(pid, first)
