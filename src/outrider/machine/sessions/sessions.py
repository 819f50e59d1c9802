"""All sessions of this machine: puts together what launches, ends and reads them."""

import asyncio
from collections.abc import Callable, Mapping

from outrider.contract.commands import (
    Changes,
    Chat,
    Directory,
    FileContents,
    ReadChanges,
    ReadChat,
    ReadFiles,
)
from outrider.contract.errors import ApiError, not_found
from outrider.contract.events import AgentEvent
from outrider.contract.limits import MAX_SESSIONS
from outrider.contract.resources import Session
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.provider import Provider
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_selection import select_messages
from outrider.machine.sessions.clock import Clock, epoch_millis
from outrider.machine.sessions.deltas import DeltaSink
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.ending import Ending
from outrider.machine.sessions.launching import Launcher
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.registry import Registry
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.session_worktrees import SessionWorktrees
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import Worktrees
from outrider.tracing import OFF, Tracing


class Sessions(Registry):
    """The sessions of this machine, and what launches, ends and reads them.

    Args:
        daemon_id: this machine, for target ids.
        providers: the providers by type.
        chats: keeps the chats of ended sessions.
        on_change: called with each session that is new or has changed.
        on_remove: called with the id of each session that was removed.
        emit: called with each agent event, in order.
        deltas: takes the text of messages while they are written; None if it is not needed.
        worktrees: creates the git worktrees of sessions.
        tracing: begins the spans of turns.
        max_sessions: sessions that may run at a time.
    """

    def __init__(
        self,
        *,
        daemon_id: str,
        providers: Mapping[str, Provider],
        journal: Journal,
        chats: EndedChats,
        on_change: Callable[[Session], None],
        on_remove: Callable[[str], None],
        emit: Callable[[AgentEvent], None],
        clock: Clock = epoch_millis,
        deltas: DeltaSink | None = None,
        worktrees: Worktrees | None = None,
        tracing: Tracing = OFF,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        super().__init__(
            daemon_id,
            providers,
            journal=journal,
            chats=chats,
            clock=clock,
            max_sessions=max_sessions,
        )
        self._on_change = on_change
        self._emit = emit
        self._deltas = deltas
        self._workspaces = Workspaces()
        self._tracing = tracing
        self.worktrees = SessionWorktrees(self, worktrees or Worktrees())
        self.ending = Ending(self, self.worktrees, on_remove, emit)
        self.launcher = Launcher(self, self.ending, self.worktrees, self._workspaces, self._follow)

    def _follow(self, record: SessionRecord, adapter: Adapter) -> AgentSession:
        session = AgentSession(
            record,
            adapter,
            daemon_id=self.daemon_id,
            journal=self.journal,
            clock=self.clock,
            emit=self._emit,
            deltas=self._deltas,
            tracing=self._tracing,
            on_change=lambda changed: self._on_change(changed.describe()),
            on_gone=self.ending.begin,
        )
        self.journal.save_session(record)
        self.running[record.id] = session
        session.start()
        self._on_change(session.describe())
        return session

    async def read_chat(self, query: ReadChat) -> Chat:
        """Return the chat of a running session, or of an ended one that `query` names by its id.

        `select_messages` selects the messages.

        Raises:
            ApiError: 404, no such session or agent; 400, the chat has no message with the id
                `after` or `before`.
        """
        # First among the running ones: a target without a session id may mean either.
        try:
            session = self.find(query)
        except ApiError as error:
            record = self.find_ended(query)
            if error.status != 404 or record is None:
                raise
            return await self._read_ended(record, query)
        return await session.read(query)

    async def read_changes(self, query: ReadChanges) -> Changes:
        """Return what differs in the directory of a running session; see `Workspaces.changes`."""
        record = self.find(query).record
        return await self._workspaces.changes(
            record.path, query.base, start=record.start_commit, real_path=record.real_path
        )

    async def read_files(self, query: ReadFiles) -> Directory | FileContents:
        """Return a file or directory of a running session; see `Workspaces.files`."""
        record = self.find(query).record
        return await self._workspaces.files(record.path, query.path, real_path=record.real_path)

    async def _read_ended(self, record: SessionRecord, query: ReadChat) -> Chat:
        state, agent = record.last_state, query.agent_type
        assert state is not None
        if agent in (None, record.type, record.name):
            agent = record.selected_agent or record.type
        else:
            types = [listed.type for listed in state.agents if agent in (listed.type, listed.name)]
            if not types:
                raise not_found(f"The session had no agent {agent!r}")
            agent = agent if agent in types else types[0]
        messages = await asyncio.to_thread(self.chats.read, record.id, agent, record.type)
        return Chat(
            id=state.target_id,
            session_id=record.id,
            agent_type=agent,
            title=state.title,
            status=state.status,
            messages=select_messages(messages, query),
            pending_action=None,
            total_messages=len(messages),
            type=record.type,
            state="ended",
            resumable=record.resumable,
        )
