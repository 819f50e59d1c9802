"""Composition root of the machine agent: creates its parts and connects them.

agents (sessions) ── changes, events, refusals ──> outbox ──> link ──> service
service ── commands ──> link ──> router ──> sessions, terminals
service ── viewers ───> link ──> live_terminals ──> windows of agents and named terminals
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from outrider import __version__
from outrider.contract.frames import Snapshot
from outrider.contract.link.outbox import Outbox
from outrider.contract.link.terminals import Open
from outrider.contract.resources import Provider as Description
from outrider.machine.agents.providers import Providers, load_providers
from outrider.machine.commands import command_handlers
from outrider.machine.commands.router import Router
from outrider.machine.facts import describe_machine
from outrider.machine.link.connection import Link
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import epoch_millis
from outrider.machine.sessions.ended_chats import EndedChats, HistoryLimits
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.settings import Connection, DaemonSettings, SettingsError
from outrider.machine.system.refusals import RefusalSink
from outrider.machine.terminals.live import LiveTerminals, OpenableWindow, agent_window
from outrider.machine.terminals.shell import close_left_windows
from outrider.machine.terminals.terminal import Terminals
from outrider.machine.tmux.server import Tmux
from outrider.machine.workspace.worktrees import Worktrees
from outrider.tracing import OFF, Tracing

_CLOSE_SECONDS: Final = 4.0
"""Seconds in which named terminals must end and agents must be detached."""

_TMUX_CLOSE_SECONDS: Final = 2.0

_RELOAD_SECONDS: Final = 3.0
"""Seconds between two checks for changed provider files."""

_PRUNE_SECONDS: Final = 3600.0

_log = structlog.get_logger(__name__)


async def run_daemon(
    settings: DaemonSettings,
    stop: asyncio.Event,
    on_connected: Callable[[list[Description]], None] = lambda _: None,
    *,
    tracing: Tracing = OFF,
) -> None:
    """Run the machine agent until `stop` is set; return at most 10 s after that.

    CLI agents continue in tmux; named terminals and everything in them are killed.

    Args:
        on_connected: called with this machine's providers after each welcome from the service.
        tracing: begins the spans; the caller closes it.

    Raises:
        SettingsError: the machine is not set up, or another machine agent uses these settings.
        LinkRefusedError: the service refuses this machine permanently.
    """
    connection = settings.load_connection()
    with settings.locked():
        journal = _open_journal(settings)
        tmux = Tmux(settings.tmux_socket)
        try:
            agent = _MachineAgent(
                settings, connection, journal, tmux, on_connected=on_connected, tracing=tracing
            )
            await agent.run(stop)
        finally:
            await _bounded(_TMUX_CLOSE_SECONDS, tmux.close())
            journal.close()
            _log.info("machine agent stopped")


class _MachineAgent:
    """The parts of a running machine agent, and how they are connected."""

    def __init__(
        self,
        settings: DaemonSettings,
        connection: Connection,
        journal: Journal,
        tmux: Tmux,
        *,
        on_connected: Callable[[list[Description]], None],
        tracing: Tracing,
    ) -> None:
        self._tmux = tmux
        self._outbox = outbox = Outbox(journal, on_omitted=_log_omitted)
        self._providers = load_providers(
            settings.config_dir,
            tmux=tmux,
            journal=journal,
            note_refusal=RefusalSink(outbox.refused, epoch_millis).note,
        )
        limits = HistoryLimits(
            days=settings.history_days, size=round(settings.history_mb * 1024**2)
        )
        self._sessions = sessions = Sessions(
            daemon_id=connection.daemon_id,
            providers=self._providers,
            journal=journal,
            chats=EndedChats(settings.chats_folder, limits),
            on_change=outbox.session_changed,
            on_remove=outbox.session_removed,
            emit=outbox.event,
            deltas=outbox,
            worktrees=Worktrees(settings.worktrees_dir),
            tracing=tracing,
        )
        self._terminals = Terminals(tmux)
        self._live_terminals = LiveTerminals(tmux, self._window)
        self._router = Router(
            command_handlers(sessions, self._terminals, self._reload), tracing=tracing
        )
        self._link = Link(
            connection,
            outbox=outbox,
            router=self._router,
            snapshot=self._snapshot,
            terminals=self._live_terminals,
            on_connected=lambda: on_connected(sessions.providers()),
        )
        _log.info("machine agent started", version=__version__, tmux=tmux.socket)

    async def run(self, stop: asyncio.Event) -> None:
        """Restore the sessions, and execute the service's commands until `stop` is set.

        Raises:
            LinkRefusedError: the service refuses this machine permanently.
        """
        reloading = asyncio.create_task(
            _repeat(_RELOAD_SECONDS, self._reload, "provider files not reloaded")
        )
        pruning = asyncio.create_task(
            _repeat(_PRUNE_SECONDS, self._sessions.ending.prune, "ended sessions not pruned")
        )
        _log_errors(self._providers)
        try:
            if await _completed(self._restore(), stop):
                await self._link.run(stop)
        finally:
            # The order matters. First nothing may start new work (reloading, commands), then
            # terminals are killed and agents detached. The caller closes the journal after that:
            # the sessions still write to it while they are detached.
            reloading.cancel()
            pruning.cancel()
            await asyncio.wait({reloading, pruning})
            await self._router.close(within=1)
            await _bounded(
                _CLOSE_SECONDS,
                self._live_terminals.close(),
                self._terminals.close(),
                self._sessions.ending.detach(),
            )

    async def _restore(self) -> None:
        """Restore the sessions. If cancelled, those that are missing are left to the next start."""
        await close_left_windows(self._tmux)
        await self._sessions.launcher.restore()

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            machine=describe_machine(),
            providers=self._sessions.providers(),
            sessions=self._sessions.describe(),
        )

    async def _reload(self) -> None:
        """Read provider files that have changed, and report the result to the service."""
        if await self._providers.refresh():
            _log.info("provider files reloaded")
            _log_errors(self._providers)
            await self._sessions.launcher.retry_restore()
            self._outbox.report()

    async def _window(self, request: Open) -> OpenableWindow:
        """Return the window that a viewer asks for."""
        if request.name is not None:
            return OpenableWindow(await self._terminals.window(request.name), is_agent=False)
        return agent_window(self._sessions, request.session_id)


def _open_journal(settings: DaemonSettings) -> Journal:
    try:
        return Journal(settings.journal_file)
    except (sqlite3.Error, OSError) as error:
        raise SettingsError(
            f"The journal {settings.journal_file} cannot be used ({error}): check that the disk "
            "has room and the file is writable; if it is damaged, move it away (its sessions "
            "are lost then)"
        ) from error


def _log_omitted(session_id: str) -> None:
    _log.error("session not reported, report limit reached", session=session_id)


def _log_errors(providers: Providers) -> None:
    for kind, error in providers.errors.items():
        _log.error("provider file rejected", type=kind, error=error)


async def _repeat(seconds: float, work: Callable[[], Awaitable[None]], failure: str) -> None:
    """Do `work` every `seconds`; log its failures."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:  # noqa: BLE001  # a file is being edited, the disk is full: try again
            _log.exception(failure)


async def _completed(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do `work`, but cancel it when `stop` is set; return whether it was completed."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait({working, stopping})
    if working.cancelled():
        return False
    working.result()
    return True


async def _bounded(seconds: float, *work: Coroutine[Any, Any, None]) -> None:
    """Run all of `work` concurrently; cancel what is not finished after `seconds`."""
    tasks = [asyncio.create_task(part) for part in work]
    done, unfinished = await asyncio.wait(tasks, timeout=seconds)
    for task in unfinished:
        _log.error("shutdown step timed out", work=str(task.get_coro()))
        task.cancel()
    if unfinished:
        await asyncio.wait(unfinished, timeout=0.5)
    for task in done:
        task.result()
