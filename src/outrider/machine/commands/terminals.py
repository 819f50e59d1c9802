"""Handlers of the commands for shells and named terminals."""

from outrider.contract.commands import (
    CloseTerminal,
    ListTerminals,
    Result,
    Terminal,
    TerminalClosed,
)
from outrider.machine.terminals.terminal import Terminals


class TerminalCommands:
    """Carries out commands on terminals."""

    def __init__(self, terminals: Terminals) -> None:
        self._terminals = terminals

    async def terminal(self, payload: Terminal, deadline: float) -> Result:
        """Run a shell command until the deadline."""
        return await self._terminals.run(payload, deadline)

    async def close_terminal(self, payload: CloseTerminal, _: float) -> Result:
        """Close a named terminal."""
        await self._terminals.end(payload.name)
        return TerminalClosed(terminal=payload.name)

    async def list_terminals(self, _payload: ListTerminals, _: float) -> Result:
        """List the named terminals."""
        return self._terminals.list()
