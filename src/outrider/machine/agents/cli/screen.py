"""Read a screen by the rules of a provider file. Pure: text in, a `Reading` out."""

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outrider.contract.resources import ActionOption, AgentStatus, OptionKind
from outrider.machine.agents.cli.spec import CliSpec, Dialog, KindRule, Rule
from outrider.machine.agents.patterns import Pattern, PatternTimeout, pattern
from outrider.machine.agents.provider_spec import fill_placeholders

if TYPE_CHECKING:
    import regex

MAX_QUESTION: Final = 16 * 1024
"""Characters of a question's text; of a longer text, the end is kept."""

_FRAME: Final = re.compile(r"[ │┃]*[╭╰][─ ]*[╮╯][ │┃]*$")
_MAX_WRAP: Final = 4
"""Maximum number of lines from the first line of an option to that of the next one."""


@dataclass(frozen=True)
class Offer:
    """An option that the agent shows, with the keys that choose it."""

    option: ActionOption
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A dialog on the screen. `tool` is true if it is about a tool call of the agent.

    `drawn` is the dialog's text to the end of the screen, without white space; it starts at the
    dialog's `head`, or without one at the match of the rule's pattern.
    """

    message: str
    offers: tuple[Offer, ...]
    tool: bool
    drawn: str = ""

    @property
    def fingerprint(self) -> str:
        """Return a hash of the text and the options, which identify the question."""
        parts = [self.message, *(offer.option.label for offer in self.offers)]
        # A screen can hold lone surrogates, which UTF-8 refuses.
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Reading:
    """The meaning of a screen. `status` and `rule` are None if no rule matches it.

    `rows` is the number of lines that are not blank from the match of the rule's pattern to the
    end: for an idle agent, its prompt.
    """

    status: AgentStatus | None
    rule: str | None
    question: Question | None = None
    error: str | None = None
    rows: int = 0


class ScreenRules:
    """The rules of one provider file, compiled.

    Args:
        spec: the provider spec; its patterns have been checked.
    """

    def __init__(self, spec: CliSpec) -> None:
        dialogs = {rule.name: rule.dialog for rule in spec.rules}
        self._rules = [
            (
                rule,
                None if rule.screen is None else pattern(rule.screen, re.MULTILINE),
                None if rule.title is None else pattern(rule.title),
                rule.dialog or dialogs.get(rule.dialog_like or ""),
            )
            for rule in spec.rules
        ]
        empty = spec.input.empty
        self._empty = None if empty is None else pattern(empty, re.MULTILINE)

    def read(self, text: str, title: str) -> Reading:
        """Return the reading of the first rule that matches this screen and terminal title.

        Raises:
            PatternTimeout: a pattern takes too long on this screen.
        """
        # Blank lines do not count: how many there are depends on the height of the window.
        lines = [line.rstrip() for line in text.split("\n")]
        nonblank = [line for line in lines if line]
        for rule, screen, title_pattern, dialog in self._rules:
            if title_pattern is not None and not title_pattern.search(title):
                continue
            match, rows = None, 0
            if screen is not None:
                searched = "\n".join(nonblank[-rule.lines :] if rule.lines else nonblank)
                match = screen.search(searched)
                if match is None:
                    continue
                rows = searched.count("\n", match.start()) + 1
            if dialog is None:
                error = _error(rule, match) if rule.status == "error" else None
                return Reading(rule.status, rule.name, error=error, rows=rows)
            drawn = "" if match is None else match.string[match.start() :]
            question = read_question(dialog, lines, tool=rule.tool, drawn=drawn)
            # A dialog without its options is half drawn: other rules, or the next snapshot, decide.
            if question is not None:
                return Reading(rule.status, rule.name, question)
        return Reading(None, None)

    def input_is_empty(self, text: str) -> bool | None:
        """Return whether the agent's input is empty; None if that is unknown."""
        if self._empty is None:
            return None
        nonblank = "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
        try:
            return self._empty.search(nonblank) is not None
        except PatternTimeout:
            return None


def read_question(dialog: Dialog, lines: list[str], *, tool: bool, drawn: str) -> Question | None:
    """Return the question on the screen, None if its options are not shown.

    `drawn` is the screen from the match of the rule's pattern on.
    """
    last = _last(pattern(dialog.end), lines) if dialog.end else None
    first = len(lines) if last is None else last
    offers: tuple[Offer, ...] = ()
    if dialog.option is not None:
        listed_options = _options(dialog, pattern(dialog.option), lines)
        if listed_options is None:
            return None
        first, offers = listed_options
    always = (
        Offer(ActionOption(id=choice.id, label=choice.label, kind=choice.kind), tuple(choice.keys))
        for choice in dialog.choices
    )
    shown = lines[:first]
    if dialog.head is not None:
        head = pattern(dialog.head)
        start = _last(head, shown)
        if start is not None and (match := head.search(shown[start])) is not None:
            shown = [shown[start][match.start() :], *shown[start + 1 :]]
            drawn = "\n".join([*shown, *lines[first:]])
    else:
        begin = None if dialog.begin is None else _last(pattern(dialog.begin), shown)
        shown = shown[0 if begin is None else begin + 1 :]
    return Question(_plain(shown), (*offers, *always), tool, "".join(drawn.split()))


def _options(
    dialog: Dialog, option: Pattern, lines: list[str]
) -> tuple[int, tuple[Offer, ...]] | None:
    """Find the last list of options; lines indented deeper continue the label above them."""
    rows: list[tuple[int, regex.Match[str]]] = [
        (number, match) for number, line in enumerate(lines) if (match := option.match(line))
    ]
    if not rows:
        return None
    # An answered dialog may still be above the new one: the last list counts, which begins
    # at its first key, or below a gap that no wrapped label explains.
    start = len(rows) - 1
    while start > 0 and rows[start - 1][1]["key"] != rows[start][1]["key"]:
        if rows[start][1]["key"] in {"1", "a"} or rows[start][0] - rows[start - 1][0] > _MAX_WRAP:
            break
        start -= 1
    offers = []
    for number, match in rows[start:]:
        label = match["label"].strip()
        indent = match.start("label")
        for line in lines[number + 1 :]:
            if option.match(line) or not line.strip() or len(line) - len(line.lstrip()) < indent:
                break
            label = f"{label} {_plain([line])}"
        key = match["key"]
        action_option = ActionOption(id=key, label=label, kind=_kind(dialog.kinds, label))
        offers.append(Offer(action_option, _keys(dialog.keys, key)))
    return rows[start][0], tuple(offers)


def _keys(keys: list[str], key: str) -> tuple[str, ...]:
    return tuple(fill_placeholders(part, {"key": key}) for part in keys)


def _kind(kinds: list[KindRule], label: str) -> OptionKind:
    """Return the kind of an option; `allow_once` if no pattern matches its label."""
    listed_options = (kind.kind for kind in kinds if pattern(kind.match).search(label))
    return next(listed_options, "allow_once")


def _error(rule: Rule, match: "regex.Match[str] | None") -> str:
    error = match.groupdict().get("error") if match is not None else None
    text = " ".join((error or "").split())
    if rule.message is None:
        return text or rule.name
    return fill_placeholders(rule.message, {"error": text})


def _last(wanted: Pattern, lines: list[str]) -> int | None:
    return next((i for i in range(len(lines) - 1, -1, -1) if wanted.search(lines[i])), None)


def _plain(lines: list[str]) -> str:
    """Return lines of a dialog without its frames, its margin and doubled blank lines."""
    bare = [line.strip().strip(" │┃") for line in lines if not _FRAME.match(line)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(bare)).strip("\n")
    return text[-MAX_QUESTION:]
