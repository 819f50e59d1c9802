"""Every screen that was captured of the real agents is judged right by its provider file."""

from pathlib import Path

import pytest

from outrider.daemon.agents.cli.provider_file import read_provider_files
from outrider.daemon.agents.cli.screen import Judge
from outrider.daemon.agents.provider_file import BUILT_IN

CAPTURES = Path(__file__).with_name("captures")

CLAUDE = {
    "idle": [
        "after_approve", "after_reject", "after_reject_file", "answered", "ask", "exited",
        "hang_interrupted", "idle", "interrupted",
    ],
    "generating": ["generating", "waiting_llm", "error_retry"],
    "waiting_approval": ["approval", "approval_file", "trust_dialog"],
    "error": ["error400", "first_run"],
}  # fmt: skip
"""What each screen shows, without its title. (That a program has ended is tmux's to tell.)"""


def judge(kind: str) -> Judge:
    (file,) = [file for file in read_provider_files([BUILT_IN]) if file.type == kind]
    return Judge(file)


def capture(agent: str, state: str) -> str:
    return (CAPTURES / agent / f"{state}.txt").read_text()


@pytest.mark.parametrize(
    ("status", "state"), [(status, state) for status, states in CLAUDE.items() for state in states]
)
def test_claude_code(status: str, state: str) -> None:
    assert judge("claude-code").read(capture("claude", state), "✳ Claude Code").status == status


def test_no_capture_is_forgotten() -> None:
    known = {state for states in CLAUDE.values() for state in states}
    assert {path.stem for path in (CAPTURES / "claude").glob("*.txt")} == known


def test_the_title_alone_tells_that_claude_code_is_busy() -> None:
    shown = judge("claude-code").read(capture("claude", "idle"), "⠂ some title")
    assert shown.status == "generating"


def test_a_question_has_its_text_and_its_options() -> None:
    question = judge("claude-code").read(capture("claude", "approval"), "").question
    assert question is not None
    assert question.tool
    assert question.message == (
        "Bash command\n\ntouch zzz\nRun: touch zzz\n\nDo you want to proceed?"
    )
    assert [(o.option.kind, o.keys) for o in question.offers] == [
        ("allow_once", ("1",)),
        ("allow_always", ("2",)),
        ("reject_once", ("3",)),
    ]


def test_folder_trust_is_a_question_about_no_tool() -> None:
    question = judge("claude-code").read(capture("claude", "trust_dialog"), "").question
    assert question is not None
    assert not question.tool
    assert [o.option.kind for o in question.offers] == ["allow_once", "reject_once"]


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
