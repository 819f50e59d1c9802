"""All sessions of this machine: launch, find and stop them, and restore them after a restart.

The end of a session, so that it is complete and reported once if the daemon is killed meanwhile:

    save the reason ─▶ end the agent ─▶ copy its chat ─▶ save the end ─▶ session:ended ─▶ save that

Killed before the end is saved, the next daemon finds the reason and ends the session anew. Killed
after that, it reports the end again, under the same id of the event: the service stores it once.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from outrider.contract.commands import (
    Changes,
    Chat,
    Directory,
    FileContents,
    LaunchCli,
    Launched,
    LaunchIde,
    LaunchInWorktree,
    NamesSession,
    NewWorktree,
    ReadChanges,
    ReadChat,
    ReadFiles,
    RemoveWorktree,
    Resume,
    StopCli,
    Stopped,
    WorktreeRemoved,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.events import AgentEvent
from outrider.contract.ids import derived_id, new_id
from outrider.contract.limits import MAX_SESSIONS
from outrider.contract.providers import Category
from outrider.contract.resources import EndReason, Message, Session, Worktree
from outrider.contract.resources import Provider as Description
from outrider.contract.targets import parse_target
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.failure import not_resumable, start_failure
from outrider.machine.agents.provider import Provider
from outrider.machine.agents.provider_spec import CDP
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_selection import select_messages
from outrider.machine.sessions.deltas import DeltaSink
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.session import AgentSession, Clock, agent_event
from outrider.machine.sessions.state_events import StateEvents
from outrider.machine.system.directories import directory, expanded, why_unusable
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import OpenedWorktree, Worktrees
from outrider.tracing import OFF, Tracing

_CLOSE_SECONDS: Final = 3.0
"""Seconds that ends in progress have while the daemon stops; the next one completes the others."""

_RESTORE_SECONDS: Final = 20.0
"""Seconds that a start waits for the ends of sessions whose agents are gone."""

_log = structlog.get_logger(__name__)


def epoch_millis() -> int:
    """Return the time now in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Sessions:
    """The agents that run on this machine.

    Args:
        daemon_id: this machine, for target ids.
        providers: the known providers by type.
        chats: keeps the chats of ended sessions.
        on_change: called with each session that is new or has changed.
        on_remove: called with the id of each session that was removed.
        emit: called with each agent event, in order.
        deltas: takes the text of messages while they are written; None if it is not needed.
        worktrees: creates the git worktrees of sessions.
        workspaces: reads the directories of sessions.
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
        workspaces: Workspaces | None = None,
        tracing: Tracing = OFF,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self._tracing = tracing
        self._max_sessions = max_sessions
        self._deltas = deltas
        self._workspaces = workspaces or Workspaces()
        self._worktrees = worktrees or Worktrees()
        self._worktree_lock = asyncio.Lock()
        """Held while a worktree is created or removed, and whose it is may change."""
        self._removing: str | None = None
        """The path of the worktree of an ended session that is being removed."""
        self._launching: dict[str, SessionRecord] = {}
        self._daemon_id = daemon_id
        self._providers = providers
        self._journal = journal
        self._chats = chats
        self._on_change = on_change
        self._on_remove = on_remove
        self._emit = emit
        self._clock = clock
        self._sessions: dict[str, AgentSession] = {}
        self._pending_records: dict[str, SessionRecord] = {}
        self._ended: dict[str, SessionRecord] = {}
        self._resuming: set[str] = set()
        self._ends: dict[str, asyncio.Task[ApiError | None]] = {}
        """The ends in progress, by session id."""

    def describe(self) -> list[Session]:
        """Return every running session, oldest first."""
        return [session.describe() for session in self._sessions.values()]

    def providers(self) -> list[Description]:
        """Return every known provider."""
        return [provider.describe() for provider in self._providers.values()]

    async def restore(self) -> None:
        """Restore the sessions that were running before this daemon started.

        Sessions whose provider file is invalid stay pending until `retry_restore`. Those whose
        agents are gone have ended when this returns.
        """
        for record in self._journal.sessions():
            if record.ended_at is not None:
                self._keep_ended(record)
            elif record.type in self._providers:
                self._pending_records[record.id] = record
            else:
                _log.warning("session ended: its provider was removed", session=record.id)
                self._end_without_agent(record)
        await self.retry_restore()
        if self._ends:
            await asyncio.wait(self._ends.values(), timeout=_RESTORE_SECONDS)
        await self.prune()
        for record in self._pending_records.values():
            _log.error("session not restored: its provider file is invalid", session=record.id)

    async def retry_restore(self) -> None:
        """Restore the pending sessions whose provider file has been corrected since."""
        for record in list(self._pending_records.values()):
            provider = self._providers.get(record.type)
            if provider is None or provider.describe().error is not None:
                continue
            if self._pending_records.pop(record.id, None) is None:
                continue  # a concurrent call restores it: each record is popped before any await
            try:
                session = self._follow(record, await provider.restore(record))
                if record.end_reason is not None:  # an earlier daemon was killed while it ended it
                    self._begin_end(session, record.end_reason)
            except Exception:  # noqa: BLE001  # one record must not keep the others from restoring
                _log.exception("session not restored", session=record.id, type=record.type)

    async def launch_cli(self, request: LaunchCli) -> Launched:
        """Start a CLI or ACP agent.

        Raises:
            ApiError: 400, unknown or not installed type, or no such directory.
        """
        provider = self._provider(request.cli_type, ("cli", "acp"), "cliType")
        return await self._launch(provider, request.dir, request.model)

    async def launch_in_worktree(self, request: LaunchInWorktree) -> Launched:
        """Start a CLI or ACP agent in a git worktree, which is created if it does not exist.

        Raises:
            ApiError: as `launch_cli` and `Worktrees.open`. Nothing is left of a new worktree.
        """
        provider = self._provider(request.cli_type, ("cli", "acp"), "cliType")
        return await self._launch(provider, request.dir, request.model, worktree=request.worktree)

    async def launch_ide(self, request: LaunchIde) -> Launched:
        """Start an IDE. Raises as `launch_cli` does."""
        provider = self._provider(request.ide_type, ("ide",), "ideType")
        adapter_state = {} if request.enable_cdp else {CDP: "off"}
        return await self._launch(provider, request.dir, request.model, adapter_state)

    async def resume(self, request: Resume) -> Launched:
        """Continue a session that has ended.

        Raises:
            ApiError: 404, no such session; 400, another type; 409, `NOT_RESUMABLE`, also while it
                is running or being resumed; 500, the agent did not start: it stays ended.
        """
        session_id = request.session_id
        provider = self._provider(request.type, ("cli", "acp", "ide"), "type")
        ended = self._ended.get(session_id)
        running = self._sessions.get(session_id)
        record = ended if running is None else running.record
        if record is None:
            raise not_found(f"This machine has no session {session_id!r}")
        if record.type != request.type:
            raise bad_request(
                f"The session {session_id!r} is of the type {record.type!r}: resume it as that",
                "type",
            )
        if ended is None:
            raise not_resumable("It is running")
        if session_id in self._resuming:
            raise not_resumable("It is being resumed already")
        if ended.worktree is not None and ended.worktree.path == self._removing:
            raise not_resumable("Its worktree is being removed")
        if reason := self._not_resumable(ended) or _not_startable(provider):
            raise not_resumable(reason)
        self._check_room()
        self._resuming.add(session_id)  # before the first await
        try:
            session = await self._start_again(provider, ended)
            del self._ended[session_id]
        except BaseException:
            self._journal.save_session(ended)
            raise
        finally:
            self._resuming.discard(session_id)
        return session.launched()

    async def stop(self, request: StopCli, *, remove_worktree: bool = False) -> Stopped:
        """Stop the session that `request` identifies, and all its processes.

        Args:
            remove_worktree: remove its worktree too; if that is refused, nothing is stopped.

        Raises:
            ApiError: 404, no such session; 409, several match, or the worktree has changes
                (`WORKTREE_DIRTY`) or is used by another session; 400, unknown type, or no worktree.
        """
        if request.cli_type not in self._providers:
            raise self._unknown_type(request.cli_type, "cliType")
        path = None if request.dir is None else str(expanded(request.dir, "dir"))
        requested = None
        if request.session_id is not None or request.target is not None:
            requested = self.find(request)
        candidates = [
            session
            for session in self._sessions.values()
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
        session = candidates[0]
        record = session.record
        if remove_worktree:
            await self._check_removable(record)
            if self._sessions.get(record.id) is not session:
                raise not_found(f"The session {record.id!r} has ended meanwhile")
        end = self._begin_end(session, "stopped", remove_worktree=remove_worktree)
        refusal = await asyncio.shield(end)
        if remove_worktree and not (record.worktree is not None and record.worktree.removed):
            raise refusal or conflict("The session was ending already: its worktree stays")
        return Stopped(stopped=[record.id])

    async def remove_worktree(self, query: RemoveWorktree) -> WorktreeRemoved:
        """Remove the git worktree of a session that has ended.

        Raises:
            ApiError: 404, no such session, or Outrider created no worktree for it, or it is gone;
                409, the session runs, or the worktree has changes (`WORKTREE_DIRTY`), is used by
                another session, or cannot be removed.
        """
        record = self._named_ended(query)
        if record is None:
            raise conflict(
                f"The session {self.find(query).record.id!r} is running: stop it first, which can "
                "remove its worktree too (`removeWorktree`)"
            )
        async with self._worktree_lock:
            worktree = record.worktree
            if worktree is None or not worktree.created or worktree.removed:
                raise not_found(f"The session {record.id!r} has no worktree that can be removed")
            self._removing = worktree.path  # no session is resumed in it from here on
            try:
                if record.id in self._resuming:
                    raise conflict(f"The session {record.id!r} is being resumed: stop it first")
                if not await asyncio.to_thread(os.path.lexists, worktree.path):
                    self._note_removed(worktree.path)
                    raise not_found(f"The worktree {worktree.path} was removed already")
                await self._check_removable(record)
                await self._worktrees.remove(worktree.path)
                self._note_removed(worktree.path)
            finally:
                self._removing = None
        _log.info("worktree removed", session=record.id, path=worktree.path)
        return WorktreeRemoved(removed=worktree.path)

    async def read_chat(self, query: ReadChat) -> Chat:
        """Return the chat of a running session, or of an ended one that `query` names by its id.

        `select_messages` selects the messages.

        Raises:
            ApiError: 404, no such session or agent; 400, the chat has no message with the id
                `after` or `before`.
        """
        try:
            session = self.find(query)
        except ApiError as error:
            record = self._named_ended(query)
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

    async def prune(self) -> None:
        """Delete the ended sessions that are beyond the limits of the history."""
        ends = {
            one.id: one.ended_at or 0
            for one in self._ended.values()
            if one.id not in self._resuming
        }
        for session_id in await asyncio.to_thread(self._chats.excess, ends, self._clock()):
            if session_id in self._resuming:
                continue
            if self._ended.pop(session_id, None) is not None:
                self._journal.remove_session(session_id)
                await asyncio.to_thread(self._chats.delete, session_id)

    def ended(self, session_id: str) -> SessionRecord | None:
        """Return the record of an ended session, None if there is none."""
        return self._ended.get(session_id)

    def find(self, query: NamesSession) -> AgentSession:
        """Return the session that a command addresses; without an address, the latest active one.

        Raises:
            ApiError: 404, no such session; 400, `target` and `session_id` name different ones.
        """
        requested = None if query.session_id is None else self._by_id(query.session_id)
        if query.target is None:
            return requested or self._latest(list(self._sessions.values()), "any agent")
        found = self._by_target(query.target)
        if requested not in (None, found):
            raise bad_request(
                f"The session {query.session_id!r} is not {query.target!r}, which is the session "
                f"{found.record.id!r} now: name one of them. Nothing was done",
                "sessionId",
            )
        return found

    def _by_target(self, text: str) -> AgentSession:
        target = parse_target(text)
        if target is None or target.daemon_id != self._daemon_id:
            raise not_found(f"{text!r} is not a target of this machine")
        if target.kind == "session":
            return self._by_id(target.name)
        found = [
            session
            for session in self._sessions.values()
            if session.record.kind == target.kind
            and target.name in (session.record.type, session.record.name)
        ]
        return self._latest(found, f"{target.kind}:{target.name}")

    async def detach(self) -> None:
        """Stop following the agents and leave them running."""
        if self._ends:
            ends = list(self._ends.values())
            _, unfinished = await asyncio.wait(ends, timeout=_CLOSE_SECONDS)
            for end in unfinished:
                end.cancel()
        await asyncio.gather(*(session.detach() for session in self._sessions.values()))
        self._sessions.clear()

    async def _launch(
        self,
        provider: Provider,
        path: str | None,
        model: str | None,
        adapter_state: dict[str, str] | None = None,
        worktree: NewWorktree | None = None,
    ) -> Launched:
        if reason := _not_startable(provider):
            raise bad_request(reason, "type")
        self._check_room()
        description = provider.describe()
        now = self._clock()
        record = SessionRecord(
            id=new_id("session"),
            kind=description.category,
            type=description.type,
            name=description.display_name,
            path="",  # until it has been looked at
            model=model,
            created_at=now,
            last_activity_at=now,
            emitted_started=False,
            emitted_messages={},
            adapter_state=adapter_state or {},
        )
        self._launching[record.id] = record  # before the first await
        try:
            record.path = await asyncio.to_thread(directory, "~" if path is None else path, "dir")
            adapter = await self._start(provider, record, worktree)
        finally:
            del self._launching[record.id]
        return self._follow(record, adapter).launched()

    def _check_room(self) -> None:
        """Check that one more session may run, besides those that are being started.

        Raises:
            ApiError: 409, too many sessions run.
        """
        running = len(self._sessions) + len(self._resuming) + len(self._launching)
        if running >= self._max_sessions:
            raise conflict(
                f"{self._max_sessions} sessions run on this machine, which is the limit: "
                "stop one first"
            )

    async def _start(
        self, provider: Provider, record: SessionRecord, worktree: NewWorktree | None
    ) -> Adapter:
        """Start the agent of a new session; if that fails, nothing is left of it."""
        made: OpenedWorktree | None = None
        try:
            if worktree is not None:
                made = await self._open_worktree(record, worktree)
            record.real_path = await asyncio.to_thread(os.path.realpath, record.path)
            record.start_commit = await self._workspaces.head(record.path)
            # Saved before the launch: if the daemon is killed during it, the next one finds the
            # agent by this record, or ends what is left of it.
            self._journal.save_session(record)
            return await provider.launch(record)
        except BaseException as error:
            self._journal.remove_session(record.id)
            await asyncio.to_thread(self._chats.delete, record.id)
            if made is not None:
                await self._discard_worktree(record, made)
            if isinstance(error, ApiError):
                raise start_failure(provider.spec, error) from error
            raise

    async def _open_worktree(self, record: SessionRecord, request: NewWorktree) -> OpenedWorktree:
        """Create or find the worktree of a new session, and let the session be in it."""
        async with self._worktree_lock:
            made = await self._worktrees.open(record.path, request)
            record.path = str(made.directory)
            path = str(made.top)
            created = made.is_new or any(worktree.created for worktree in self._worktrees_at(path))
            record.worktree = Worktree(branch=made.branch, path=path, created=created)
        return made

    def _worktrees_at(self, path: str) -> list[Worktree]:
        """Return the worktree with this path as the sessions' records describe it."""
        running = (session.record for session in self._sessions.values())
        records = (*running, *self._launching.values(), *self._ended.values())
        return [
            one.worktree
            for one in records
            if one.worktree is not None and one.worktree.path == path and not one.worktree.removed
        ]

    async def _discard_worktree(self, record: SessionRecord, made: OpenedWorktree) -> None:
        async with self._worktree_lock:
            if self._other_in_worktree(record) is None:
                await self._worktrees.discard(made)

    def _other_in_worktree(self, record: SessionRecord) -> str | None:
        """Return the id of another session in the worktree of this one."""
        assert record.worktree is not None
        top = Path(record.worktree.path)
        running = [session.record for session in self._sessions.values()]
        resuming = [self._ended[one] for one in self._resuming]
        for other in (*running, *resuming, *self._launching.values()):
            if other.id != record.id and Path(other.path).is_relative_to(top):
                return other.id
        return None

    async def _check_removable(self, record: SessionRecord) -> None:
        """Check that a session's worktree can be removed without losing anything.

        Raises:
            ApiError: 400, it has none; 409, it has changes, is used by another session, or
                Outrider did not create it.
        """
        if record.worktree is None:
            raise bad_request(
                f"The session {record.id!r} was launched without a worktree", "removeWorktree"
            )
        if not record.worktree.created:
            raise conflict(
                f"Outrider did not create the worktree {record.worktree.path}, and does not remove "
                f"it: run `git worktree remove {record.worktree.path}` in its repository"
            )
        if (other := self._other_in_worktree(record)) is not None:
            raise conflict(f"The session {other!r} works in this worktree too: stop that one first")
        if (changes := await self._worktrees.changes(record.worktree.path)) is not None:
            raise conflict(
                f"The worktree {record.worktree.path} has {changes}: it is not removed, commit or "
                "discard that first",
                ErrorCode.WORKTREE_DIRTY,
            )

    async def _remove_worktree(self, record: SessionRecord) -> ApiError | None:
        """Remove the worktree of a session whose agent has ended; return why it stays."""
        async with self._worktree_lock:
            try:
                await self._check_removable(record)  # the agent may have written until its end
                assert record.worktree is not None
                await self._worktrees.remove(record.worktree.path)
            except ApiError as error:
                _log.warning("worktree not removed", session=record.id, error=error.message)
                return ApiError(
                    error.status, f"The session was stopped. {error.message}", code=error.code
                )
            record.worktree = msgspec.structs.replace(record.worktree, removed=True)
            self._note_removed(record.worktree.path)
        return None

    def _note_removed(self, path: str) -> None:
        """Note in the ended sessions of a worktree that it was removed."""
        for record in self._ended.values():
            worktree = record.worktree
            if worktree is None or worktree.path != path or worktree.removed:
                continue
            record.worktree = msgspec.structs.replace(worktree, removed=True)
            record.not_resumable = self._not_resumable(record)
            record.resumable = False
            if record.last_state is not None:
                record.last_state = msgspec.structs.replace(
                    record.last_state,
                    worktree=record.worktree,
                    resumable=False,
                    not_resumable=record.not_resumable,
                )
            self._journal.save_session(record)

    async def _start_again(self, provider: Provider, ended: SessionRecord) -> AgentSession:
        if reason := await asyncio.to_thread(why_unusable, ended.path, ended.real_path):
            raise not_resumable(reason)
        record = msgspec.structs.replace(
            ended,
            adapter_state=dict(ended.adapter_state),
            last_activity_at=self._clock(),
            emitted_started=False,
            emitted_error=None,
            emitted_state=None,
            ended_at=None,
            end_reason=None,
            last_state=None,
        )
        # Saved before the start, as for a launch.
        self._journal.save_session(record)
        try:
            adapter = await provider.resume(record)
        except ApiError as error:
            raise start_failure(provider.spec, error) from error
        _log.info("session resumed", session=record.id, type=record.type)
        return self._follow(record, adapter)

    def _follow(self, record: SessionRecord, adapter: Adapter) -> AgentSession:
        session = AgentSession(
            record,
            adapter,
            daemon_id=self._daemon_id,
            journal=self._journal,
            clock=self._clock,
            emit=self._emit,
            deltas=self._deltas,
            tracing=self._tracing,
            on_change=lambda changed: self._on_change(changed.describe()),
            on_gone=self._agent_gone,
        )
        self._journal.save_session(record)
        self._sessions[record.id] = session
        session.start()
        self._on_change(session.describe())
        return session

    # The end

    def _agent_gone(self, session: AgentSession, reason: EndReason) -> None:
        self._begin_end(session, reason)

    def _begin_end(
        self, session: AgentSession, reason: EndReason, *, remove_worktree: bool = False
    ) -> asyncio.Task[ApiError | None]:
        """End a session; return the task of its end, the same one while it is in progress.

        Its result is why the worktree was not removed.
        """
        record = session.record
        end = self._ends.get(record.id)
        if end is None:
            work = self._end(session, record.end_reason or reason, remove_worktree)
            self._ends[record.id] = end = asyncio.create_task(work, name=f"end {record.id}")
            end.add_done_callback(partial(self._end_done, record.id))
        return end

    def _end_done(self, session_id: str, end: asyncio.Task[ApiError | None]) -> None:
        del self._ends[session_id]
        if not end.cancelled() and (error := end.exception()) is not None:
            _log.error("session not ended", session=session_id, exc_info=error)

    async def _end(
        self,
        session: AgentSession,
        reason: EndReason,
        remove_worktree: bool,
    ) -> ApiError | None:
        record = session.record
        record.end_reason = reason
        self._journal.save_session(record)
        try:
            if reason != "stopped":
                await session.finish_act()
            chats = await session.close()
        except Exception:
            record.end_reason = None
            self._journal.save_session(record)
            raise
        if record.type not in chats and record.selected_agent is None and chats:
            record.selected_agent = next(iter(chats))  # of an IDE: the one that was selected
        await self._save_chats(record, chats)
        refusal = await self._remove_worktree(record) if remove_worktree else None
        self._sessions.pop(record.id, None)
        self._save_end(record, session.describe())
        self._on_remove(record.id)
        await self.prune()
        return refusal

    async def _save_chats(self, record: SessionRecord, chats: dict[str, list[Message]]) -> None:
        try:
            await asyncio.to_thread(self._chats.save, record.id, chats, record.type)
        except OSError as error:
            _log.error("chat of an ended session not saved", session=record.id, error=str(error))

    def _end_without_agent(self, record: SessionRecord) -> None:
        """End a session whose agent cannot be reached: its provider was removed."""
        record.end_reason = record.end_reason or "machine_restarted"
        session = Session(
            id=record.id,
            target_id=f"{self._daemon_id}:session:{record.id}",
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

    def _save_end(self, record: SessionRecord, session: Session) -> None:
        """Save that a session has ended, in this last state, and report it."""
        record.ended_at = max(self._clock(), record.last_activity_at)
        record.emitted_ended = False
        record.generating_since = None
        record.not_resumable = self._not_resumable(record)
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
        self._journal.clear_queue(record.id)
        self._journal.save_session(record)
        self._keep_ended(record)
        _log.info("session ended", session=record.id, type=record.type, reason=record.end_reason)

    def _not_resumable(self, record: SessionRecord) -> str | None:
        if record.worktree is not None and record.worktree.removed:
            return "Its worktree was removed"
        provider = self._providers.get(record.type)
        if provider is None:
            return "Its provider file was removed"
        return provider.not_resumable(record)

    def _keep_ended(self, record: SessionRecord) -> None:
        self._ended[record.id] = record
        if record.emitted_ended or record.last_state is None or record.ended_at is None:
            return
        for command in StateEvents(record).end(record.last_state):
            event_id = derived_id("evt", record.ended_at, record.id, command.event)
            self._emit(
                agent_event(
                    command,
                    record,
                    daemon_id=self._daemon_id,
                    event_id=event_id,
                    timestamp=record.ended_at,
                )
            )
        record.emitted_ended = True
        self._journal.save_session(record)

    def _named_ended(self, query: NamesSession) -> SessionRecord | None:
        """Return the ended session that is named by its id."""
        target = None if query.target is None else parse_target(query.target)
        is_by_id = target is not None and target.kind == "session"
        session_id = target.name if target is not None and is_by_id else query.session_id
        if session_id is None or query.session_id not in (None, session_id):
            return None
        if target is not None and (not is_by_id or target.daemon_id != self._daemon_id):
            return None
        return self._ended.get(session_id)

    async def _read_ended(self, record: SessionRecord, query: ReadChat) -> Chat:
        state = record.last_state
        assert state is not None
        agent = query.agent_type
        if agent in (None, record.type, record.name):
            agent = record.selected_agent or record.type
        elif agent not in {one.type for one in state.agents}:
            known = next((one.type for one in state.agents if one.name == agent), None)
            if known is None:
                raise not_found(f"The session had no agent {agent!r}")
            agent = known
        messages = await asyncio.to_thread(self._chats.read, record.id, agent, record.type)
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

    def _provider(self, name: str, categories: tuple[Category, ...], field: str) -> Provider:
        provider = self._providers.get(name)
        if provider is None or provider.describe().category not in categories:
            raise self._unknown_type(name, field, categories)
        return provider

    def _unknown_type(
        self, name: str, field: str, categories: tuple[Category, ...] = ("cli", "acp", "ide")
    ) -> Exception:
        known = ", ".join(
            sorted(
                kind
                for kind, provider in self._providers.items()
                if provider.describe().category in categories
            )
        )
        return bad_request(f"Unknown type {name!r}: this machine knows {known or 'none'}", field)

    def _by_id(self, session_id: str) -> AgentSession:
        session = self._sessions.get(session_id)
        if session is None:
            if session_id in self._ended:
                raise not_found(
                    f"The session {session_id!r} has ended: launch it with `resume`, or a new one"
                )
            raise not_found(f"This machine has no session {session_id!r}")
        return session

    def _latest(self, sessions: list[AgentSession], description: str) -> AgentSession:
        if not sessions:
            raise not_found(f"No session of {description} runs on this machine: launch one first")
        return max(sessions, key=lambda session: session.record.last_activity_at)


def _not_startable(provider: Provider) -> str | None:
    """Return why no agent of this type can be started now, None if one can."""
    description, spec = provider.describe(), provider.spec
    if description.error is not None:
        return (
            f"{description.type!r} cannot be launched on this machine: {description.error}. "
            "Correct the file there, then launch it again"
        )
    if description.installed:
        return None
    return (
        f"{description.display_name} is not installed on this machine. Install it there "
        f"({spec.install}) so that {spec.program!r} is on the daemon's PATH, then launch it again"
    )
