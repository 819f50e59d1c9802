"""Names hold nothing that a terminal would act on; the rest is escaped before it is shown."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.enrollment import MachineInfo
from outrider.contract.errors import ApiError, checked_name
from outrider.contract.text import (
    MAX_NAME,
    Name,
    escaped,
    escaped_lines,
    is_blank,
    is_printable,
    printable,
)

UNSAFE = ["\x00", "\t", "\n", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066"]


@pytest.mark.parametrize("letter", UNSAFE)
@pytest.mark.parametrize("place", ["{}", "{}ab", "a{}b", "ab{}"])
def test_a_name_with_a_control_character_is_refused(letter: str, place: str) -> None:
    name = place.format(letter)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(name), type=Name)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"hostname": name, "platform": "linux"}, MachineInfo)
    with pytest.raises(ApiError) as caught:
        checked_name(name, "nickname")
    assert caught.value.status == 400
    assert letter not in caught.value.message
    assert [detail.path for detail in caught.value.details] == ["nickname"]


@pytest.mark.parametrize(
    "name", ["", "box", "Ada büro 🎉", "ورشة", "a b-c_d.e/f:g", "x" * MAX_NAME]
)
def test_a_name_that_people_use_is_kept(name: str) -> None:
    assert msgspec.json.decode(msgspec.json.encode(name), type=Name) == name
    assert checked_name(name, "name") == printable(name) == name


def test_a_name_has_an_end() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode("x" * (MAX_NAME + 1)), type=Name)
    with pytest.raises(ApiError, match="longer than 256"):
        checked_name("x" * (MAX_NAME + 1), "name")


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(UNSAFE)))
def test_what_is_made_printable_is_a_name(text: str) -> None:
    made = printable(text)
    assert is_printable(made)
    assert len(made) == len(text)
    assert made == text or not is_printable(text)


@given(st.text(st.characters() | st.sampled_from(UNSAFE)))
def test_what_is_escaped_is_one_line_without_control_characters(text: str) -> None:
    assert is_printable(escaped(text))
    assert all(map(is_printable, escaped_lines(text).split("\n")))
    assert escaped_lines(text).count("\n") == text.count("\n")


def test_an_escape_sequence_can_be_read() -> None:
    assert escaped("1.0\x1b[2J\n\u202eé") == "1.0\\x1b[2J\\n\\u202eé"


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000"])
def test_spaces_of_other_languages_are_not_escaped(space: str) -> None:
    assert escaped(f"Quoi{space}?\t") == f"Quoi{space}?\\t"


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\x00\x01", "\x1b\x7f\x9b", "\u200b\ufeff", "\u2028\u202e"]
)
def test_text_without_a_visible_character_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "\x00a", " . ", "é", "👩🏽\u200d🔧", "\ue000", "\U0001fae9"])
def test_text_with_one_is_not(text: str) -> None:
    """Whether or not this Python knows the character: private and unassigned ones count."""
    assert not is_blank(text)
