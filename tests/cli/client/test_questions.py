"""Which option of a question a person means."""

import pytest

from outrider.cli.client.output import UsageError
from outrider.cli.client.questions import chosen_option, question_line, question_text
from outrider.contract.resources import ActionOption, OptionKind, PendingAction


def question(*options: tuple[str, str, OptionKind]) -> PendingAction:
    choices = [ActionOption(id=name, label=label, kind=kind) for name, label, kind in options]
    return PendingAction(id="act_1", message="Which database?\n(one)", options=choices)


DATABASES = question(
    ("a", "PostgreSQL (costs money)", "allow_once"),
    ("b", "SQLite", "allow_once"),
    ("stop", "Stop and think", "reject_once"),
)
TOOL = question(
    ("once", "Allow once", "allow_once"),
    ("always", "Allow always", "allow_always"),
    ("2", "Reject", "reject_once"),
)


@pytest.mark.parametrize(
    ("word", "expected"), [("b", "b"), ("1", "a"), ("sqlite", "b"), ("3", "stop")]
)
def test_an_option_is_named_by_its_id_number_or_label(word: str, expected: str) -> None:
    chosen = chosen_option(DATABASES, "approve", word)
    assert chosen is not None
    assert chosen.id == expected


def test_an_id_takes_precedence_over_a_number() -> None:
    chosen = chosen_option(TOOL, "reject", "2")
    assert chosen is not None
    assert chosen.label == "Reject"


def test_the_only_option_of_a_kind_needs_no_name() -> None:
    for verdict, expected in (("approve", "once"), ("reject", "2")):
        chosen = chosen_option(TOOL, verdict, None)  # type: ignore[arg-type]
        assert chosen is not None
        assert chosen.id == expected


@pytest.mark.parametrize("word", [None, "4", "", "postgres"])
def test_nothing_is_chosen_for_a_person(word: str | None) -> None:
    with pytest.raises(UsageError, match="2  SQLite"):
        chosen_option(DATABASES, "approve", word)


def test_a_question_is_shown_with_its_options() -> None:
    assert question_text(TOOL).endswith("\n  1  Allow once\n  2  Allow always\n  3  Reject")
    assert question_line(TOOL) == ("Which database? (one) (1 Allow once; 2 Allow always; 3 Reject)")
