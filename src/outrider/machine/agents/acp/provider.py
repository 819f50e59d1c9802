"""Launch and restore agents that speak the Agent Client Protocol."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from outrider.machine.agents.acp.spec import AcpSpec, AcpState, cannot_reopen_message
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.provider import Provider
from outrider.machine.sessions.chat_log import ChatLog, chat_file
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.directories import why_unusable

if TYPE_CHECKING:
    from outrider.machine.agents.acp.agent import AcpAgent


class AcpProvider(Provider):
    """One kind of agent that speaks the protocol."""

    spec: AcpSpec

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
        name, state = self.spec.display_name, AcpState(record)
        if not self.spec.reopens or state.reopens == "no":
            return f"{name} cannot open an earlier session again"
        return f"{name} had not opened a session yet" if state.session is None else None

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
        if AcpState(record).session is None:
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
        # Loading the SDK takes half a second, in which the event loop must not stand still.
        module = await asyncio.to_thread(import_module, "outrider.machine.agents.acp.agent")
        context = self._context
        agent: AcpAgent = module.AcpAgent(
            self.spec,
            record,
            ChatLog(chat_file(context.chats, record.id), context.clock),
            self._environment_of(record),
            note_refusal=context.note_refusal,
            timeouts=context.acp_timeouts,
        )
        return agent

    def _arguments(self, record: SessionRecord) -> list[str]:
        values = {"dir": record.path, "model": record.model or ""}
        program, *words = self.spec.words(self.spec.args, record.model, values)
        return [self._find(program) or program, *words]
