"""The end of sessions, so that it is complete and reported once if the daemon is killed meanwhile.

    save the reason ─▶ end the agent ─▶ copy its chat ─▶ save the end ─▶ session:ended ─▶ save that

Killed before the end is saved, the next daemon finds the reason and ends the session anew. Killed
after that, it reports the end again, under the same id of the event: the service stores it once.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from outrider.contract.commands import StopCli, Stopped
from outrider.contract.errors import ApiError, ErrorCode, conflict, not_found
from outrider.contract.events import AgentEvent
from outrider.contract.ids import derived_id
from outrider.contract.resources import EndReason, Session
from outrider.machine.sessions.event_emitter import agent_event
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.registry import Registry
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.session_worktrees import SessionWorktrees
from outrider.machine.sessions.state_events import StateEvents
from outrider.machine.system.directories import expanded

_CLOSE_SECONDS: Final = 3.0
"""Seconds that ends in progress have while the daemon stops; the next one completes the others."""

_RESTORE_SECONDS: Final = 20.0
"""Seconds that a start waits for the ends of sessions whose agents are gone."""

_log = structlog.get_logger(__name__)


class Ending:
    """Ends sessions, each in a task of its own, and keeps those that have ended.

    Args:
        on_remove: called with the id of each session that was removed.
        emit: called with each agent event, in order.
    """

    def __init__(
        self,
        registry: Registry,
        worktrees: SessionWorktrees,
        on_remove: Callable[[str], None],
        emit: Callable[[AgentEvent], None],
    ) -> None:
        self._registry = registry
        self._worktrees = worktrees
        self._on_remove = on_remove
        self._emit = emit
        self._tasks: dict[str, asyncio.Task[ApiError | None]] = {}
        """The ends in progress, by session id."""

    async def stop(self, request: StopCli, *, remove_worktree: bool = False) -> Stopped:
        """Stop the session that `request` identifies, and all its processes.

        Args:
            remove_worktree: remove its worktree too; if that is refused, nothing is stopped.

        Raises:
            ApiError: 404, no such session; 409, several match, or the worktree has changes
                (`WORKTREE_DIRTY`) or is used by another session; 400, unknown type, or no worktree.
        """
        session = self._find(request)
        record = session.record
        if remove_worktree:
            await self._worktrees.check_removable(record)
            if self._registry.running.get(record.id) is not session:
                raise not_found(f"The session {record.id!r} has ended meanwhile")
        end = self.begin(session, "stopped", remove_worktree=remove_worktree)
        refusal = await asyncio.shield(end)  # it goes on if the caller is cancelled
        if remove_worktree and not (record.worktree is not None and record.worktree.removed):
            raise refusal or conflict("The session was ending already: its worktree stays")
        return Stopped(stopped=[record.id])

    def begin(
        self, session: AgentSession, reason: EndReason, *, remove_worktree: bool = False
    ) -> asyncio.Task[ApiError | None]:
        """End a session; return the task of its end, the same one while it is in progress.

        Its result is why the worktree was not removed.
        """
        record = session.record
        # An agent that is stopped is also observed to be gone: both are the same end.
        end = self._tasks.get(record.id)
        if end is None:
            work = self._end(session, record.end_reason or reason, remove_worktree)
            self._tasks[record.id] = end = asyncio.create_task(work, name=f"end {record.id}")
            end.add_done_callback(partial(self._end_done, record.id))
        return end

    async def wait_for_ends(self) -> None:
        """Wait for the ends in progress, within `_RESTORE_SECONDS`."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_RESTORE_SECONDS)

    async def detach(self) -> None:
        """Stop following the agents and leave them running."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks.values(), timeout=_CLOSE_SECONDS)
            for end in unfinished:
                end.cancel()
        running = self._registry.running
        await asyncio.gather(*(session.detach() for session in running.values()))
        running.clear()

    async def prune(self) -> None:
        """Delete the ended sessions that are beyond the limits of the history."""
        ended, resuming = self._registry.ended, self._registry.resuming
        ends = {
            record.id: record.ended_at or 0
            for record in ended.values()
            if record.id not in resuming
        }
        for session_id in await asyncio.to_thread(
            self._registry.chats.excess, ends, self._registry.clock()
        ):
            if session_id not in resuming and ended.pop(session_id, None) is not None:
                self._registry.journal.remove_session(session_id)
                await asyncio.to_thread(self._registry.chats.delete, session_id)

    def end_without_agent(self, record: SessionRecord) -> None:
        """End a session whose agent cannot be reached: its provider was removed."""
        record.end_reason = record.end_reason or "machine_restarted"
        session = Session(
            id=record.id,
            target_id=f"{self._registry.daemon_id}:session:{record.id}",
            kind=record.kind,
            type=record.type,
            name=record.name,
            status="error",
            workspace=record.workspace,
            model=record.model,
            created_at=record.created_at,
            last_activity_at=record.last_activity_at,
            error="Its provider file was removed",
            worktree=record.worktree,
        )
        self._save_end(record, session)

    def add_ended(self, record: SessionRecord) -> None:
        """Add a session that has ended, and report its end unless that was done."""
        self._registry.ended[record.id] = record
        if record.emitted_ended or record.last_state is None or record.ended_at is None:
            return
        for command in StateEvents(record).end(record.last_state):
            self._emit(
                agent_event(
                    command,
                    record,
                    daemon_id=self._registry.daemon_id,
                    event_id=derived_id("evt", record.ended_at, record.id, command.event),
                    timestamp=record.ended_at,
                )
            )
        record.emitted_ended = True
        self._registry.journal.save_session(record)

    def _find(self, request: StopCli) -> AgentSession:
        self._registry.require_provider(request.cli_type, "cliType")
        path = None if request.dir is None else str(expanded(request.dir, "dir"))
        requested = None
        if request.session_id is not None or request.target is not None:
            requested = self._registry.find(request)
        candidates = [
            session
            for session in self._registry.running.values()
            if session.record.type == request.cli_type
            and requested in (None, session)
            and path in (None, session.record.path)
        ]
        if not candidates:
            raise not_found(f"No {request.cli_type} session runs here that fits this request")
        if len(candidates) > 1:
            raise conflict(
                f"{len(candidates)} sessions of {request.cli_type} run here: "
                "name one by `sessionId` or `dir`",
                ErrorCode.AMBIGUOUS_TARGET,
            )
        return candidates[0]

    def _end_done(self, session_id: str, end: asyncio.Task[ApiError | None]) -> None:
        del self._tasks[session_id]
        if not end.cancelled() and (error := end.exception()) is not None:
            _log.error("session not ended", session=session_id, exc_info=error)

    async def _end(
        self, session: AgentSession, reason: EndReason, remove_worktree: bool
    ) -> ApiError | None:
        record = session.record
        # Saved first: a daemon that is killed from here on ends the session after its restart.
        record.end_reason = reason
        self._registry.journal.save_session(record)
        try:
            if reason != "stopped":
                await session.finish_act()
            chats = await session.close()
        except Exception:
            # The agent may still run: without a reason, the next daemon follows it again.
            record.end_reason = None
            self._registry.journal.save_session(record)
            raise
        if record.type not in chats and record.selected_agent is None and chats:
            record.selected_agent = next(iter(chats))  # of an IDE: the one that was selected
        try:
            await asyncio.to_thread(self._registry.chats.save, record.id, chats, record.type)
        except OSError as error:
            _log.error("chat of an ended session not saved", session=record.id, error=str(error))
        refusal = await self._worktrees.remove_at_end(record) if remove_worktree else None
        # Until here, commands find the session: whoever waits for its end gets this task's result.
        self._registry.running.pop(record.id, None)
        self._save_end(record, session.describe())
        self._on_remove(record.id)
        await self.prune()
        return refusal

    def _save_end(self, record: SessionRecord, session: Session) -> None:
        """Save that a session has ended, in this last state, and report it."""
        # The clock may have been set back; an end before the last activity would be nonsense.
        record.ended_at = max(self._registry.clock(), record.last_activity_at)
        record.emitted_ended = False
        record.generating_since = None
        record.not_resumable = self._registry.why_not_resumable(record)
        record.resumable = record.not_resumable is None
        record.last_state = msgspec.structs.replace(
            session,
            status="error" if session.status == "error" else "idle",
            pending_action=None,
            cdp_connected=False,
            state="ended",
            ended_at=record.ended_at,
            end_reason=record.end_reason,
            resumable=record.resumable,
            not_resumable=record.not_resumable,
        )
        self._registry.journal.clear_queue(record.id)
        self._registry.journal.save_session(record)
        self.add_ended(record)
        _log.info("session ended", session=record.id, type=record.type, reason=record.end_reason)
