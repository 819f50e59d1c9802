"""Handler of the command for the debug bundle."""

from outrider.contract.commands import ChatDebug, Result
from outrider.machine.debug.bundle import BundleCollector
from outrider.machine.sessions.sessions import Sessions


class DebugCommands:
    """Carries out the command for the debug bundle."""

    def __init__(self, sessions: Sessions) -> None:
        self._bundles = BundleCollector(sessions)

    async def chat_debug(self, payload: ChatDebug, _: float) -> Result:
        """Read the debug bundle of a session."""
        return await self._bundles.collect(payload)
