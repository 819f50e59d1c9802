"""The provider spec of an IDE: what its TOML file holds. See docs/ides.md."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from outrider.contract.resources import OptionKind, Role
from outrider.machine.agents.provider_spec import (
    BUILT_IN_DIRECTORY,
    DisplayName,
    NonEmptyText,
    Part,
    ProviderFileError,
    ProviderSpec,
    TypeName,
    Word,
    Words,
    check_pattern,
    decode,
    read_tables,
)


class Choice(Part, kw_only=True):
    """Options of one kind in a dialog: the elements that `selector` matches."""

    selector: NonEmptyText
    kind: OptionKind


class QuestionSpec(Part, kw_only=True):
    """How a question is recognised: its `dialog`, and its `text` (by default, all of it)."""

    dialog: NonEmptyText
    text: NonEmptyText | None = None
    options: Annotated[list[Choice], Meta(min_length=1)]


class RoleRule(Part, kw_only=True):
    """The role of chat rows that `selector` matches; the first match counts."""

    selector: NonEmptyText
    role: Role


class Messages(Part, kw_only=True):
    """How the chat is read, for an IDE whose script does not read it.

    `key` is an attribute that identifies a row (by default, its position does). `scroller` is
    the scrolling element of a list that holds only the visible rows.
    """

    row: NonEmptyText
    key: NonEmptyText | None = None
    content: NonEmptyText | None = None
    scroller: NonEmptyText | None = None
    roles: list[RoleRule] = []


class AgentSpec(Part, kw_only=True):
    """One agent inside the IDE: CSS selectors, all below `panel` but `open`.

    `typing` is how text is entered: `fill` sets the input's value, `keys` pastes into the
    focused element (code editors). A message is sent by a click on `submit`, or with the key
    `submit_key`. `stop` is the control that ends the turn; without it, it cannot be interrupted.
    Messages that match `guard_before` get an invisible character (U+200B) in front.
    """

    type: TypeName
    name: DisplayName
    panel: NonEmptyText
    input: NonEmptyText
    open: NonEmptyText | None = None
    typing: Literal["fill", "keys"] = "fill"
    submit: NonEmptyText | None = None
    submit_key: NonEmptyText = "Enter"
    stop: NonEmptyText | None = None
    busy: list[NonEmptyText] = []
    question: QuestionSpec | None = None
    error: NonEmptyText | None = None
    title: NonEmptyText | None = None
    messages: Messages | None = None
    guard_before: NonEmptyText | None = None

    def __post_init__(self) -> None:
        check_pattern("guard_before", self.guard_before)


class Browser(Part, kw_only=True):
    """The browser of a web IDE: the first of `command` that is installed."""

    url: Word
    command: Words = field(
        default_factory=lambda: ["chromium", "chromium-browser", "google-chrome"]
    )
    install: NonEmptyText = "apt-get install chromium"


class IdeSpec(ProviderSpec, kw_only=True):
    """One kind of IDE.

    `pages` is a pattern that the address of its window matches. `debug_args` open the
    debugging port of a desktop IDE; an IDE that a person has started with the port `adopt_port`
    is adopted. `agents_from` is a built-in type whose agents this one has too.
    `script` names a JavaScript file beside this one (see ide/watch.js). Times are seconds:
    `settle` is how long an agent must look idle before it counts as idle, `begin_timeout` how
    long it may take to begin to answer.
    """

    category: Literal["ide"]
    pages: NonEmptyText
    debug_args: list[Word] = []
    adopt_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    browser: Browser | None = None
    script: NonEmptyText | None = None
    settle: Annotated[float, Meta(ge=0, le=60)] = 0.25
    begin_timeout: Annotated[float, Meta(gt=0, le=600)] = 45.0
    agents_from: NonEmptyText | None = None
    agents: Annotated[list[AgentSpec], Meta(min_length=1)]

    def __post_init__(self) -> None:
        check_pattern("pages", self.pages)


def decode_ide(path: Path, table: dict[str, Any]) -> tuple[IdeSpec, str]:
    """Decode and check the table of an IDE's file; return it with the text of its script.

    Raises:
        ProviderFileError: a field is wrong; the text names it.
    """
    like = table.get("agents_from")
    if isinstance(like, str) and "agents" not in table:
        source = _built_in_fields().get(like, {})
        if "agents" not in source:
            raise ProviderFileError(path, f"agents_from: no built-in IDE is called {like!r}")
        table = table | {"agents": source["agents"]}
    file = decode(path, table, IdeSpec)
    if file.script is None:
        return file, "{}"
    try:
        return file, _script(path, file.script)
    except (OSError, ValueError) as error:
        raise ProviderFileError(path, f"script: {file.script!r} cannot be read: {error}") from error


def _built_in_fields() -> dict[str, dict[str, Any]]:
    """Return the fields of the built-in files by type."""
    return {table.type: table.fields for table in read_tables([BUILT_IN_DIRECTORY])}


def _script(path: Path, name: str) -> str:
    """Return the script beside the file, else the built-in one of that name."""
    own = path.with_name(name)
    return (own if own.is_file() else BUILT_IN_DIRECTORY / name).read_text(encoding="utf-8")
