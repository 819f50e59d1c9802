"""The adapter state of an agent in a terminal, which the journal stores, with types."""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

import psutil

from outrider.machine.agents.adapter import AdapterState, StateText
from outrider.machine.agents.cli.transcripts.codex_transcript import THREAD
from outrider.machine.agents.cli.transcripts.transcript import RESUMED
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


class CliState(AdapterState):
    """What the journal keeps of an agent in a terminal.

    Attributes:
        values: the state itself: environment variables that locate the agent's transcript, and
            what a reader adds to find it again.
        tmux_server: what identifies the tmux server that the agent was started in.
        conversation: the UUID of the agent's conversation; None: it is derived from the session's
            id.
        native_id: the id that the agent itself chose for the conversation; None if it chooses none.
        scrollback: how far the terminal's history has been read, as JSON.
    """

    tmux_server = StateText("tmux")
    conversation = StateText("conversation")
    native_id = StateText(THREAD)
    scrollback = StateText("scrollback")

    @property
    def transcript_variables(self) -> dict[str, str]:
        """The variables that locate the agent's transcript, as they were at its launch."""
        return _transcript_variables(self.values)

    def set_transcript_variables(self, environment: Mapping[str, str]) -> None:
        """Save the variables of the agent's environment that locate its transcript."""
        self.values |= _transcript_variables(environment)

    def set_process(self, pid: int) -> None:
        """Save the agent's first process: its start time identifies it if its pid is reused."""
        # It may have ended already; then there is no process to find later.
        with contextlib.suppress(psutil.NoSuchProcess):
            started = repr(psutil.Process(pid).create_time())
            self.values |= {"pid": str(pid), "started": started}

    def forget_conversation(self) -> None:
        """Give the agent a new conversation: it has recorded nothing of the one so far."""
        self.conversation, self.native_id = str(uuid.uuid4()), None

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


def _transcript_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _TRANSCRIPT_VARIABLES if name in environment}


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
