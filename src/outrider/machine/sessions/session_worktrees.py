"""The git worktrees of sessions: who works in which, and when one may be removed."""

import asyncio
import os

import msgspec
import structlog

from outrider.contract.commands import NewWorktree, RemoveWorktree, WorktreeRemoved
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.resources import Worktree
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.registry import Registry
from outrider.machine.workspace.worktrees import OpenedWorktree, Worktrees

_log = structlog.get_logger(__name__)


class SessionWorktrees:
    """Opens and removes the worktrees of sessions, one at a time.

    Attributes:
        removing: the path of the worktree of an ended session that is being removed: no session
            may be resumed in it.
    """

    def __init__(self, registry: Registry, worktrees: Worktrees) -> None:
        self._registry = registry
        self._worktrees = worktrees
        self._lock = asyncio.Lock()  # held while a worktree, and whose it is, may change
        self.removing: str | None = None

    async def open(self, record: SessionRecord, request: NewWorktree) -> OpenedWorktree:
        """Create or find the worktree of a new session, and let the session be in it.

        Raises:
            ApiError: as `Worktrees.open`.
        """
        async with self._lock:
            opened = await self._worktrees.open(record.path, request)
            record.path, path = str(opened.directory), str(opened.top)
            is_ours = opened.is_new or any(
                worktree.created for worktree in self._registry.worktrees_at(path)
            )
            record.worktree = Worktree(branch=opened.branch, path=path, created=is_ours)
        return opened

    async def discard(self, record: SessionRecord, opened: OpenedWorktree) -> None:
        """Undo `open` for a session that was not launched, unless others are in the worktree."""
        assert record.worktree is not None
        async with self._lock:
            if self._registry.other_in(record.worktree, record) is None:
                await self._worktrees.discard(opened)

    async def check_removable(self, record: SessionRecord) -> Worktree:
        """Return a session's worktree if it can be removed without losing anything.

        Raises:
            ApiError: 400, it has none; 409, it has changes, is used by another session, or
                Outrider did not create it.
        """
        worktree = record.worktree
        if worktree is None:
            raise bad_request(
                f"The session {record.id!r} was launched without a worktree", "removeWorktree"
            )
        if not worktree.created:
            raise conflict(
                f"Outrider did not create the worktree {worktree.path}, and does not remove it: "
                f"run `git worktree remove {worktree.path}` in its repository"
            )
        if (other := self._registry.other_in(worktree, record)) is not None:
            raise conflict(f"The session {other!r} works in this worktree too: stop that one first")
        if (changes := await self._worktrees.changes(worktree.path)) is not None:
            raise conflict(
                f"The worktree {worktree.path} has {changes}: it is not removed, commit or "
                "discard that first",
                ErrorCode.WORKTREE_DIRTY,
            )
        return worktree

    async def remove(self, query: RemoveWorktree) -> WorktreeRemoved:
        """Remove the git worktree of a session that has ended.

        Raises:
            ApiError: 404, no such session, or Outrider created no worktree for it, or it is gone;
                409, the session runs, or the worktree has changes (`WORKTREE_DIRTY`), is used by
                another session, or cannot be removed.
        """
        record = self._registry.find_ended(query)
        if record is None:
            session_id = self._registry.find(query).record.id
            raise conflict(
                f"The session {session_id!r} is running: stop it first, which can remove its "
                "worktree too (`removeWorktree`; `outrider stop --remove-worktree`)"
            )
        async with self._lock:
            worktree = record.worktree
            if worktree is None or not worktree.created or worktree.removed:
                raise not_found(f"The session {record.id!r} has no worktree that can be removed")
            self.removing = worktree.path
            try:
                if record.id in self._registry.resuming:
                    raise conflict(f"The session {record.id!r} is being resumed: stop it first")
                if not await asyncio.to_thread(os.path.lexists, worktree.path):
                    self._record_removed(worktree.path)
                    raise not_found(f"The worktree {worktree.path} was removed already")
                await self.check_removable(record)
                await self._worktrees.remove(worktree.path)
                self._record_removed(worktree.path)
            finally:
                self.removing = None
        _log.info("worktree removed", session=record.id, path=worktree.path)
        return WorktreeRemoved(removed=worktree.path)

    async def remove_at_end(self, record: SessionRecord) -> ApiError | None:
        """Remove the worktree of a session whose agent has ended; return why it stays."""
        async with self._lock:
            try:
                # Checked again: the agent may have written until its end.
                worktree = await self.check_removable(record)
                await self._worktrees.remove(worktree.path)
            except ApiError as error:
                _log.warning("worktree not removed", session=record.id, error=error.message)
                return ApiError(
                    error.status, f"The session was stopped. {error.message}", code=error.code
                )
            record.worktree = msgspec.structs.replace(worktree, removed=True)
            self._record_removed(worktree.path)
        return None

    def _record_removed(self, path: str) -> None:
        """Record in the ended sessions of a worktree that it was removed."""
        for record in self._registry.ended.values():
            worktree = record.worktree
            if worktree is None or worktree.path != path or worktree.removed:
                continue
            record.worktree = msgspec.structs.replace(worktree, removed=True)
            record.not_resumable = self._registry.why_not_resumable(record)
            record.resumable = False
            if record.last_state is not None:
                record.last_state = msgspec.structs.replace(
                    record.last_state,
                    worktree=record.worktree,
                    resumable=False,
                    not_resumable=record.not_resumable,
                )
            self._registry.journal.save_session(record)
