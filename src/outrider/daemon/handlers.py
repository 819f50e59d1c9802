"""How this machine carries out each command."""

from collections.abc import Awaitable, Callable

from outrider.contract.commands import (
    AgentStatusQuery,
    ChatDebug,
    CloseTerminal,
    CommandType,
    LaunchCli,
    LaunchIde,
    ReadChat,
    ResolveAction,
    Result,
    Screenshot,
    SendChat,
    StopCli,
    Terminal,
    TerminalClosed,
)
from outrider.daemon.agents.sessions import Sessions
from outrider.daemon.debug.bundle import BundleCollector
from outrider.daemon.router import Handler
from outrider.daemon.terminal import Terminals


def handlers(
    sessions: Sessions, terminals: Terminals, reload: Callable[[], Awaitable[None]]
) -> dict[CommandType, Handler]:
    """Return how this machine carries out each command.

    `reload` reads provider files that have changed; it is called before each launch.
    """
    bundles = BundleCollector(sessions)

    async def send_chat(payload: SendChat, _: float) -> Result:
        return await sessions.find(payload).send(payload)

    async def read_chat(payload: ReadChat, _: float) -> Result:
        return await sessions.find(payload).read(payload)

    async def resolve_action(payload: ResolveAction, _: float) -> Result:
        return await sessions.find(payload).resolve(payload)

    async def agent_status(payload: AgentStatusQuery, _: float) -> Result:
        return sessions.find(payload).state(payload.agent_type)

    async def chat_debug(payload: ChatDebug, _: float) -> Result:
        return await bundles.collect(payload)

    async def launch_cli(payload: LaunchCli, _: float) -> Result:
        await reload()
        return await sessions.launch_cli(payload)

    async def launch_ide(payload: LaunchIde, _: float) -> Result:
        await reload()
        return await sessions.launch_ide(payload)

    async def stop_cli(payload: StopCli, _: float) -> Result:
        return await sessions.stop(payload)

    async def screenshot(payload: Screenshot, _: float) -> Result:
        return await sessions.find(payload).screenshot(payload)

    async def terminal(payload: Terminal, deadline: float) -> Result:
        return await terminals.run(payload, deadline)

    async def close_terminal(payload: CloseTerminal, _: float) -> Result:
        await terminals.end(payload.name)
        return TerminalClosed(terminal=payload.name)

    return {
        CommandType.SEND_CHAT: send_chat,
        CommandType.READ_CHAT: read_chat,
        CommandType.RESOLVE_ACTION: resolve_action,
        CommandType.SCREENSHOT: screenshot,
        CommandType.LAUNCH_IDE: launch_ide,
        CommandType.LAUNCH_CLI: launch_cli,
        CommandType.STOP_CLI: stop_cli,
        CommandType.AGENT_STATUS: agent_status,
        CommandType.TERMINAL: terminal,
        CommandType.CLOSE_TERMINAL: close_terminal,
        CommandType.CHAT_DEBUG: chat_debug,
    }
