"""What a person who writes a provider file asks: what is there, does it start, why this status.

Nothing here needs the daemon, and nothing disturbs one that runs.
"""

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, Final

from outrider.contract.errors import ApiError, OutriderError
from outrider.contract.ids import new_id
from outrider.contract.resources import PendingAction
from outrider.contract.resources import Provider as Description
from outrider.daemon.agents.adapter import Observation
from outrider.daemon.agents.cli.agent import CliAgent
from outrider.daemon.agents.cli.provider import CliProvider
from outrider.daemon.agents.cli.tmux import Tmux
from outrider.daemon.agents.failure import start_failure
from outrider.daemon.agents.provider import Provider
from outrider.daemon.agents.providers import load_providers
from outrider.daemon.agents.sessions import epoch_millis
from outrider.daemon.child import start
from outrider.daemon.journal import Journal, recorded_sessions
from outrider.daemon.session_record import SessionRecord
from outrider.daemon.settings import DaemonSettings

VERSION_TIMEOUT: Final = 20.0
SETTLE_TIMEOUT: Final = 3.0


class InspectionError(OutriderError):
    """What was asked about is not there."""


@dataclass(frozen=True)
class Known:
    """A provider that this machine knows, and the file that describes it (or changes it last).

    `install` says how to install it.
    """

    description: Description
    install: str
    file: Path


@dataclass(frozen=True)
class Start:
    """How an agent started: what it was then seen to do, why, and after how many seconds.

    `failure` says why it did not start; there is no more to tell then.
    """

    seconds: float
    failure: str | None = None
    status: str | None = None
    rule: str | None = None
    pending: PendingAction | None = None
    title: str = ""
    screen: str = ""


@dataclass(frozen=True)
class Look:
    """What a running agent shows, its status, and what that was judged from.

    `rule` is the one that fits the screen and `screen_status` what it says; `record_activity`
    is what the agent's own record says, None where it has none or that is mute.
    """

    type: str
    status: str
    rule: str | None
    screen_status: str | None
    record_activity: str | None
    error: str | None
    pending: PendingAction | None
    title: str
    screen: str


def known_providers(settings: DaemonSettings) -> list[Known]:
    """Return every provider that this machine knows, by type; also those whose file is wrong."""
    with _Bench(settings, "outrider") as bench:
        return [
            Known(provider.describe(), provider.spec.install, bench.providers.path(kind))
            for kind, provider in sorted(bench.providers.items())
        ]


async def version(path: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the first line with a digit that the program says of its version, None without one."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        try:
            process = await start(
                [path, "--version"], cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT
            )
        except OSError:
            return None
        try:
            said = await asyncio.wait_for(process.output(), VERSION_TIMEOUT)
        except TimeoutError:
            return None
        finally:
            await process.group.end(0.5)
            process.close()
    lines = said.decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in lines if any(map(str.isdigit, line))), None)


async def try_start(settings: DaemonSettings, kind: str) -> Start:
    """Start an agent of this type in an empty directory, look until it is ready or asks, end it.

    It runs as the daemon would run it from this shell, in a tmux server of its own.

    Raises:
        InspectionError: there is no such type, or its provider file is wrong.
    """
    with (
        _Bench(settings, f"outrider-check-{uuid.uuid4().hex[:8]}") as bench,
        tempfile.TemporaryDirectory(prefix="outrider-check-", ignore_cleanup_errors=True) as folder,
    ):
        provider = bench.provider(kind)
        try:
            return await _start(provider, folder)
        finally:
            await bench.tmux.close()
            _socket(bench.tmux).unlink(missing_ok=True)  # tmux leaves it behind


async def _start(provider: Provider, folder: str) -> Start:
    began = time.monotonic()
    try:
        adapter = await provider.launch(_record(provider.describe(), folder))
    except ApiError as error:
        return Start(time.monotonic() - began, failure=start_failure(provider.spec, error).message)
    try:
        seconds = time.monotonic() - began
        told: list[Observation] = []
        adapter.observe(lambda _, seen: told.append(seen))  # begins with the present state
        evidence, seen = adapter.evidence(), told[0]
        return Start(
            seconds,
            failure=seen.error,
            status=seen.status,
            rule=_text(evidence, "rule"),
            pending=seen.pending,
            title=(_text(evidence, "title") or "").strip(),
            screen=_text(evidence, "screen") or "",
        )
    finally:
        await adapter.close()


async def look_at(settings: DaemonSettings, session_id: str) -> Look:
    """Look at a running agent in its terminal, and judge what it shows.

    Raises:
        InspectionError: no such session, or it has no terminal.
    """
    record = _recorded(settings, session_id)
    with _Bench(settings, settings.tmux_socket) as bench:
        try:
            provider = bench.provider(record.type)
            if not isinstance(provider, CliProvider):
                raise InspectionError(f"{record.name} does not run in a terminal")
            if await bench.tmux.find(record.id) is None:
                raise InspectionError(f"The terminal of {record.id} is gone: stop the session")
            adapter = await provider.restore(record)
            assert isinstance(adapter, CliAgent)
            seen = await _settled(adapter)
            evidence = adapter.evidence()
            await adapter.detach()
        finally:
            await bench.tmux.close()
    return Look(
        type=record.type,
        status=seen.status,
        rule=_text(evidence, "rule"),
        screen_status=_text(evidence, "screenStatus"),
        record_activity=_text(evidence, "recordActivity"),
        error=seen.error,
        pending=seen.pending,
        title=(_text(evidence, "title") or "").strip(),
        screen=_text(evidence, "screen") or "",
    )


class _Bench:
    """The machine's providers over a journal of their own, so that the daemon's is left alone."""

    def __init__(self, settings: DaemonSettings, socket: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="outrider-")
        folder = Path(self._folder.name)
        self._journal = Journal(folder / "journal.db")
        self.tmux = Tmux(socket)
        self.providers = load_providers(
            folder,
            tmux=self.tmux,
            journal=self._journal,
            note_refusal=lambda *_: None,
            own=settings.config_dir / "providers",
        )

    def __enter__(self) -> "_Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        self._folder.cleanup()

    def provider(self, kind: str) -> Provider:
        provider = self.providers.get(kind)
        if provider is None:
            known = ", ".join(sorted(self.providers))
            raise InspectionError(f"Unknown type {kind!r}: this machine knows {known}")
        error = provider.describe().error
        if error is not None:
            raise InspectionError(error)
        return provider


def _socket(tmux: Tmux) -> Path:
    """Return where a tmux server has its socket."""
    return Path(os.environ.get("TMUX_TMPDIR", "/tmp")) / f"tmux-{os.getuid()}" / tmux.socket  # noqa: S108


def _record(described: Description, folder: str) -> SessionRecord:
    now = epoch_millis()
    return SessionRecord(
        id=new_id("session"),
        kind=described.category,
        type=described.type,
        name=described.display_name,
        path=folder,
        model=None,
        created_at=now,
        last_activity_at=now,
    )


def _recorded(settings: DaemonSettings, session_id: str) -> SessionRecord:
    """Return the session with this id, or target id, from the daemon's journal."""
    records = recorded_sessions(settings.journal_file)
    wanted = session_id.rpartition(":")[2]
    for record in records:
        if record.id == wanted:
            return record
    known = ", ".join(f"{record.id} ({record.type})" for record in records)
    raise InspectionError(f"This machine has no session {session_id!r}; it has {known or 'none'}")


async def _settled(adapter: CliAgent) -> Observation:
    """Look until screen and record agree, for a while."""
    deadline = time.monotonic() + SETTLE_TIMEOUT
    seen = await adapter.look()
    while not adapter.evidence()["settled"] and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        seen = await adapter.look()
    return seen


def _text(evidence: Mapping[str, Any], name: str) -> str | None:
    value = evidence.get(name)
    return value if isinstance(value, str) else None
