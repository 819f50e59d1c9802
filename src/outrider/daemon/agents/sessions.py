"""All sessions of this machine: launch, find and stop them, and restore them after a restart."""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from outrider.contract.commands import (
    LaunchCli,
    Launched,
    LaunchIde,
    NamesSession,
    StopCli,
    Stopped,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict, not_found
from outrider.contract.events import AgentEvent
from outrider.contract.ids import new_id
from outrider.contract.limits import MAX_SESSIONS
from outrider.contract.providers import Category
from outrider.contract.resources import Provider as Description
from outrider.contract.resources import Session
from outrider.contract.targets import parse_target
from outrider.daemon.agents.adapter import Adapter
from outrider.daemon.agents.deltas import DeltaSink
from outrider.daemon.agents.failure import start_failure
from outrider.daemon.agents.provider import Provider
from outrider.daemon.agents.provider_spec import CDP
from outrider.daemon.agents.session import AgentSession, Clock
from outrider.daemon.directories import directory, expanded
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

_log = structlog.get_logger(__name__)


def epoch_millis() -> int:
    """Return the time now in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Sessions:
    """The agents that run on this machine.

    Args:
        daemon_id: this machine, for target ids.
        providers: the known providers by type.
        on_change: called with each session that is new or has changed.
        on_remove: called with the id of each session that was removed.
        emit: called with each agent event, in order.
        deltas: takes the text of messages while they are written; None: nobody wants it.
    """

    def __init__(
        self,
        *,
        daemon_id: str,
        providers: Mapping[str, Provider],
        journal: Journal,
        on_change: Callable[[Session], None],
        on_remove: Callable[[str], None],
        emit: Callable[[AgentEvent], None],
        clock: Clock = epoch_millis,
        deltas: DeltaSink | None = None,
    ) -> None:
        self._deltas = deltas
        self._daemon_id = daemon_id
        self._providers = providers
        self._journal = journal
        self._on_change = on_change
        self._on_remove = on_remove
        self._emit = emit
        self._clock = clock
        self._sessions: dict[str, AgentSession] = {}
        self._pending_records: dict[str, SessionRecord] = {}

    def describe(self) -> list[Session]:
        """Return every session, oldest first."""
        return [session.describe() for session in self._sessions.values()]

    def providers(self) -> list[Description]:
        """Return every known provider."""
        return [provider.describe() for provider in self._providers.values()]

    async def restore(self) -> None:
        """Restore the sessions that were running before this daemon started.

        Sessions whose provider file is invalid stay pending until `retry_restore`.
        """
        for record in self._journal.sessions():
            if record.type in self._providers:
                self._pending_records[record.id] = record
            else:
                _log.warning("session dropped: its provider was removed", session=record.id)
                self._journal.remove_session(record.id)
        await self.retry_restore()
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
                self._follow(record, await provider.restore(record))
            except Exception:  # noqa: BLE001  # one record must not keep the others from restoring
                _log.exception("session not restored", session=record.id, type=record.type)

    async def launch_cli(self, request: LaunchCli) -> Launched:
        """Start a CLI or ACP agent.

        Raises:
            ApiError: 400, unknown or not installed type, or no such directory.
        """
        provider = self._provider(request.cli_type, ("cli", "acp"), "cliType")
        return await self._launch(provider, request.dir, request.model)

    async def launch_ide(self, request: LaunchIde) -> Launched:
        """Start an IDE. Raises as `launch_cli` does."""
        provider = self._provider(request.ide_type, ("ide",), "ideType")
        adapter_state = {} if request.enable_cdp else {CDP: "off"}
        return await self._launch(provider, request.dir, request.model, adapter_state)

    async def stop(self, request: StopCli) -> Stopped:
        """Stop the session that `request` identifies, and all its processes.

        Raises:
            ApiError: 404, no such session; 409, several match; 400, unknown type.
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
        await session.close()
        session.report_end()
        self._sessions.pop(session.record.id, None)
        self._journal.remove_session(session.record.id)
        self._on_remove(session.record.id)
        return Stopped(stopped=[session.record.id])

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
        await asyncio.gather(*(session.detach() for session in self._sessions.values()))
        self._sessions.clear()

    async def _launch(
        self,
        provider: Provider,
        path: str | None,
        model: str | None,
        adapter_state: dict[str, str] | None = None,
    ) -> Launched:
        description = provider.describe()
        if description.error is not None:
            raise bad_request(
                f"{description.type!r} cannot be launched on this machine: {description.error}. "
                "Correct the file there, then launch it again",
                "type",
            )
        if not description.installed:
            raise bad_request(
                f"{description.display_name} is not installed on this machine. Install it there "
                f"({provider.spec.install}) so that {provider.spec.command[0]!r} is on the "
                "daemon's PATH, then launch it again",
                "type",
            )
        if len(self._sessions) >= MAX_SESSIONS:
            raise conflict(
                f"{MAX_SESSIONS} sessions run on this machine, as many as may: stop one first"
            )
        now = self._clock()
        record = SessionRecord(
            id=new_id("session"),
            kind=description.category,
            type=description.type,
            name=description.display_name,
            path=await asyncio.to_thread(directory, "~" if path is None else path, "dir"),
            model=model,
            created_at=now,
            last_activity_at=now,
            emitted_started=False,
            emitted_messages={},
            adapter_state=adapter_state or {},
        )
        # Saved before the launch: if the daemon is killed during it, the next one finds the
        # agent by this record, or ends what is left of it.
        self._journal.save_session(record)
        try:
            adapter = await provider.launch(record)
        except BaseException as error:
            self._journal.remove_session(record.id)
            if isinstance(error, ApiError):
                raise start_failure(provider.spec, error) from error
            raise
        return self._follow(record, adapter).launched()

    def _follow(self, record: SessionRecord, adapter: Adapter) -> AgentSession:
        session = AgentSession(
            record,
            adapter,
            daemon_id=self._daemon_id,
            journal=self._journal,
            clock=self._clock,
            emit=self._emit,
            deltas=self._deltas,
            on_change=lambda changed: self._on_change(changed.describe()),
        )
        self._journal.save_session(record)
        self._sessions[record.id] = session
        session.start()
        self._on_change(session.describe())
        return session

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
            raise not_found(f"This machine has no session {session_id!r}")
        return session

    def _latest(self, sessions: list[AgentSession], description: str) -> AgentSession:
        if not sessions:
            raise not_found(f"No session of {description} runs on this machine: launch one first")
        return max(sessions, key=lambda session: session.record.last_activity_at)
