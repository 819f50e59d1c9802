"""Launch and restore agents that speak the Agent Client Protocol."""

import asyncio
import shutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.contract.resources import Provider as Description
from outrider.contract.targets import SESSION_VARIABLE
from outrider.machine.agents.acp.spec import (
    DEFAULT_TIMEOUTS,
    REOPENS_KEY,
    SESSION_KEY,
    AcpSpec,
    Timeouts,
    cannot_reopen_message,
)
from outrider.machine.agents.adapter import Adapter, NoteRefusal
from outrider.machine.agents.provider_spec import fill_placeholders
from outrider.machine.sessions.chat_log import ChatLog, chat_file
from outrider.machine.sessions.clock import Clock
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.directories import why_unusable

if TYPE_CHECKING:
    from outrider.machine.agents.acp.agent import AcpAgent


class AcpProvider:
    """One kind of agent that speaks the protocol.

    Args:
        folder: the directory of the chats, a file for each session.
        environment: what agents inherit, before the file's changes.
        note_refusal: gets every refusal of a request of an agent, for the audit.
        timeouts: how long the agents may take.
    """

    def __init__(
        self,
        spec: AcpSpec,
        folder: Path,
        environment: Mapping[str, str],
        *,
        clock: Clock,
        note_refusal: NoteRefusal,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._timeouts = timeouts
        self.spec = spec
        self._folder = folder
        self._inherited = environment
        self._clock = clock
        self._note_refusal = note_refusal

    def describe(self) -> Description:
        """Return the API's description; looks for the program on the agent's PATH."""
        path = shutil.which(self.spec.program, path=self._environment().get("PATH"))
        return self.spec.description(path)

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the agent with a new session and return once it is ready."""
        agent = await self._agent(record)
        try:
            await agent.open(self._arguments(record))
        except BaseException:
            await asyncio.shield(agent.close())
            raise
        return agent

    def not_resumable(self, record: SessionRecord) -> str | None:
        """Return why a session cannot be continued; None if it can."""
        name = self.spec.display_name
        if not self.spec.reopens or record.adapter_state.get(REOPENS_KEY) == "no":
            return f"{name} cannot open an earlier session again"
        if SESSION_KEY not in record.adapter_state:
            return f"{name} had not opened a session yet"
        return None

    async def resume(self, record: SessionRecord) -> Adapter:
        """Start the agent with its earlier session and return once it is ready."""
        agent = await self._agent(record)
        try:
            await agent.resume(self._arguments(record))
        except BaseException:
            await asyncio.shield(agent.detach())
            raise
        return agent

    async def restore(self, record: SessionRecord) -> Adapter:
        """Begin to open the session again; the result is observed."""
        agent = await self._agent(record)
        if SESSION_KEY not in record.adapter_state:
            agent.set_ended("The machine agent stopped while this agent was being launched")
        elif not self.describe().installed:
            agent.set_ended(f"{self.spec.display_name} is not installed any more")
        elif reason := await asyncio.to_thread(why_unusable, record.path, record.real_path):
            agent.set_ended(reason)
        elif not self.spec.reopens:
            agent.set_ended(cannot_reopen_message(self.spec.display_name))
        else:
            agent.reopen(self._arguments(record))
        return agent

    async def _agent(self, record: SessionRecord) -> "AcpAgent":
        # The SDK takes half a second and 15 MB to load: only where there is such an agent.
        module = await asyncio.to_thread(import_module, "outrider.machine.agents.acp.agent")
        chat_log = ChatLog(chat_file(self._folder, record.id), self._clock)
        agent: AcpAgent = module.AcpAgent(
            self.spec,
            record,
            chat_log,
            self._environment() | {SESSION_VARIABLE: record.id},
            note_refusal=self._note_refusal,
            timeouts=self._timeouts,
        )
        return agent

    def _arguments(self, record: SessionRecord) -> list[str]:
        spec = self.spec
        values = {"dir": record.path, "model": record.model or ""}
        command = shutil.which(spec.program, path=self._environment().get("PATH"))
        words = [*spec.command[1:], *spec.args, *(spec.model_args if record.model else [])]
        return [command or spec.program, *(fill_placeholders(word, values) for word in words)]

    def _environment(self) -> dict[str, str]:
        """Return the agent's environment: the daemon's with the changes of the spec."""
        return self.spec.environment_from(self._inherited, ("OUTRIDER_",))
