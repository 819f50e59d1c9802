"""Every screen that was captured of the real agents is judged right by its provider file."""

from pathlib import Path

import pytest

from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from tests.machine.agents.cli.test_spec import read_cli_specs

CAPTURES = Path(__file__).with_name("captures")

BUSY = "generating, by the title"

SCREENS: dict[str, dict[str | None, list[str]]] = {
    "claude-code": {
        "idle": [
            "after_approve", "after_reject", "after_reject_file", "answered", "ask", "exited",
            "hang_interrupted", "idle", "interrupted",
        ],
        "generating": ["generating", "waiting_llm", "error_retry"],
        "waiting_approval": [
            "approval", "approval_file", "choices", "review", "trust_dialog",
        ],
        "error": ["error400", "first_run"],
    },
    "codex": {
        "idle": [
            "after_approve", "after_reject", "answered", "idle", "interrupted",
            "interrupted_stream", "tool",
        ],
        "generating": ["error", "error2", "waiting_llm"],
        "waiting_approval": ["approval", "startup", "update"],
        "error": ["error_final", "login", "trust_refused"],
        None: ["exited"],
        # while its answer streams, only the title says that Codex is busy
        BUSY: ["generating", *(f"gen_frame{number}" for number in range(1, 6))],
    },
    "opencode": {
        "idle": [
            "after_approve", "after_reject", "answered", "error_after_esc", "idle", "interrupted",
            "startup",
        ],
        "generating": ["error", "esc_once", "generating"],
        "waiting_approval": ["approval", "approval_always", "approval_file", "question"],
        "error": ["error400"],
        None: ["exited"],
    },
    "gemini-cli": {
        "idle": [
            "after_approve", "after_reject", "answered", "hang_interrupted", "idle", "interrupted",
        ],
        "generating": ["generating", "waiting_llm"],
        "waiting_approval": [
            "approval", "approval_file", "loop_detected", "startup", "trust_dialog",
        ],
        "error": ["error400", "login"],
        None: ["exited"],
    },
    "aider": {
        "idle": [
            "after_approve_shell", "after_ctrl_c", "after_reject", "answered", "idle",
            "interrupted", "startup",
        ],
        "generating": ["error", "exited", "generating", "waiting_llm"],
        "waiting_approval": ["approval_file", "approval_shell"],
        "error": ["error401"],
    },
}  # fmt: skip
"""What each screen shows, without its title. (That a program has ended is tmux's to tell.)"""

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
        for state in states
    ],
)
def test_every_screen(kind: str, status: str, state: str) -> None:
    by_title = status == BUSY
    title = "⠏ stub title | project" if by_title else TITLES.get(kind, "")
    shown = judge(kind).read(capture(FOLDERS[kind], state), title)
    assert shown.status == ("generating" if by_title else status)


@pytest.mark.parametrize("kind", SCREENS)
def test_no_capture_is_forgotten(kind: str) -> None:
    known = {state for states in SCREENS[kind].values() for state in states}
    assert {path.stem for path in (CAPTURES / FOLDERS[kind]).glob("*.txt")} == known


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


def test_a_question_with_several_choices_offers_to_go_on() -> None:
    question = judge("claude-code").read(capture("claude", "choices"), "✳ x").question
    assert question is not None
    assert question.message == "←  ☒ Checks  ☐ DB  ✔ Submit  →\n\nWhich checks shall run?"
    assert [(o.option.label, o.keys) for o in question.offers] == [
        ("[✔] Lint", ("1",)),
        ("[ ] Types", ("2",)),
        ("[ ] Tests", ("3",)),
        ("Next", ("Tab",)),
    ]


def test_the_review_of_answers_can_be_submitted_or_cancelled() -> None:
    question = judge("claude-code").read(capture("claude", "review"), "✳ x").question
    assert question is not None
    assert [(o.option.label, o.option.kind) for o in question.offers] == [
        ("Submit answers", "allow_once"),
        ("Cancel", "reject_once"),
    ]


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


def test_what_gemini_asks() -> None:
    question = judge("gemini-cli").read(capture("gemini", "approval_file"), "").question
    assert question is not None
    assert question.tool
    assert question.message == (
        "? WriteFile  Writing to n.txt\n1 written by stub\nApply this change?"
    )
    assert [(o.option.kind, o.keys) for o in question.offers] == [
        ("allow_once", ("1",)),
        ("allow_always", ("2",)),
        ("reject_once", ("4",)),  # 3 would open an editor in a terminal that nobody sees
    ]


def test_gemini_asks_about_a_folder_and_its_parent() -> None:
    question = judge("gemini-cli").read(capture("gemini", "trust_dialog"), "").question
    assert question is not None
    assert not question.tool
    kinds = [o.option.kind for o in question.offers]
    assert kinds == ["allow_once", "allow_always", "reject_once"]


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


@pytest.mark.parametrize(
    ("kind", "state", "begins", "offers"),
    [
        (
            "codex",
            "approval",
            "Would you like to run the following command?",
            [("allow_once", "1"), ("allow_always", "2"), ("reject_once", "3")],
        ),
        (
            "codex",
            "startup",
            "Folder access",
            [("allow_once", "1 Enter"), ("reject_once", "Escape")],
        ),
        (
            "codex",
            "update",
            "Update available · 0.169.0 → 0.999.0",
            [("allow_once", "1"), ("reject_once", "2"), ("reject_always", "3")],
        ),
        (
            "opencode",
            "approval",
            "△ Permission required",
            [
                ("allow_once", "Enter"),
                ("allow_always", "Right Enter Enter"),
                ("reject_once", "Right Right Enter"),
            ],
        ),
        (
            "opencode",
            "question",
            "stub question",
            [("allow_once", "1"), ("allow_once", "2"), ("reject_once", "Escape")],
        ),
    ],
)
def test_questions_of_the_others(
    kind: str, state: str, begins: str, offers: list[tuple[str, str]]
) -> None:
    question = judge(kind).read(capture(FOLDERS[kind], state), "").question
    assert question is not None
    assert question.message.startswith(begins)
    assert [(o.option.kind, " ".join(o.keys)) for o in question.offers] == offers


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
