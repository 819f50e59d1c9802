"""The machine agent's composition root: the one place where its parts are made and joined."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from outrider import __version__
from outrider.contract.frames import Snapshot
from outrider.daemon.agents.cli.tmux import Tmux
from outrider.daemon.agents.providers import Providers, load_providers
from outrider.daemon.agents.sessions import Sessions, epoch_millis
from outrider.daemon.handlers import handlers
from outrider.daemon.journal import Journal
from outrider.daemon.link import Link
from outrider.daemon.machine import describe_machine
from outrider.daemon.outgoing import Outgoing
from outrider.daemon.refusals import RefusalSink
from outrider.daemon.router import Router
from outrider.daemon.settings import DaemonSettings, SettingsError
from outrider.daemon.terminal import Terminals

_CLOSE_SECONDS: Final = 4.0
"""What the named terminals and the agents have to end, or to be let go."""

_TMUX_CLOSE_SECONDS: Final = 2.0

_PROVIDERS_SECONDS: Final = 3.0
"""Seconds between two looks whether provider files have changed: 0.5 ms of work each."""

_log = structlog.get_logger(__name__)


async def run_daemon(
    settings: DaemonSettings,
    stop: asyncio.Event,
    on_connected: Callable[[], None] = lambda: None,
) -> None:
    """Be this machine's agent until `stop` is set; return within 10 s of it, mostly at once.

    CLI agents go on in tmux; named terminals and what runs in them are ended.
    `on_connected` is called whenever the service has welcomed this machine.

    Raises:
        SettingsError: the machine is not set up, or another agent runs with these settings.
        LinkRefusedError: the service refuses this machine permanently.
    """
    connection = settings.load_connection()
    with settings.locked():
        journal = _open_journal(settings)
        tmux = Tmux(settings.tmux_socket)
        try:
            outgoing = Outgoing(journal)
            providers = load_providers(
                settings.config_dir,
                tmux=tmux,
                journal=journal,
                note_refusal=RefusalSink(outgoing.refused, epoch_millis).note,
            )
            sessions = Sessions(
                daemon_id=connection.daemon_id,
                providers=providers,
                journal=journal,
                on_change=outgoing.session_changed,
                on_remove=outgoing.session_removed,
                emit=outgoing.event,
            )
            terminals = Terminals()

            def snapshot() -> Snapshot:
                return Snapshot(
                    machine=describe_machine(),
                    providers=sessions.providers(),
                    sessions=sessions.describe(),
                )

            async def reload() -> None:
                """Read provider files that have changed, and tell the service what follows."""
                if await providers.refresh():
                    _log.info("provider files read again")
                    _log_errors(providers)
                    await sessions.restore_rest()
                    outgoing.snapshot(snapshot)

            router = Router(handlers(sessions, terminals, reload))
            link = Link(
                connection,
                outgoing=outgoing,
                router=router,
                snapshot=snapshot,
                on_connected=on_connected,
            )
            _log.info("machine agent starts", version=__version__, tmux=settings.tmux_socket)
            watching = asyncio.create_task(_repeat(reload), name="provider files")
            _log_errors(providers)
            try:
                await sessions.restore()
                await link.run(stop)
            finally:
                watching.cancel()
                await asyncio.wait({watching})
                await router.close(within=1)
                await _bounded(_CLOSE_SECONDS, terminals.close(), sessions.detach())
        finally:
            await _bounded(_TMUX_CLOSE_SECONDS, tmux.close())
            journal.close()
            _log.info("machine agent stopped")


def _open_journal(settings: DaemonSettings) -> Journal:
    try:
        return Journal(settings.journal_file)
    except (sqlite3.Error, OSError) as error:
        raise SettingsError(
            f"The journal {settings.journal_file} cannot be used ({error}): check that the disk "
            "has room and the file is writable; if it is damaged, move it away (its sessions "
            "are forgotten then)"
        ) from error


def _log_errors(providers: Providers) -> None:
    for kind, error in providers.errors.items():
        _log.error("provider file rejected", type=kind, error=error)


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` from time to time, also after it has failed."""
    while True:
        await asyncio.sleep(_PROVIDERS_SECONDS)
        try:
            await work()
        except Exception:  # noqa: BLE001  # the next look may find the files in order
            _log.exception("provider files not read")


async def _bounded(seconds: float, *work: Coroutine[Any, Any, None]) -> None:
    """Do all of `work` side by side; cut short what is not done after `seconds`."""
    tasks = [asyncio.create_task(part) for part in work]
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        _log.error("stopping took too long", work=str(task.get_coro()))
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=0.5)
    for task in done:
        task.result()
