"""The provider spec of agents in a terminal: the fields of its TOML file (docs/providers.md)."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from outrider.contract.resources import AgentStatus, OptionKind
from outrider.machine.agents.provider_spec import (
    Keys,
    NonEmptyText,
    Part,
    ProviderFileError,
    ProviderSpec,
    Word,
    Words,
    check_pattern,
    decode,
)
from outrider.machine.sessions.guards import Guards


class MultiLine(Part, kw_only=True):
    """How to type a message of several lines for an agent whose input has a single line.

    `begin` is typed before the lines and `end` after them; `{token}` in these is replaced by a
    word that occurs in no message. `blank` is typed for a blank line, which some agents ignore.
    """

    begin: NonEmptyText
    end: NonEmptyText
    blank: str = ""


class Input(Part, kw_only=True):
    """How messages are typed into the agent.

    A message that matches `guard_before`, which the agent would run as a command, is typed with
    `guard_mark` in front of it; one that matches `guard_behind`, with a space at its end. The
    agent's transcript contains these additions; the chat that Outrider shows does not.
    `interrupt` are the keys that end a turn; without any, the agent cannot be interrupted.
    `interrupt_interval` is for an agent that quits if it gets them again within so many seconds.
    `empty` matches the screen while the input is empty. `pause` is the seconds between the text
    and the keys that submit it. `prompt` matches the prompt in front of a typed line; it is needed
    only if the chat is read from the screen.
    `single_line` marks an agent that submits each line of a paste as a message: messages of
    several lines are typed as `multi_line` says, and refused without it.
    """

    clear: list[NonEmptyText] = []
    submit: Keys = msgspec.field(default_factory=lambda: ["Enter"])
    interrupt: list[NonEmptyText] = []
    interrupt_interval: Annotated[float, Meta(ge=0, le=10)] = 0.0
    quit: list[NonEmptyText] = []
    empty: NonEmptyText | None = None
    prompt: NonEmptyText | None = None
    guard_before: NonEmptyText | None = None
    guard_behind: NonEmptyText | None = None
    guard_mark: NonEmptyText = " "
    pause: Annotated[float, Meta(ge=0, le=5)] = 0.0
    single_line: bool = False
    multi_line: MultiLine | None = None

    def __post_init__(self) -> None:
        for name in ("empty", "prompt", "guard_before", "guard_behind"):
            check_pattern(name, getattr(self, name))
        if self.multi_line is not None and not self.single_line:
            raise ValueError("`multi_line` needs `single_line = true`")

    def guards(self) -> Guards:
        """Return what keeps messages from being executed as commands."""
        return Guards(self.guard_before, self.guard_behind, self.guard_mark)


class KindRule(Part, kw_only=True):
    """The kind of the options whose label matches `match`; the first match applies."""

    match: NonEmptyText
    kind: OptionKind

    def __post_init__(self) -> None:
        check_pattern("match", self.match)


class Choice(Part, kw_only=True):
    """An option that cannot be read off the screen: its id, label, kind and keys."""

    id: NonEmptyText
    label: NonEmptyText
    kind: OptionKind
    keys: Keys


class Dialog(Part, kw_only=True):
    """How to read a question off the screen.

    Its text is between the last line that matches `begin` (without it, the top of the screen) and
    the options; or it starts at the last match of `head`. The options are the lines that match
    `option`, with groups `key` and `label`; `keys` are the keys that choose one. They are followed
    by the fixed options in `choices`.
    """

    begin: NonEmptyText | None = None
    head: NonEmptyText | None = None
    end: NonEmptyText | None = None
    option: NonEmptyText | None = None
    keys: list[NonEmptyText] = []
    kinds: list[KindRule] = []
    choices: list[Choice] = []

    def __post_init__(self) -> None:
        if self.option is None and not self.choices:
            raise ValueError("a dialog needs `option`, `choices` or both")
        if self.begin is not None and self.head is not None:
            raise ValueError("`begin` and `head` exclude each other")
        if self.option is not None and not self.keys:
            raise ValueError("`option` needs `keys`, such as ['{key}']")
        check_pattern("begin", self.begin)
        check_pattern("head", self.head)
        check_pattern("end", self.end)
        check_pattern("option", self.option, "key", "label")


class Rule(Part, kw_only=True):
    """The status of an agent whose screen and title match; the first rule that matches applies.

    `screen` is searched for in the last `lines` lines that are not blank (0: in all lines).
    The text of an error is `message`, or the group `error` of the match. A rule for a question has
    a `dialog`, or uses that of the rule `dialog_like`; `tool` marks a question that is always
    about a tool call, which the agent's transcript names.
    """

    name: NonEmptyText
    status: AgentStatus
    screen: NonEmptyText | None = None
    title: NonEmptyText | None = None
    lines: Annotated[int, Meta(ge=0)] = 0
    message: NonEmptyText | None = None
    dialog: Dialog | None = None
    dialog_like: NonEmptyText | None = None
    tool: bool = False

    def __post_init__(self) -> None:
        if self.screen is None and self.title is None:
            raise ValueError("a rule needs `screen` or `title`")
        has_dialog = self.dialog is not None or self.dialog_like is not None
        if has_dialog != (self.status == "waiting_approval"):
            raise ValueError(
                "a rule has `dialog` or `dialog_like` exactly if its status is waiting_approval"
            )
        check_pattern(f"rule {self.name!r}, screen", self.screen)
        check_pattern(f"rule {self.name!r}, title", self.title)


class PrepareCommand(Part, kw_only=True):
    """A command that runs to its end before each launch.

    `{file}` in the command is the path of a temporary file that contains the text `file`. Both
    may contain the placeholders of `args`, and `{now}`, the time in epoch milliseconds. `timeout`
    is seconds.
    """

    command: Words
    file: NonEmptyText | None = None
    timeout: Annotated[float, Meta(gt=0, le=120)] = 30.0


class CliSpec(ProviderSpec, kw_only=True):
    """One type of agent that runs in a terminal.

    `record` is the format of the transcript that the agent writes, None if it writes none.
    `resume_args` replace `args` when the agent continues an earlier conversation; without them,
    it cannot. They may contain `{native_id}`, the id by which the agent itself knows it.
    `settle` is how many seconds the screen must look idle before the turn counts as over, if the
    transcript does not show it. `silence` is how many seconds an agent without a transcript may
    generate without any change on its screen; after that, its status is `error`.
    `open_message` matches, on a screen each of whose lines ends with a line break, the message that
    the agent is writing: `text` is what is shown of it, and `start` takes part in the match if its
    beginning is shown. Only for agents with a transcript.
    """

    category: Literal["cli"] = "cli"
    record: Literal["aider", "claude", "codex", "gemini", "opencode"] | None = None
    settle: Annotated[float, Meta(ge=0, le=60)] = 1.0
    silence: Annotated[float, Meta(gt=0, le=24 * 3600)] = 300.0
    open_message: NonEmptyText | None = None
    resume_args: list[Word] = []
    prepare: PrepareCommand | None = None
    input: Input = msgspec.field(default_factory=Input)
    rules: Annotated[list[Rule], Meta(min_length=1)]

    def __post_init__(self) -> None:
        check_pattern("open_message", self.open_message, "start", "text")
        if self.resume_args and self.record is None:
            raise ValueError(
                "`resume_args` needs `record`: without a transcript a chat cannot be continued"
            )


def decode_cli(path: Path, table: dict[str, Any]) -> CliSpec:
    """Validate the fields of a provider file of this category.

    Raises:
        ProviderFileError: a field is invalid; the text names it.
    """
    spec = decode(path, table, CliSpec)
    rules = {rule.name: rule for rule in spec.rules}
    for rule in spec.rules:
        like = rule.dialog_like
        if like is not None and (like not in rules or rules[like].dialog is None):
            raise ProviderFileError(
                path, f"rule {rule.name!r}: no rule {like!r} with a dialog for `dialog_like`"
            )
    return spec
