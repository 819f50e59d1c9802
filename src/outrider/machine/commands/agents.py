"""Handlers of the commands for agents: launch and stop them, send messages, answer questions."""

from collections.abc import Awaitable, Callable

from outrider.contract.commands import (
    AgentStatusQuery,
    AnswerAction,
    Interrupt,
    LaunchCli,
    LaunchIde,
    LaunchInWorktree,
    ReadChat,
    ReadQueue,
    ReadScreen,
    ReadTurn,
    Result,
    Resume,
    Screenshot,
    SendChat,
    StopCli,
    Withdraw,
)
from outrider.machine.sessions.sessions import Sessions


class AgentCommands:
    """Carries out commands on sessions and their agents."""

    def __init__(self, sessions: Sessions, reload: Callable[[], Awaitable[None]]) -> None:
        self._sessions = sessions
        self._reload = reload

    async def launch_cli(self, payload: LaunchCli, _: float) -> Result:
        """Start a CLI or ACP agent."""
        await self._reload()
        return await self._sessions.launcher.launch_cli(payload)

    async def launch_ide(self, payload: LaunchIde, _: float) -> Result:
        """Start an IDE."""
        await self._reload()
        return await self._sessions.launcher.launch_ide(payload)

    async def launch_in_worktree(self, payload: LaunchInWorktree, _: float) -> Result:
        """Start a CLI or ACP agent in a git worktree."""
        await self._reload()
        return await self._sessions.launcher.launch_in_worktree(payload)

    async def resume(self, payload: Resume, _: float) -> Result:
        """Continue a session that has ended."""
        await self._reload()
        return await self._sessions.launcher.resume(payload)

    async def stop_cli(self, payload: StopCli, _: float) -> Result:
        """Stop a session."""
        return await self._sessions.ending.stop(payload)

    async def stop_and_remove_worktree(self, payload: StopCli, _: float) -> Result:
        """Stop a session and remove its worktree."""
        return await self._sessions.ending.stop(payload, remove_worktree=True)

    async def send_chat(self, payload: SendChat, _: float) -> Result:
        """Send a message, change controls, or both."""
        return await self._sessions.find(payload).send(payload)

    send_chat_now = send_chat

    async def read_chat(self, payload: ReadChat, _: float) -> Result:
        """Read the chat of a running or an ended session."""
        return await self._sessions.read_chat(payload)

    async def read_turn(self, payload: ReadTurn, _: float) -> Result:
        """Read whether a turn is over."""
        return await self._sessions.find(payload).turn(payload)

    async def interrupt(self, payload: Interrupt, _: float) -> Result:
        """Stop the current turn."""
        return await self._sessions.find(payload).interrupt(payload)

    async def read_queue(self, payload: ReadQueue, _: float) -> Result:
        """Read the messages that wait."""
        return self._sessions.find(payload).queue()

    async def withdraw(self, payload: Withdraw, _: float) -> Result:
        """Take a message out of the queue."""
        return await self._sessions.find(payload).withdraw(payload)

    async def resolve_action(self, payload: AnswerAction, _: float) -> Result:
        """Answer the pending action."""
        return await self._sessions.find(payload).resolve(payload, payload.by)

    async def agent_status(self, payload: AgentStatusQuery, _: float) -> Result:
        """Read what an agent is doing."""
        return self._sessions.find(payload).state(payload.agent_type)

    async def read_screen(self, payload: ReadScreen, _: float) -> Result:
        """Read the screen of an agent in a terminal."""
        return await self._sessions.find(payload).screen()

    async def screenshot(self, payload: Screenshot, _: float) -> Result:
        """Take a picture of an IDE."""
        return await self._sessions.find(payload).screenshot(payload)
