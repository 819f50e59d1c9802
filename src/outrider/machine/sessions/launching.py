"""Launching and resuming sessions, and restoring them after a restart of the daemon.

A session's record is saved before its agent is started: if the daemon is killed in between, the
next one finds the agent by this record, or ends what is left of it.
"""

import asyncio
import os
from collections.abc import Callable

import msgspec
import structlog

from outrider.contract.commands import (
    LaunchCli,
    Launched,
    LaunchIde,
    LaunchInWorktree,
    NewWorktree,
    Resume,
)
from outrider.contract.errors import ApiError, bad_request
from outrider.contract.ids import new_id
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.failure import not_resumable, start_failure
from outrider.machine.agents.provider import Provider
from outrider.machine.agents.provider_spec import CDP
from outrider.machine.sessions.ending import Ending
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.registry import Registry, no_session
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.session_worktrees import SessionWorktrees
from outrider.machine.system.directories import directory, why_unusable
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import OpenedWorktree

_log = structlog.get_logger(__name__)


class Launcher:
    """Starts the agents of sessions.

    Args:
        follow: starts to follow the agent of a record, and adds the session to the registry.
    """

    def __init__(
        self,
        registry: Registry,
        ending: Ending,
        worktrees: SessionWorktrees,
        workspaces: Workspaces,
        follow: Callable[[SessionRecord, Adapter], AgentSession],
    ) -> None:
        self._registry = registry
        self._ending = ending
        self._worktrees = worktrees
        self._workspaces = workspaces
        self._follow = follow
        self._pending: dict[str, SessionRecord] = {}  # to be restored once their files are valid

    # Restoring

    async def restore(self) -> None:
        """Restore the sessions that were running before this daemon started.

        Sessions whose provider file is invalid stay pending until `retry_restore`. Those whose
        agents are gone have ended when this returns.
        """
        for record in self._registry.journal.sessions():
            if record.ended_at is not None:
                self._ending.add_ended(record)
            elif self._registry.provider(record.type) is not None:
                self._pending[record.id] = record
            else:
                _log.warning("session ended: its provider was removed", session=record.id)
                self._ending.end_without_agent(record)
        await self.retry_restore()
        await self._ending.wait_for_ends()
        await self._ending.prune()
        for record in self._pending.values():
            _log.error("session not restored: its provider file is invalid", session=record.id)

    async def retry_restore(self) -> None:
        """Restore the pending sessions whose provider file has been corrected since."""
        for record in list(self._pending.values()):
            provider = self._registry.provider(record.type)
            if provider is None or provider.describe().error is not None:
                continue
            if self._pending.pop(record.id, None) is None:
                continue  # a concurrent call restores it: each record is popped before any await
            try:
                session = self._follow(record, await provider.restore(record))
                if record.end_reason is not None:  # an earlier daemon was killed while it ended it
                    self._ending.begin(session, record.end_reason)
            except Exception:  # noqa: BLE001  # one record must not keep the others from restoring
                _log.exception("session not restored", session=record.id, type=record.type)

    # Launching

    async def launch_cli(self, request: LaunchCli) -> Launched:
        """Start a CLI or ACP agent.

        Raises:
            ApiError: 400, unknown or not installed type, or no such directory.
        """
        return await self._launch_cli(request, None)

    async def launch_in_worktree(self, request: LaunchInWorktree) -> Launched:
        """Start a CLI or ACP agent in a git worktree, which is created if it does not exist.

        Raises:
            ApiError: as `launch_cli` and `Worktrees.open`. Nothing is left of a new worktree.
        """
        return await self._launch_cli(request, request.worktree)

    async def launch_ide(self, request: LaunchIde) -> Launched:
        """Start an IDE. Raises as `launch_cli` does."""
        provider = self._registry.require_provider(request.ide_type, "ideType", ("ide",))
        adapter_state = {} if request.enable_cdp else {CDP: "off"}
        return await self._launch(provider, request.dir, request.model, adapter_state)

    async def _launch_cli(self, request: LaunchCli, worktree: NewWorktree | None) -> Launched:
        provider = self._registry.require_provider(request.cli_type, "cliType", ("cli", "acp"))
        return await self._launch(provider, request.dir, request.model, {}, worktree)

    async def _launch(
        self,
        provider: Provider,
        path: str | None,
        model: str | None,
        adapter_state: dict[str, str],
        worktree: NewWorktree | None = None,
    ) -> Launched:
        if reason := _not_startable(provider):
            raise bad_request(reason, "type")
        self._registry.check_room()
        description, now = provider.describe(), self._registry.clock()
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
            adapter_state=adapter_state,
        )
        self._registry.launching[record.id] = record  # before the first await
        try:
            record.path = await asyncio.to_thread(directory, "~" if path is None else path, "dir")
            adapter = await self._start(provider, record, worktree)
        finally:
            del self._registry.launching[record.id]
        return self._follow(record, adapter).launched()

    async def _start(
        self, provider: Provider, record: SessionRecord, worktree: NewWorktree | None
    ) -> Adapter:
        """Start the agent of a new session; if that fails, nothing is left of it."""
        opened: OpenedWorktree | None = None
        try:
            if worktree is not None:
                opened = await self._worktrees.open(record, worktree)
            record.real_path = await asyncio.to_thread(os.path.realpath, record.path)
            record.start_commit = await self._workspaces.head(record.path)
            self._registry.journal.save_session(record)
            return await provider.launch(record)
        except BaseException as error:
            # Also of a cancellation: a daemon that stops must not leave half a session behind.
            self._registry.journal.remove_session(record.id)
            await asyncio.to_thread(self._registry.chats.delete, record.id)
            if opened is not None:
                await self._worktrees.discard(record, opened)
            if isinstance(error, ApiError):
                raise start_failure(provider.spec, error) from error
            raise

    # Resuming

    async def resume(self, request: Resume) -> Launched:
        """Continue a session that has ended.

        Raises:
            ApiError: 404, no such session; 400, another type; 409, `NOT_RESUMABLE`, also while it
                is running or being resumed; 500, the agent did not start: it stays ended.
        """
        session_id, registry = request.session_id, self._registry
        provider = registry.require_provider(request.type, "type")
        ended, running = registry.ended.get(session_id), registry.running.get(session_id)
        record = ended if running is None else running.record
        if record is None:
            raise no_session(session_id)
        if record.type != request.type:
            raise bad_request(
                f"The session {session_id!r} is of the type {record.type!r}: resume it as that",
                "type",
            )
        if ended is None:
            raise not_resumable("It is running")
        if session_id in registry.resuming:
            raise not_resumable("It is being resumed already")
        if ended.worktree is not None and ended.worktree.path == self._worktrees.removing:
            raise not_resumable("Its worktree is being removed")
        if reason := registry.why_not_resumable(ended) or _not_startable(provider):
            raise not_resumable(reason)
        registry.check_room()
        registry.resuming.add(session_id)  # before the first await
        try:
            session = await self._start_again(provider, ended)
            del registry.ended[session_id]
        except BaseException:
            # `_start_again` has saved the record of a running session under the same id.
            self._registry.journal.save_session(ended)
            raise
        finally:
            registry.resuming.discard(session_id)
        return session.launched()

    async def _start_again(self, provider: Provider, ended: SessionRecord) -> AgentSession:
        if reason := await asyncio.to_thread(why_unusable, ended.path, ended.real_path):
            raise not_resumable(reason)
        record = msgspec.structs.replace(
            ended,
            adapter_state=dict(ended.adapter_state),
            last_activity_at=self._registry.clock(),
            emitted_started=False,
            emitted_error=None,
            emitted_state=None,
            ended_at=None,
            end_reason=None,
            last_state=None,
        )
        self._registry.journal.save_session(record)
        try:
            adapter = await provider.resume(record)
        except ApiError as error:
            raise start_failure(provider.spec, error) from error
        _log.info("session resumed", session=record.id, type=record.type)
        return self._follow(record, adapter)


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
