"""All providers of this machine, of every category, from their files."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, get_args

from outrider.contract.providers import Category
from outrider.machine.agents.acp.provider import AcpProvider
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, AcpSpec, Timeouts
from outrider.machine.agents.adapter import NoteRefusal
from outrider.machine.agents.cli.provider import CliProvider
from outrider.machine.agents.cli.spec import decode_cli
from outrider.machine.agents.ide.provider import IdeProvider, delete_other_sessions
from outrider.machine.agents.ide.spec import decode_ide
from outrider.machine.agents.provider import Provider, ProviderContext, UnusableProvider
from outrider.machine.agents.provider_spec import (
    BUILT_IN_DIRECTORY,
    ProviderFileError,
    ProviderSpec,
    ProviderTable,
    decode,
    read_tables,
)
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.tmux.server import Tmux

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

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
        environment: what agents inherit, by default the daemon's own.
        own: the directory of this machine's own files, `<config_dir>/providers` if not given.
    """
    context = ProviderContext(
        tmux=tmux,
        journal=journal,
        chats=config_dir / "chats",
        ides=config_dir / "ides",
        environment=os.environ if environment is None else environment,
        note_refusal=note_refusal,
        acp_timeouts=acp_timeouts,
    )
    records = journal.sessions()
    EndedChats(context.chats).delete_others(record.id for record in records)
    delete_other_sessions(
        context.ides, [record.id for record in records if record.ended_at is None]
    )
    return Providers([BUILT_IN_DIRECTORY, own or config_dir / "providers"], context)


class Providers(Mapping[str, Provider]):
    """The providers that the files of some directories describe, by type.

    A type whose file is invalid is included: it cannot be launched, and its error says why.
    When a file changes, sessions keep the provider that they were started with.

    Attributes:
        errors: by type, which file is wrong and why.
    """

    def __init__(self, directories: list[Path], context: ProviderContext) -> None:
        self._directories = directories
        self._context = context
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
        # A launch and the periodic check may refresh at once; the second finds nothing new.
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
                providers[table.type] = _provider(table, self._context)
            except ProviderFileError as error:
                errors[table.type] = str(error)
                providers[table.type] = _unusable(table, self._context, str(error))
        self._providers, self.errors = providers, errors
        self._paths = {table.type: table.path for table in tables}


def _provider(table: ProviderTable, context: ProviderContext) -> Provider:
    """Make the provider of a table.

    Raises:
        ProviderFileError: the table is wrong.
    """
    # An unreadable change of a built-in file makes the type unusable, see `ProviderTable`.
    if table.error is not None:
        raise table.error
    match table.fields.get("category", "cli"):
        case "cli":
            return CliProvider(decode_cli(table.path, table.fields), context)
        case "acp":
            return AcpProvider(decode(table.path, table.fields, AcpSpec), context)
        case "ide":
            return IdeProvider(*decode_ide(table.path, table.fields), context)
        case other:
            names = ", ".join(CATEGORIES)
            raise ProviderFileError(table.path, f"category: {other!r} is none of {names}")


def _unusable(table: ProviderTable, context: ProviderContext, error: str) -> UnusableProvider:
    category = table.fields.get("category", "cli")
    spec = ProviderSpec(
        type=table.type,
        category=category if category in CATEGORIES else "cli",
        display_name=table.type,
        command=[table.type],
        install=f"correct {table.path}",
    )
    return UnusableProvider(spec, context, error)


def _state(directories: list[Path]) -> _State:
    """Return what changes when a provider file or a script beside one does."""
    versions = []
    for directory in directories:
        # Time, size and inode: a file may be replaced by one with an older time.
        for path in sorted([*directory.glob("*.toml"), *directory.glob("*.js")]):
            try:
                status = path.stat()
            except OSError:
                versions.append((str(path), 0, 0, 0))
            else:
                versions.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(versions)
