"""The adapter state of an agent in a terminal, which the journal stores, with types."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

import psutil

from outrider.machine.agents.cli.transcripts.codex_transcript import THREAD
from outrider.machine.agents.cli.transcripts.transcript import RESUMED
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.processes import ProcessGroup

_TRANSCRIPT_VARIABLES: Final = (
    "HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "XDG_DATA_HOME",
    "OPENCODE_DB",
)


class TypedMessage(NamedTuple):
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

    @property
    def transcript_variables(self) -> dict[str, str]:
        """The variables that locate the agent's transcript, as they were at its launch."""
        return _transcript_variables(self.values)

    def set_transcript_variables(self, environment: Mapping[str, str]) -> None:
        """Save the variables of the agent's environment that locate its transcript."""
        self.values |= _transcript_variables(environment)

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

    @property
    def conversation(self) -> str | None:
        """The UUID of the agent's conversation; None: it is derived from the session's id."""
        return self.values.get("conversation")

    def forget_conversation(self) -> None:
        """Give the agent a new conversation: it has recorded nothing of the one so far."""
        self.values["conversation"] = str(uuid.uuid4())
        self.values.pop(THREAD, None)

    @property
    def native_id(self) -> str | None:
        """The id that the agent itself chose for the conversation; None if it chooses none."""
        return self.values.get(THREAD)

    def set_resumed(self, now: int, prompts: int) -> None:
        """Save that the agent is resumed now, and how many prompts its transcript has.

        `now` is in epoch milliseconds.
        """
        self.values |= {RESUMED: str(now), "resumed_prompts": str(prompts)}

    @property
    def prompts_before_resume(self) -> int:
        """The number of prompts in the transcript when the agent was last resumed."""
        return int(self.values.get("resumed_prompts", 0))

    async def end_orphan(self, grace: float) -> None:
        """End the processes left of an agent without a terminal, as `ProcessGroup.end` does."""
        orphan = await asyncio.to_thread(_find_orphan, self.values)
        if orphan is not None:
            await orphan.end(grace)

    @property
    def last_typed(self) -> TypedMessage | None:
        """The message that was typed last, or was about to be."""
        message_id, _, prompts = self.values.get("typing", "").partition(" ")
        return TypedMessage(message_id, int(prompts)) if message_id else None

    @last_typed.setter
    def last_typed(self, message: TypedMessage) -> None:
        self.values["typing"] = f"{message.message_id} {message.prompts}"

    @property
    def scrollback(self) -> str | None:
        """How far the terminal's history has been read, as JSON."""
        return self.values.get("scrollback")

    @scrollback.setter
    def scrollback(self, position: str) -> None:
        self.values["scrollback"] = position


def _transcript_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _TRANSCRIPT_VARIABLES if name in environment}


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
