"""Provider specs: the TOML files that describe one type of agent each, and how they are read.

    *.toml ─ read_tables ─▶ ProviderTable (merged, unchecked) ─ decode ─▶ ProviderSpec (checked)

`ProviderSpec` has the fields of every file; `cli/`, `acp/` and `ide/` add those of their category.
"""

import os
import re
import sys
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
from outrider.machine.agents.patterns import pattern

BUILT_IN_DIRECTORY: Final = Path(__file__).parents[1] / "providers"
"""The directory of the provider files that are part of Outrider."""

MAX_BYTES: Final = 1024 * 1024
"""Bytes of a provider file; larger files are refused."""

_MAX_ERROR: Final = 500
_MAX_TEXT: Final = 4000
"""Characters of an error; the frame that reports it has room for 4,096."""

_TYPE: Final = r"^[a-z0-9][a-z0-9-]{0,63}$(?!\n)"
_TYPE_LINE: Final = re.compile(
    r"""^\s{0,8}type\s{0,8}=\s{0,8}["']([a-z0-9][a-z0-9-]{0,63})["']""", re.MULTILINE
)
"""Finds the type in a file that is not valid TOML."""

CDP: Final = "cdp"
"""In `record.adapter_state`: `off` if an IDE is launched without its debugging port."""

NonEmptyText = Annotated[str, Meta(min_length=1)]
Keys = Annotated[list[NonEmptyText], Meta(min_length=1)]
Word = Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
"""A program or an argument of one."""
Words = Annotated[list[Word], Meta(min_length=1)]
"""A program with its arguments."""
DisplayName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=PRINTABLE)]
"""A name that people see."""
TypeName = Annotated[str, Meta(pattern=_TYPE)]
Variable = Annotated[str, Meta(pattern=r"^[^=\x00]+$")]
"""The name of an environment variable."""


class ProviderFileError(OutriderError):
    """A provider file is invalid; the text names the file, the field and the problem.

    The text is one printable line of bounded length.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(printable(f"{path}: {problem[:_MAX_ERROR]}")[-_MAX_TEXT:])


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of a provider file; unknown fields are errors."""


class Environment(Part, kw_only=True):
    """How the agent's environment differs from the daemon's."""

    set: dict[Variable, Annotated[str, Meta(pattern=NO_NUL)]] = {}
    unset: list[str] = []


class Hint(Part, kw_only=True):
    """Advice (`text`) that is shown if an agent fails to start with an error matching `match`.

    With `root`, it is shown only if the machine agent runs as root.
    """

    match: NonEmptyText
    text: NonEmptyText
    root: bool = False

    def __post_init__(self) -> None:
        check_pattern("match", self.match)


class ProviderSpec(Part, kw_only=True):
    """One type of agent, which is started by a command. `ready_timeout` is seconds.

    With the arguments `login_check`, the program exits with 0 if it is logged in.
    """

    type: TypeName
    category: Category
    display_name: DisplayName
    verified: bool = False
    demo: bool = False
    command: Words
    args: list[Word] = []
    model_args: list[Word] = []
    install: NonEmptyText
    login_check: Words | None = None
    ready_timeout: Annotated[float, Meta(gt=0, le=600)] = 45.0
    environment: Environment = msgspec.field(default_factory=Environment)
    hints: list[Hint] = []

    @property
    def program(self) -> str:
        """The name or path of the program; `{python}` is the interpreter of the machine agent."""
        return sys.executable if self.command[0] == "{python}" else self.command[0]

    def description(self, path: str | None) -> Description:
        """Return the provider as the API shows it; `path` is its program, None if not installed."""
        return Description(
            type=self.type,
            category=self.category,
            display_name=self.display_name,
            installed=path is not None,
            path=path,
            verified=self.verified,
            demo=self.demo,
        )

    def hint(self, error: str) -> str | None:
        """Return the text of the first hint that matches a start error, None if none does."""
        for hint in self.hints:
            if (os.geteuid() == 0 or not hint.root) and pattern(hint.match).matches(
                error, otherwise=False
            ):
                return hint.text
        return None

    def words(self, args: list[str], model: str | None, values: Mapping[str, str]) -> list[str]:
        """Return the program and its arguments, with the placeholders replaced."""
        words = [*self.command[1:], *args, *(self.model_args if model else [])]
        return [self.program, *(fill_placeholders(word, values) for word in words)]

    def environment_from(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's environment: `inherited` with the changes of the file.

        Outrider's own variables and those of a tmux around the daemon are removed. So are those
        with the daemon's working directory, which some agents (opencode) would use as their own.
        """
        changes = self.environment
        unset = {*changes.unset, "PWD", "OLDPWD"}
        environment = {
            name: value
            for name, value in inherited.items()
            if not name.startswith(("OUTRIDER_", "TMUX")) and name not in unset
        }
        return environment | changes.set


SpecT = TypeVar("SpecT", bound=Part)


@dataclass(frozen=True)
class ProviderTable:
    """The merged fields of all provider files of one type.

    Attributes:
        path: the file that was read last.
        fields: the merged fields, not validated yet.
        error: why one of the files cannot be read. Then none of them is used: without the changes
            of the machine's own file, the wrong agent might be started.
    """

    type: str
    path: Path
    fields: dict[str, Any]
    error: ProviderFileError | None = None


def read_tables(directories: list[Path]) -> list[ProviderTable]:
    """Read the `*.toml` files of these directories and merge them into one table per type.

    A file overrides only the fields that it has in files of the same type (or name) in earlier
    directories; its `rules` are tried before theirs.
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
    """Replace each `{name}` for which `values` has an entry; leave other braces unchanged.

    `str.format` would fail on the braces of JSON in an argument.
    """
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


def check_pattern(field: str, text: str | None, *groups: str) -> None:
    """Check that a field is None, or a regular expression with these named groups.

    Raises:
        ValueError: it is neither; the text names the field.
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


def decode(path: Path, table: dict[str, Any], kind: type[SpecT]) -> SpecT:
    """Validate the fields of a provider file and return them as a `kind`.

    Raises:
        ProviderFileError: a field is invalid; the text names it.
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
        match = _TYPE_LINE.search(text.decode("utf-8", "replace"))
        problem = ProviderFileError(path, f"not a readable TOML file: {error}")
        return ProviderTable(match[1] if match else _name(path), path, {}, problem)
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
