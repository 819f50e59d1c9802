"""What every provider's TOML file holds, of whatever category, and how the files are read."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from outrider.contract.errors import OutriderError
from outrider.contract.providers import Category
from outrider.contract.resources import Provider as Description

BUILT_IN: Final = Path(__file__).parents[1] / "providers"
"""The provider files that come with Outrider."""

Text = Annotated[str, Meta(min_length=1)]
Keys = Annotated[list[Text], Meta(min_length=1)]


class ProviderFileError(OutriderError):
    """A provider file that cannot be used: which file, which field, and what is wrong."""


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a field it does not know is a mistake in it."""


class Environment(Part, kw_only=True):
    """How the agent's environment differs from the daemon's."""

    set: dict[str, str] = {}
    unset: list[str] = []


class Hint(Part, kw_only=True):
    """Tell a person `text` where an agent does not start and the error matches `match`.

    With `root`, only where the machine agent runs as root.
    """

    match: Text
    text: Text
    root: bool = False

    def __post_init__(self) -> None:
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"`match` is not a regular expression: {error}") from error


class AgentFile(Part, kw_only=True):
    """One kind of agent that is started by a command. `ready_timeout` is seconds."""

    type: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    category: Category
    display_name: Text
    verified: bool = False
    command: Keys
    args: list[Text] = []
    model_args: list[Text] = []
    install: Text
    ready_timeout: Annotated[float, Meta(gt=0, le=600)] = 45.0
    environment: Environment = msgspec.field(default_factory=Environment)
    hints: list[Hint] = []

    def described(self, path: str | None) -> Description:
        """Return what the API tells of it; `path` is its program, None where there is none."""
        return Description(
            type=self.type,
            category=self.category,
            display_name=self.display_name,
            installed=path is not None,
            path=path,
            verified=self.verified,
        )

    def hint(self, error: str) -> str | None:
        """Return what helps against an error at the start, None where the file does not know."""
        for hint in self.hints:
            if (os.geteuid() == 0 or not hint.root) and re.search(hint.match, error):
                return hint.text
        return None

    def environment_from(
        self, given: Mapping[str, str], private: tuple[str, ...]
    ) -> dict[str, str]:
        """Return the agent's environment: `given` as the file changes it.

        What begins with one of `private` is left out, and so is the daemon's directory, which
        some agents (opencode) would take for their own.
        """
        changes = self.environment
        unset = {*changes.unset, "PWD", "OLDPWD"}
        kept = {
            name: value
            for name, value in given.items()
            if not name.startswith(private) and name not in unset
        }
        return kept | changes.set


File = TypeVar("File", bound=Part)


def read_tables(directories: list[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Return what the `*.toml` files of these directories hold, one table for each type.

    A file in a later directory whose type (or name) is one of an earlier directory changes
    only the fields that it has; its own `rules` are tried before those of the earlier.

    Raises:
        ProviderFileError: a file is not TOML.
    """
    tables: dict[str, tuple[Path, dict[str, Any]]] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.toml")):
            table = _table(path)
            name = str(table.get("type", path.stem))
            base = tables.get(name)
            tables[name] = (path, table if base is None else _merge(base[1], table))
    return list(tables.values())


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with each `{name}` that `values` has replaced; other braces stay as they are.

    `str.format` would fail on the braces of JSON in an argument.
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)


def decode(path: Path, table: dict[str, Any], kind: type[File]) -> File:
    """Return the table as a file of this kind.

    Raises:
        ProviderFileError: a field is wrong; the text names it.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ProviderFileError(f"{path}: {error}") from error


def _table(path: Path) -> dict[str, Any]:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, UnicodeError, msgspec.DecodeError) as error:
        raise ProviderFileError(f"{path}: not a readable TOML file: {error}") from error


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = base.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[name] = _merge(old, value)
        elif name == "rules" and isinstance(old, list) and isinstance(value, list):
            merged[name] = [*value, *old]
        else:
            merged[name] = value
    return merged
