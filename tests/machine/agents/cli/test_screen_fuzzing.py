"""Screens of any content, judged by every provider file that comes with Outrider."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.machine.agents.cli.screen import MAX_QUESTION, ScreenRules
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from tests.machine.agents.cli.test_screen import CAPTURES
from tests.machine.agents.cli.test_spec import read_cli_specs

pytestmark = pytest.mark.fuzz

WIDTH, HEIGHT = 120, 50
JUDGES = {file.type: ScreenRules(file) for file in read_cli_specs([BUILT_IN_DIRECTORY])}
LINES = sorted({line for path in CAPTURES.glob("*/*.txt") for line in path.read_text().split("\n")})

lines = st.one_of(
    st.sampled_from(LINES),
    st.text(max_size=WIDTH),
    st.builds(str.__mul__, st.sampled_from(["─", " ", "> ", "┃ ", "1. ", "a"]), st.integers(1, 60)),
)
screens = st.lists(lines, max_size=HEIGHT).map("\n".join)
titles = st.sampled_from(["", "✳ x", "⠂ x", "✋ x", "◇ Ready"]) | st.text(max_size=1000)


@pytest.mark.parametrize("kind", JUDGES)
@given(screen=screens, title=titles)
def test_any_screen_can_be_judged(kind: str, screen: str, title: str) -> None:
    judge = JUDGES[kind]
    reading = judge.read(screen, title)
    judge.input_is_empty(screen)
    assert (reading.question is not None) == (reading.status == "waiting_approval")
    assert (reading.error is not None) == (reading.status == "error")
    assert reading.rows <= screen.count("\n") + 1
    if reading.question is not None:
        assert len(reading.question.message) <= MAX_QUESTION
        assert all(offer.keys and offer.option.id for offer in reading.question.offers)
        assert "".join(screen.split()).endswith(reading.question.drawn)


@pytest.mark.parametrize("kind", JUDGES)
@given(line=lines)
def test_a_screen_of_one_line_repeated(kind: str, line: str) -> None:
    """What a pattern that backtracks would take longest for."""
    JUDGES[kind].read("\n".join([line] * HEIGHT), "")
