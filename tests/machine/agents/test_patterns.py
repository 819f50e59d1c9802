"""Patterns of provider files: Python's syntax, and a limit on the time that they take."""

import re

import pytest

from outrider.machine.agents.patterns import WINDOW, Pattern, PatternTimeout
from outrider.machine.sessions.guards import Guards

pytestmark = pytest.mark.timeout(60)  # without the limit, some of these take years

EXPONENTIAL = "(a|aa)+b"
CRAFTED = "a" * 70


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_exponential_search_ends() -> None:
    with pytest.raises(PatternTimeout, match="correct the provider file") as error:
        Pattern(EXPONENTIAL).search(CRAFTED)
    assert EXPONENTIAL in str(error.value)


def test_a_pattern_is_not_run_for_some_time_after_a_timeout() -> None:
    clock = Clock()
    pattern = Pattern(EXPONENTIAL, clock=clock)
    with pytest.raises(PatternTimeout):
        pattern.search(CRAFTED)
    with pytest.raises(PatternTimeout):
        pattern.search("ab")
    clock.now += WINDOW
    assert pattern.search("ab") is not None


def test_a_timeout_counts_as_the_caller_says() -> None:
    assert Pattern(EXPONENTIAL).matches(CRAFTED, otherwise=True)
    assert not Pattern(EXPONENTIAL).matches(CRAFTED, otherwise=False)


def test_a_message_is_escaped_if_its_guard_times_out() -> None:
    assert Guards(before=f"^/|{EXPONENTIAL}").add(CRAFTED) == f" {CRAFTED}"


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        (r"^a{2,3}$", "x\naaa"),
        (r"a{2}b{,1}c{1,}", "aabc"),
        (r"{e}", "{e}"),
        (r"a{e<=1}", "a{e<=1}"),
        (r"(?:word){i}", "word{i}"),
        (r"\{\N{BULLET}[{]x{}", "{•{x{}"),
        (r"(?P<key>\w)\Z", "a\nb"),
        (r"(?<=x)y(?!z)", "xyz xy"),
    ],
)
def test_it_finds_what_python_finds(text: str, searched: str) -> None:
    found, expected = (
        Pattern(text, re.MULTILINE).search(searched),
        re.search(text, searched, re.MULTILINE),
    )
    assert found is not None
    assert expected is not None
    assert (found.span(), found.groupdict()) == (expected.span(), expected.groupdict())


@pytest.mark.parametrize("text", ["(", "(?R)", "a{99999999999999999999}", r"\p{L}", "(" * 10_000])
def test_what_python_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        Pattern(text)
