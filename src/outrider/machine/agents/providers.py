"""All providers of this machine, of every category, from their files."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from outrider.contract.errors import ApiError
from outrider.contract.providers import Category
from outrider.contract.resources import Provider as Description
from outrider.machine.agents.acp.provider import AcpProvider
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, AcpSpec, Timeouts
from outrider.machine.agents.adapter import Adapter, NoteRefusal
from outrider.machine.agents.cli.provider import CliProvider
from outrider.machine.agents.cli.spec import decode_cli
from outrider.machine.agents.failure import not_resumable
from outrider.machine.agents.ide.debugging_port import DebuggingPorts
from outrider.machine.agents.ide.provider import IdeProvider, delete_other_sessions
from outrider.machine.agents.ide.spec import decode_ide
from outrider.machine.agents.provider import Provider
from outrider.machine.agents.provider_spec import (
    BUILT_IN_DIRECTORY,
    ProviderFileError,
    ProviderSpec,
    ProviderTable,
    decode,
    read_tables,
)
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import epoch_millis
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.tmux.server import Tmux

CATEGORIES: Final[tuple[Category, ...]] = ("cli", "acp", "ide")

_Make = Callable[[ProviderTable], Provider]
"""Makes a provider from a table without an error; raises `ProviderFileError` where it is wrong."""

_State = tuple[tuple[str, int, int, int], ...]
"""Identifies a version of the files: path, modification time, size and inode of each."""


def load_providers(
    config_dir: Path,
    *,
    tmux: Tmux,
    journal: Journal,
    note_refusal: NoteRefusal,
    environment: Mapping[str, str] | None = None,
    own: Path | None = None,
    acp_timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> "Providers":
    """Return every provider of the built-in files and of this machine's own ones, by type.

    Chats and other files of sessions that the journal does not know are deleted.

    Args:
        config_dir: the directory of chats and of the state of IDEs.
        note_refusal: gets every refusal of a request of an agent, for the audit.
        environment: what agents inherit, by default the daemon's own.
        own: the directory of this machine's own files, `<config_dir>/providers` if not given.
        acp_timeouts: how long agents that speak ACP may take.
    """
    given = os.environ if environment is None else environment
    chats, ides = config_dir / "chats", config_dir / "ides"
    ports, endpoints = DebuggingPorts(), set[str]()
    records = journal.sessions()
    EndedChats(chats).delete_others(record.id for record in records)
    delete_other_sessions(ides, [record.id for record in records if record.ended_at is None])

    def make(table: ProviderTable) -> Provider:
        path, fields = table.path, table.fields
        match fields.get("category", "cli"):
            case "cli":
                return CliProvider(
                    decode_cli(path, fields),
                    tmux=tmux,
                    journal=journal,
                    chats=chats,
                    environment=given,
                    clock=epoch_millis,
                )
            case "acp":
                acp = decode(path, fields, AcpSpec)
                return AcpProvider(
                    acp,
                    chats,
                    given,
                    clock=epoch_millis,
                    note_refusal=note_refusal,
                    timeouts=acp_timeouts,
                )
            case "ide":
                ide, script = decode_ide(path, fields)
                return IdeProvider(
                    ide,
                    script,
                    ides,
                    given,
                    journal=journal,
                    clock=epoch_millis,
                    ports=ports,
                    endpoints=endpoints,
                )
            case other:
                known = ", ".join(CATEGORIES)
                raise ProviderFileError(path, f"category: {other!r} is none of {known}")

    return Providers([BUILT_IN_DIRECTORY, own or config_dir / "providers"], make)


class Providers(Mapping[str, Provider]):
    """The providers that the files of some directories describe, by type.

    A type whose file is invalid is included: it cannot be launched, and its error says why.
    When a file changes, sessions keep the provider that they were started with.

    Attributes:
        errors: by type, which file is wrong and why.
    """

    def __init__(self, directories: list[Path], make: _Make) -> None:
        self._directories = directories
        self._make = make
        self._reading = asyncio.Lock()
        self._paths: dict[str, Path] = {}
        self._providers: dict[str, Provider] = {}
        self.errors: dict[str, str] = {}
        self._state = _state(directories)
        self._take(read_tables(directories))

    def __getitem__(self, kind: str) -> Provider:
        return self._providers[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

    def path(self, kind: str) -> Path:
        """Return the file that describes a type, or changes it last."""
        return self._paths[kind]

    async def refresh(self) -> bool:
        """Read the files again if any has changed, come or gone; return whether they were read."""
        async with self._reading:
            state = await asyncio.to_thread(_state, self._directories)
            if state == self._state:
                return False
            self._take(await asyncio.to_thread(read_tables, self._directories))
            self._state = state
            return True

    def _take(self, tables: list[ProviderTable]) -> None:
        errors: dict[str, str] = {}
        providers: dict[str, Provider] = {}
        for table in tables:
            try:
                if table.error is not None:
                    raise table.error
                providers[table.type] = self._make(table)
            except ProviderFileError as error:
                errors[table.type] = str(error)
                providers[table.type] = UnusableProvider(table, str(error))
        self._providers, self.errors = providers, errors
        self._paths = {table.type: table.path for table in tables}


class UnusableProvider:
    """A type whose file is wrong: shown with what is wrong, and never launched."""

    def __init__(self, table: ProviderTable, error: str) -> None:
        category = table.fields.get("category", "cli")
        self.spec = ProviderSpec(
            type=table.type,
            category=category if category in CATEGORIES else "cli",
            display_name=table.type,
            command=[table.type],
            install=f"correct {table.path}",
        )
        self._error = error

    def describe(self) -> Description:
        """Return its description in the API."""
        description = self.spec.description(None)
        description.error = self._error
        return description

    async def launch(self, record: SessionRecord) -> Adapter:  # noqa: ARG002
        """Refuse."""
        raise ApiError(500, self._error)

    def not_resumable(self, record: SessionRecord) -> str | None:  # noqa: ARG002
        """Return the error: it may be corrected, but until then nothing can be resumed."""
        return self._error

    async def resume(self, record: SessionRecord) -> Adapter:  # noqa: ARG002
        """Refuse."""
        raise not_resumable(self._error)

    async def restore(self, record: SessionRecord) -> Adapter:  # noqa: ARG002
        """Refuse."""
        raise ApiError(500, self._error)


def _state(directories: list[Path]) -> _State:
    """Return what changes when a provider file or a script beside one does."""
    found = []
    for directory in directories:
        for path in sorted([*directory.glob("*.toml"), *directory.glob("*.js")]):
            try:
                status = path.stat()
            except OSError:
                found.append((str(path), 0, 0, 0))
            else:
                found.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
