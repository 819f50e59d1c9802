"""What the TOML file of a provider (one kind of agent) holds, and how such files are read.

What every file holds is a `ProviderSpec`; `cli/`, `acp/` and `ide/` extend it by their category.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from outrider.contract.errors import OutriderError
from outrider.contract.providers import Category
from outrider.contract.resources import Provider as Description
from outrider.contract.text import MAX_NAME, NO_NUL, PRINTABLE, printable
from outrider.daemon.agents.patterns import pattern

BUILT_IN: Final = Path(__file__).parents[1] / "providers"
"""The provider files that come with Outrider."""

MAX_BYTES: Final = 1024 * 1024
"""Bytes of the largest provider file that is read."""

_MAX_ERROR: Final = 500
_MAX_TEXT: Final = 4000
"""Characters of an error, of which 4,096 fit into the frame that tells it."""

_TYPE: Final = r"^[a-z0-9][a-z0-9-]{0,63}$(?!\n)"
_TYPE_LINE: Final = re.compile(
    r"""^\s{0,8}type\s{0,8}=\s{0,8}["']([a-z0-9][a-z0-9-]{0,63})["']""", re.MULTILINE
)
"""A type in a file that is no TOML."""

CDP: Final = "cdp"
"""In `record.adapter_state`: `off` for an IDE that is to be launched without its debugging port."""

Text = Annotated[str, Meta(min_length=1)]
Keys = Annotated[list[Text], Meta(min_length=1)]
Word = Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
"""A program or an argument of one."""
Words = Annotated[list[Word], Meta(min_length=1)]
"""A program with its arguments."""
Title = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=PRINTABLE)]
"""A name that people see."""
TypeName = Annotated[str, Meta(pattern=_TYPE)]
Variable = Annotated[str, Meta(pattern=r"^[^=\x00]+$")]
"""The name of an environment variable."""


class ProviderFileError(OutriderError):
    """A provider file that cannot be used: which file, which field, and what is wrong.

    Its text is one printable line of bounded length.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(printable(f"{path}: {problem[:_MAX_ERROR]}")[-_MAX_TEXT:])


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a field it does not know is a mistake in it."""


class Environment(Part, kw_only=True):
    """How the agent's environment differs from the daemon's."""

    set: dict[Variable, Annotated[str, Meta(pattern=NO_NUL)]] = {}
    unset: list[str] = []


class Hint(Part, kw_only=True):
    """Tell a person `text` where an agent does not start and the error matches `match`.

    With `root`, only where the machine agent runs as root.
    """

    match: Text
    text: Text
    root: bool = False

    def __post_init__(self) -> None:
        check_pattern("match", self.match)


class ProviderSpec(Part, kw_only=True):
    """One kind of agent that is started by a command. `ready_timeout` is seconds."""

    type: TypeName
    category: Category
    display_name: Title
    verified: bool = False
    command: Words
    args: list[Word] = []
    model_args: list[Word] = []
    install: Text
    ready_timeout: Annotated[float, Meta(gt=0, le=600)] = 45.0
    environment: Environment = msgspec.field(default_factory=Environment)
    hints: list[Hint] = []

    def described(self, path: str | None) -> Description:
        """Return what the API tells of it; `path` is its program, None if there is none."""
        return Description(
            type=self.type,
            category=self.category,
            display_name=self.display_name,
            installed=path is not None,
            path=path,
            verified=self.verified,
        )

    def hint(self, error: str) -> str | None:
        """Return what helps against an error at the start, None if the file does not know."""
        for hint in self.hints:
            if (os.geteuid() == 0 or not hint.root) and pattern(hint.match).matches(
                error, otherwise=False
            ):
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


@dataclass(frozen=True)
class ProviderTable:
    """What the provider files say of one type.

    Attributes:
        path: the file that was read last.
        fields: what the files hold together.
        error: why one of the files cannot be read; the others are not used either then, as an
            agent without the changes of a machine's own file may be the wrong one.
    """

    type: str
    path: Path
    fields: dict[str, Any]
    error: ProviderFileError | None = None


def read_tables(directories: list[Path]) -> list[ProviderTable]:
    """Return what the `*.toml` files of these directories hold, one table for each type.

    A file in a later directory whose type (or name) is one of an earlier directory changes
    only the fields that it has; its own `rules` are tried before those of the earlier.
    """
    tables: dict[str, ProviderTable] = {}
    for directory in directories:
        for path in sorted(directory.glob("*.toml")):
            table = _read(path)
            base = tables.get(table.type)
            if base is not None:
                merged = _merge(base.fields, table.fields)
                table = replace(table, fields=merged, error=table.error or base.error)
            tables[table.type] = table
    return list(tables.values())


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with each `{name}` that `values` has replaced; other braces stay as they are.

    `str.format` would fail on the braces of JSON in an argument.
    """
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)


def check_pattern(field: str, text: str | None, *groups: str) -> None:
    """Check that a field is a regular expression with these named groups, or nothing.

    Raises:
        ValueError: it is not; the text names the field.
    """
    if text is None:
        return
    try:
        named = pattern(text).groups
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    missing = [name for name in groups if name not in named]
    if missing:
        raise ValueError(f"{field}: no group (?P<{missing[0]}>…) in the pattern")


def decode(path: Path, table: dict[str, Any], kind: type[File]) -> File:
    """Return the table as a file of this kind.

    Raises:
        ProviderFileError: a field is wrong; the text names it.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ProviderFileError(path, str(error)) from error


def _read(path: Path) -> ProviderTable:
    text = b""
    try:
        text = _content(path)
        fields = msgspec.toml.decode(text, type=dict[str, Any])
    except (OSError, ValueError, RecursionError) as error:  # among them what TOML and UTF-8 raise
        found = _TYPE_LINE.search(text.decode("utf-8", "replace"))
        problem = ProviderFileError(path, f"not a readable TOML file: {error}")
        return ProviderTable(found[1] if found else _name(path), path, {}, problem)
    named = fields.get("type")
    if not isinstance(named, str) or not re.search(_TYPE, named):
        named = _name(path)  # the decoding tells what is wrong
    return ProviderTable(named, path, fields)


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")  # reading a pipe would wait for ever
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise OSError(f"it has more than {MAX_BYTES} bytes")
    return text


def _name(path: Path) -> str:
    return printable(path.stem)[:64]


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
