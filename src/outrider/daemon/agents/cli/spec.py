"""What a provider's TOML file holds, and how one is read. docs/providers.md explains it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from outrider.contract.resources import AgentStatus, OptionKind
from outrider.daemon.agents.provider_spec import (
    Keys,
    Part,
    ProviderFileError,
    ProviderSpec,
    Text,
    Words,
    check_pattern,
    decode,
    read_tables,
)


class MultiLine(Part, kw_only=True):
    """How an agent that takes one line at a time is given several: line by line.

    `begin` and `end` are typed before and behind them; `{token}` is a word that no message has.
    `blank` is typed for a blank line, where the agent would leave it out.
    """

    begin: Text
    end: Text
    blank: str = ""


class Input(Part, kw_only=True):
    """How text gets into the agent.

    Messages that match `guard_before`, which the agent would take for a command of its own,
    get `guard_mark` in front; those that match `guard_behind` get a space at the end. The
    agent's record shows that, ours does not.
    `empty` is what the screen matches when nothing stands in the input; `pause` is seconds
    between the text and the keys that submit it. `prompt` is what stands in front of a line that
    was typed; it is needed only where the chat is read off the screen.
    `single_line` is for an agent that takes each line of a paste for a message: one of several
    lines is refused, or goes as `multi_line` says.
    """

    clear: list[Text] = []
    submit: Keys = msgspec.field(default_factory=lambda: ["Enter"])
    quit: list[Text] = []
    empty: Text | None = None
    prompt: Text | None = None
    guard_before: Text | None = None
    guard_behind: Text | None = None
    guard_mark: Text = " "
    pause: Annotated[float, Meta(ge=0, le=5)] = 0.0
    single_line: bool = False
    multi_line: MultiLine | None = None

    def __post_init__(self) -> None:
        for name in ("empty", "prompt", "guard_before", "guard_behind"):
            check_pattern(name, getattr(self, name))
        if self.multi_line is not None and not self.single_line:
            raise ValueError("`multi_line` needs `single_line = true`")


class Kind(Part, kw_only=True):
    """Labels that `match` are options of this kind; the first that matches counts."""

    match: Text
    kind: OptionKind

    def __post_init__(self) -> None:
        check_pattern("match", self.match)


class Choice(Part, kw_only=True):
    """An option that the agent offers without a number to read: what it is and its keys."""

    id: Text
    label: Text
    kind: OptionKind
    keys: Keys


class Dialog(Part, kw_only=True):
    """What a question looks like.

    Its text stands between the last line that matches `begin` (the top of the screen without
    one) and the options; or it begins with the last line that matches `head`. The options are
    the lines that match `option`, with groups `key` and `label`, and `keys` chooses one; and
    then the `choices`, which are always the same.
    """

    begin: Text | None = None
    head: Text | None = None
    end: Text | None = None
    option: Text | None = None
    keys: list[Text] = []
    kinds: list[Kind] = []
    choices: list[Choice] = []

    def __post_init__(self) -> None:
        if self.option is None and not self.choices:
            raise ValueError("a dialog has `option` (a pattern), or `choices`, or both")
        if self.begin is not None and self.head is not None:
            raise ValueError("a question's text has `begin` or `head`")
        if self.option is not None and not self.keys:
            raise ValueError("`option` needs `keys`, such as ['{key}']")
        check_pattern("begin", self.begin)
        check_pattern("head", self.head)
        check_pattern("end", self.end)
        check_pattern("option", self.option, "key", "label")


class Rule(Part, kw_only=True):
    """If the screen and the title match, this is the status. The first rule that fits counts.

    `screen` is searched in the last `lines` lines that are not blank (0: in all of them).
    For an error, group `error` of the match (or `message`) is its text. A question has its
    `dialog`, or one like that of the rule `dialog_like`; `tool` tells that it is always about
    a tool call, which the agent's record names.
    """

    name: Text
    status: AgentStatus
    screen: Text | None = None
    title: Text | None = None
    lines: Annotated[int, Meta(ge=0)] = 0
    message: Text | None = None
    dialog: Dialog | None = None
    dialog_like: Text | None = None
    tool: bool = False

    def __post_init__(self) -> None:
        if self.screen is None and self.title is None:
            raise ValueError("a rule needs `screen` or `title`")
        asks = self.dialog is not None or self.dialog_like is not None
        if asks != (self.status == "waiting_approval"):
            raise ValueError("`dialog` belongs to the status waiting_approval, and only to it")
        check_pattern(f"rule {self.name!r}, screen", self.screen)
        check_pattern(f"rule {self.name!r}, title", self.title)


class Prepare(Part, kw_only=True):
    """A command that is run, and ends, before each launch. It may need a file.

    `{file}` in the command is a new file with the text `file`; both may hold the placeholders
    of `args`, and `{now}`, the time in epoch milliseconds. `timeout` is seconds.
    """

    command: Words
    file: Text | None = None
    timeout: Annotated[float, Meta(gt=0, le=120)] = 30.0


class CliSpec(ProviderSpec, kw_only=True):
    """One kind of agent that runs in a terminal.

    Times are seconds. `settle` is how long a screen must look idle before that is believed
    where the agent's record does not say so, `silence` how long an agent without a record may
    show nothing new while it is at work, before that is an error.
    """

    category: Literal["cli"] = "cli"
    record: Literal["aider", "claude", "codex", "gemini", "opencode"] | None = None
    settle: Annotated[float, Meta(ge=0, le=60)] = 1.0
    silence: Annotated[float, Meta(gt=0, le=24 * 3600)] = 300.0
    prepare: Prepare | None = None
    input: Input = msgspec.field(default_factory=Input)
    rules: Annotated[list[Rule], Meta(min_length=1)]


def read_cli_specs(directories: list[Path]) -> list[CliSpec]:
    """Return what the files of these directories that are of this category describe.

    Raises:
        ProviderFileError: a file is not TOML, or a field of it is wrong.
    """
    files = []
    for table in read_tables(directories):
        if table.error is not None:
            raise table.error
        if table.fields.get("category", "cli") == "cli":
            files.append(decode_cli(table.path, table.fields))
    return files


def decode_cli(path: Path, table: dict[str, Any]) -> CliSpec:
    """Return the table of a file of this category, checked.

    Raises:
        ProviderFileError: a field is wrong; the text names it.
    """
    decoded = decode(path, table, CliSpec)
    names = {rule.name: rule for rule in decoded.rules}
    for rule in decoded.rules:
        like = rule.dialog_like
        if like is not None and (like not in names or names[like].dialog is None):
            raise ProviderFileError(
                path, f"rule {rule.name!r}: no rule {like!r} with a dialog for `dialog_like`"
            )
    return decoded
