"""The commands of the service, and what carries them out.

`router` runs commands. `agents`, `workspace`, `terminals` and `debug` have their handlers: the
method that carries out a command has the command's name.
"""

from collections.abc import Awaitable, Callable

from outrider.contract.commands import CommandType
from outrider.machine.commands.agents import AgentCommands
from outrider.machine.commands.debug import DebugCommands
from outrider.machine.commands.router import Handler
from outrider.machine.commands.terminals import TerminalCommands
from outrider.machine.commands.workspace import WorkspaceCommands
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.terminals.terminal import Terminals


def command_handlers(
    sessions: Sessions, terminals: Terminals, reload: Callable[[], Awaitable[None]]
) -> dict[CommandType, Handler]:
    """Return the handler of each command.

    Args:
        reload: reads provider files that have changed; called before each launch, so that a
            provider can be used right after its file was written.
    """
    subjects = (
        AgentCommands(sessions, reload),
        WorkspaceCommands(sessions),
        TerminalCommands(terminals),
        DebugCommands(sessions),
    )
    return {
        kind: getattr(subject, kind)
        for subject in subjects
        for kind in CommandType
        if hasattr(subject, kind)
    }
