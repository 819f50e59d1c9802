"""Handlers of the commands for the directories of sessions: changes, files, worktrees."""

from outrider.contract.commands import ReadChanges, ReadFiles, RemoveWorktree, Result
from outrider.machine.sessions.sessions import Sessions


class WorkspaceCommands:
    """Carries out commands on the directories of sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def read_changes(self, payload: ReadChanges, _: float) -> Result:
        """Read what differs from a commit."""
        return await self._sessions.read_changes(payload)

    async def read_files(self, payload: ReadFiles, _: float) -> Result:
        """Read a file or list a directory."""
        return await self._sessions.read_files(payload)

    async def remove_worktree(self, payload: RemoveWorktree, _: float) -> Result:
        """Remove the worktree of a session that has ended."""
        return await self._sessions.worktrees.remove(payload)
