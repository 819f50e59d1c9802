"""The adapter state of an agent in a terminal, which the journal stores, with types."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from outrider.daemon.processes import ProcessGroup
from outrider.daemon.session_record import SessionRecord


class Delivery(NamedTuple):
    """A message about to be typed, and the number of prompts in the transcript before it."""

    message_id: str
    prompts: int


class CliState:
    """A view of a record's `adapter_state`; the caller saves the record after a change.

    Attributes:
        values: the state itself: environment variables that locate the agent's transcript, and
            what a reader adds to find it again.
    """

    def __init__(self, record: SessionRecord) -> None:
        self.values = record.adapter_state

    def set_transcript_variables(self, environment: Mapping[str, str]) -> None:
        """Save the variables that locate the agent's transcript."""
        self.values |= environment

    def set_process(self, pid: int) -> None:
        """Save what identifies the agent's first process."""
        self.values |= _process_identity(pid)

    @property
    def tmux_server(self) -> str | None:
        """What identifies the tmux server that the agent was started in."""
        return self.values.get("tmux")

    @tmux_server.setter
    def tmux_server(self, server: str | None) -> None:
        if server is not None:
            self.values["tmux"] = server

    async def end_orphan(self, grace: float) -> None:
        """End the processes left of an agent without a terminal, as `ProcessGroup.end` does."""
        orphan = await asyncio.to_thread(_find_orphan, self.values)
        if orphan is not None:
            await orphan.end(grace)

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


def _process_identity(pid: int) -> dict[str, str]:
    """Return the pid and start time, which identify a process even if its pid is reused."""
    try:
        return {"pid": str(pid), "started": repr(psutil.Process(pid).create_time())}
    except psutil.NoSuchProcess:
        return {}


def _find_orphan(identity: Mapping[str, str]) -> ProcessGroup | None:
    """Return the remaining processes of an agent whose terminal is gone, None if there are none.

    Not every agent ends with its terminal. A process whose parent is tmux is not an orphan.
    """
    if "pid" not in identity:
        return None
    pid = int(identity["pid"])
    try:
        first = psutil.Process(pid)
        if repr(first.create_time()) != identity["started"]:
            return None
        parent = first.parent()
        if parent is not None and parent.name().startswith("tmux"):
            return None
    except psutil.Error:
        return ProcessGroup(pid, None)  # others may be left in its session
    return ProcessGroup(pid, first)
