"""Every screen that was captured of the real agents is judged right by its provider file."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from tests.machine.agents.cli.test_spec import read_cli_specs

CAPTURES = Path(__file__).with_name("captures")

EXPECTED: dict[str, Any] = tomllib.loads((CAPTURES / "expected.toml").read_text())
SCREENS: dict[str, dict[str, str]] = EXPECTED["screens"]

FOLDERS = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "gemini-cli": "gemini",
    "aider": "aider",
}
TITLES = {"claude-code": "✳ Claude Code", "codex": "stub title | project"}


def judge(kind: str) -> ScreenRules:
    (file,) = [file for file in read_cli_specs([BUILT_IN_DIRECTORY]) if file.type == kind]
    return ScreenRules(file)


def capture(agent: str, state: str) -> str:
    return (CAPTURES / agent / f"{state}.txt").read_text()


@pytest.mark.parametrize(
    ("kind", "status", "state"),
    [
        (kind, status, state)
        for kind, screens in SCREENS.items()
        for status, states in screens.items()
        for state in states.split()
    ],
)
def test_each_captured_screen_has_its_status(kind: str, status: str, state: str) -> None:
    by_title = status == "by_title"
    title = "⠏ stub title | project" if by_title else TITLES.get(kind, "")
    shown = judge(kind).read(capture(FOLDERS[kind], state), title)
    assert shown.status == {"by_title": "generating", "none": None}.get(status, status)


@pytest.mark.parametrize("kind", SCREENS)
def test_each_capture_has_an_expected_status(kind: str) -> None:
    listed = set(" ".join(SCREENS[kind].values()).split())
    assert {path.stem for path in (CAPTURES / FOLDERS[kind]).glob("*.txt")} == listed


def test_the_title_alone_tells_that_claude_code_is_busy() -> None:
    shown = judge("claude-code").read(capture("claude", "idle"), "⠂ some title")
    assert shown.status == "generating"


@pytest.mark.parametrize(
    "expected", EXPECTED["questions"], ids=lambda each: f"{each['agent']} {each['screen']}"
)
def test_a_question_has_its_text_and_its_options(expected: dict[str, Any]) -> None:
    kind = expected["agent"]
    shown = capture(FOLDERS[kind], expected["screen"])
    question = judge(kind).read(shown, TITLES.get(kind, "")).question
    assert question is not None
    assert question.tool == expected.get("tool", question.tool)
    assert question.message.startswith(expected.get("message", ""))
    for offer, text in zip(question.offers, expected["offers"], strict=True):
        option, _, label = text.partition(": ")
        assert f"{offer.option.kind} {' '.join(offer.keys)}" == option
        assert offer.option.label == (label or offer.option.label)


def test_the_text_of_a_question_in_a_chat_is_no_question() -> None:
    chat = capture("claude", "approval").rstrip() + "\n" + capture("claude", "idle")
    assert judge("claude-code").read(chat, "✳ x").status == "idle"


def test_an_api_error_counts_only_as_the_last_thing_on_the_screen() -> None:
    reading = judge("claude-code").read(capture("claude", "error400"), "✳ x")
    assert reading.error == "400 stub error 400 as asked"
    assert judge("claude-code").read(capture("claude", "ask"), "✳ x").status == "idle"


@pytest.mark.parametrize(("state", "empty"), [("idle", True), ("hang_interrupted", False)])
def test_what_stands_in_the_input(state: str, empty: bool) -> None:
    assert judge("claude-code").input_is_empty(capture("claude", state)) is empty


@pytest.mark.parametrize(("title", "status"), [("✦  Working… (x)", "generating"), ("", "idle")])
def test_the_title_alone_tells_that_gemini_is_busy(title: str, status: str) -> None:
    assert judge("gemini-cli").read(capture("gemini", "idle"), title).status == status


def test_a_gemini_that_restarts_after_its_dialog_asks_no_more() -> None:
    shown = capture("gemini", "trust_dialog").rstrip()
    shown += "\n Gemini CLI is restarting to apply the trust changes..."
    assert judge("gemini-cli").read(shown, "").status == "generating"


ASKED_BY_AIDER = [
    ("Create new file? (Y)es/(N)o [Yes]:", "yn"),
    ("Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]:", "ynd"),
    ("Run shell commands? (Y)es/(N)o/(S)kip all/(D)on't ask again [Yes]:", "ynsd"),
    ("Add file to the chat? (Y)es/(N)o/(A)ll/(S)kip all/(D)on't ask again [Yes]:", "yansd"),
]


@pytest.mark.parametrize(("line", "ids"), ASKED_BY_AIDER)
def test_what_aider_asks(line: str, ids: str) -> None:
    shown = capture("aider", "approval_file").rstrip().rpartition("\n")[0] + "\n" + line
    question = judge("aider").read(shown, "").question
    assert question is not None
    assert question.message == f"new.txt\n{line}"
    assert "".join(offer.option.id for offer in question.offers) == ids
    # answered, it is none any more
    assert judge("aider").read(f"{shown} n\nSkipping edits", "").status == "generating"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("aider", ["─" * 30, "a" * 120]),
        ("codex", ["  1. a list", *[" " * 60 + "x"] * 48]),
        ("claude-code", ["  1. a list", *[" " * 110 + "x"] * 4]),
    ],
)
def test_no_screen_takes_for_ever(kind: str, lines: list[str]) -> None:
    """Patterns that match one text in many ways took longer than anybody waits."""
    judge(kind).input_is_empty("\n".join(lines))
    assert judge(kind).read("\n".join(lines), "").status != "waiting_approval"
