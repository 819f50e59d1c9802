"""Inspection for authors of provider files: list providers, try a start, explain a status.

Used by `outrider providers`. It neither needs a running daemon nor interferes with one: it uses
its own journal, and its own tmux server to start agents.
"""

import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import STDOUT
from typing import Any, Final, Literal

from outrider.contract.errors import ApiError, OutriderError
from outrider.contract.ids import new_id
from outrider.contract.resources import Provider as Description
from outrider.machine.agents.acp.connection import TRACE
from outrider.machine.agents.adapter import Observation
from outrider.machine.agents.cli.agent import CliAgent
from outrider.machine.agents.cli.provider import CliProvider
from outrider.machine.agents.failure import start_failure
from outrider.machine.agents.provider import Provider
from outrider.machine.agents.providers import load_providers
from outrider.machine.link.journal import Journal, recorded_sessions
from outrider.machine.redaction.redactor import Redactor
from outrider.machine.sessions.clock import epoch_millis
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.settings import DaemonSettings
from outrider.machine.system.child import run
from outrider.machine.tmux.server import Tmux, socket_path

MAX_MESSAGES: Final = 200
MAX_MESSAGE: Final = 16_384
"""Messages of the Agent Client Protocol that are shown, and bytes of each."""

VERSION_TIMEOUT: Final = 20.0
SETTLE_TIMEOUT: Final = 3.0


class InspectionError(OutriderError):
    """The provider or session to inspect does not exist or cannot be inspected."""


@dataclass(frozen=True)
class ProviderInfo:
    """A known provider and the last file that describes it.

    `install` says how to install it. With the arguments `login_check` its program succeeds if it
    is logged in; None if there is no such command.
    """

    description: Description
    install: str
    file: Path
    login_check: list[str] | None = None


@dataclass(frozen=True)
class AgentReport:
    """The screen and the status of an agent, and what the status was derived from.

    `rule` is the rule that matches the screen and `screen_status` its status; `record_activity`
    is the state by the agent's transcript, None if it has none or the transcript does not show it.
    """

    type: str
    observation: Observation
    rule: str | None
    screen_status: str | None
    record_activity: str | None
    title: str
    screen: str

    @classmethod
    def of(cls, kind: str, observation: Observation, evidence: Mapping[str, Any]) -> "AgentReport":
        """Return the report of an agent by the evidence of its adapter."""
        return cls(
            type=kind,
            observation=observation,
            rule=evidence.get("rule"),
            screen_status=evidence.get("screenStatus"),
            record_activity=evidence.get("recordActivity"),
            title=(evidence.get("title") or "").strip(),
            screen=evidence.get("screen") or "",
        )


@dataclass(frozen=True)
class StartResult:
    """The result of a start: the seconds that it took, and the agent or why it did not start.

    Of an ACP agent also the `login_methods` that it knows, and the first `messages` both ways.
    """

    seconds: float
    agent: AgentReport | None
    failure: str | None
    login_methods: tuple[str, ...] | None = None
    messages: tuple[str, ...] = ()


def known_providers(settings: DaemonSettings) -> list[ProviderInfo]:
    """Return every known provider, sorted by type, including those with an invalid file."""
    with _Context(settings, "outrider") as context:
        return [
            ProviderInfo(
                provider.describe(),
                provider.spec.install,
                context.providers.path(kind),
                provider.spec.login_check,
            )
            for kind, provider in sorted(context.providers.items())
        ]


async def version(path: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Run `path --version`; return the first line with a digit, None if there is none."""
    result = await _run_briefly([path, "--version"], environment)
    if result is None:
        return None
    lines = result[1].decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in lines if any(map(str.isdigit, line))), None)


async def is_logged_in(provider: ProviderInfo) -> bool | None:
    """Ask an installed agent whether it is logged in; None if unknown."""
    path = provider.description.path
    if path is None or provider.login_check is None:
        return None
    result = await _run_briefly([path, *provider.login_check], None)
    return None if result is None else result[0] == 0


async def _run_briefly(
    argv: list[str], environment: Mapping[str, str] | None
) -> tuple[int, bytes] | None:
    """Run a program in an empty directory; return its status and output, None if it hangs."""
    with tempfile.TemporaryDirectory(prefix="outrider-") as folder:
        try:
            return await run(
                argv, seconds=VERSION_TIMEOUT, cwd=folder, env=environment, stderr=STDOUT
            )
        except OSError:  # it cannot be started, or takes too long
            return None


async def try_start(settings: DaemonSettings, kind: str) -> StartResult:
    """Start an agent in an empty directory, wait until it is ready or asks a question, end it.

    It has the environment that a daemon started from this shell would give it, and its own tmux
    server.

    Raises:
        InspectionError: there is no such type, or its provider file is invalid.
    """
    with (
        _Context(settings, f"outrider-check-{uuid.uuid4().hex[:8]}") as context,
        tempfile.TemporaryDirectory(prefix="outrider-check-", ignore_cleanup_errors=True) as folder,
    ):
        provider, messages = context.provider(kind), _Messages()
        tracing = TRACE.set(messages.add)
        try:
            result = await _start(provider, folder)
            return replace(
                result, login_methods=messages.login_methods(), messages=messages.shown()
            )
        finally:
            TRACE.reset(tracing)
            # Its own tmux server must not stay, whatever happens to the agent.
            await context.tmux.close()
            socket_path(context.tmux.socket).unlink(missing_ok=True)  # tmux leaves it behind


async def _start(provider: Provider, folder: str) -> StartResult:
    started_at = time.monotonic()
    try:
        adapter = await provider.launch(_record(provider.describe(), folder))
    except ApiError as error:
        failure = start_failure(provider.spec, error).message
        return StartResult(time.monotonic() - started_at, None, failure)
    try:
        seconds = time.monotonic() - started_at
        observations: list[Observation] = []
        # `observe` calls the observer at once with the current state.
        adapter.observe(lambda _, observation: observations.append(observation))
        agent = AgentReport.of(provider.spec.type, observations[0], adapter.evidence())
        return StartResult(seconds, agent, observations[0].error)
    finally:
        await adapter.close()


async def inspect_session(settings: DaemonSettings, session_id: str) -> AgentReport:
    """Read the terminal of a running agent and derive its status.

    Raises:
        InspectionError: no such session, or it has no terminal.
    """
    record = _find_record(settings, session_id)
    with _Context(settings, settings.tmux_socket) as context:
        try:
            provider = context.provider(record.type)
            if not isinstance(provider, CliProvider):
                raise InspectionError(f"{record.name} does not run in a terminal")
            if await context.tmux.find(record.id) is None:
                raise InspectionError(f"The terminal of {record.id} is gone: stop the session")
            adapter = await provider.restore(record)
            assert isinstance(adapter, CliAgent)
            observation = await _wait_until_settled(adapter)
            evidence = adapter.evidence()
            await adapter.detach()
        finally:
            await context.tmux.close()
    return AgentReport.of(record.type, observation, evidence)


class _Messages:
    """The first messages of the Agent Client Protocol, both ways."""

    def __init__(self) -> None:
        self._lines: list[tuple[Literal["sent", "received"], bytes]] = []

    def add(self, direction: Literal["sent", "received"], line: bytes) -> None:
        """Add a line, which is no JSON if the agent writes other things to its output."""
        if len(self._lines) < MAX_MESSAGES:
            self._lines.append((direction, line[:MAX_MESSAGE]))

    def shown(self) -> tuple[str, ...]:
        """Return the lines without secrets."""
        marks = {"sent": "→", "received": "←"}
        return tuple(
            f"{marks[direction]} {Redactor().text(line.decode('utf-8', 'replace'))}"
            for direction, line in self._lines
        )

    def login_methods(self) -> tuple[str, ...] | None:
        """Return how a person can log in, by the agent's answer to `initialize`."""
        for direction, line in self._lines:
            if direction == "received" and b'"authMethods"' in line:
                with suppress(ValueError, LookupError, TypeError):
                    methods = json.loads(line)["result"]["authMethods"]
                    return tuple(f"{each['id']} ({each.get('name', '-')})" for each in methods)
        return None


class _Context:
    """The machine's providers with a temporary journal, so that the daemon's is not used."""

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

    def __enter__(self) -> "_Context":
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        self._folder.cleanup()

    def provider(self, kind: str) -> Provider:
        provider = self.providers.get(kind)
        if provider is None:
            names = ", ".join(sorted(self.providers))
            raise InspectionError(f"Unknown type {kind!r}: this machine knows {names}")
        error = provider.describe().error
        if error is not None:
            raise InspectionError(error)
        return provider


def _record(description: Description, folder: str) -> SessionRecord:
    now = epoch_millis()
    return SessionRecord(
        id=new_id("session"),
        kind=description.category,
        type=description.type,
        name=description.display_name,
        path=folder,
        model=None,
        created_at=now,
        last_activity_at=now,
    )


def _find_record(settings: DaemonSettings, session_id: str) -> SessionRecord:
    """Return the record of the session with this id, or target id, from the daemon's journal."""
    records = recorded_sessions(settings.journal_file)
    wanted = session_id.rpartition(":")[2]
    for record in records:
        if record.id == wanted:
            return record
    ids = ", ".join(f"{record.id} ({record.type})" for record in records)
    raise InspectionError(f"This machine has no session {session_id!r}; it has {ids or 'none'}")


async def _wait_until_settled(adapter: CliAgent) -> Observation:
    """Observe the agent until screen and transcript agree, for up to `SETTLE_TIMEOUT` seconds."""
    deadline = time.monotonic() + SETTLE_TIMEOUT
    observation = await adapter.poll()
    while not adapter.evidence()["settled"] and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        observation = await adapter.poll()
    return observation
