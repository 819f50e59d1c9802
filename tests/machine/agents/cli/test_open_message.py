"""The message that an agent with a transcript is writing, read off its screen."""

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.resources import MessageKind
from outrider.machine.agents.cli.open_message import OpenMessage
from outrider.machine.agents.cli.transcripts.transcript import Piece, ToolCall, Transcript
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.guards import Guards
from outrider.machine.sessions.record import SessionRecord
from tests.machine.agents.cli.test_screen import CAPTURES
from tests.machine.agents.cli.test_spec import read_cli_specs

SPECS = {spec.record: spec for spec in read_cli_specs([BUILT_IN_DIRECTORY])}
RecordName = Literal["aider", "claude", "codex", "gemini", "opencode"]
PROMPT = "\u276f"
HELLO = f"{PROMPT} hello"
GUARDS = Guards(None, None, " ")


class RecordedTranscript(Transcript):
    """A transcript that the test writes."""

    _is_running = False

    @property
    def unfinished_count(self) -> int:
        return int(self._is_running)

    def poll(self) -> bool:
        return False

    def activity(self) -> None:
        return None

    def open_calls(self) -> list[ToolCall]:
        return []

    def prompt(self, text: str) -> None:
        """Record a message of the user."""
        key = f"prompt {len(self._pieces)}"
        self._prompts.append((key, text))
        self._pieces.append(Piece(key, "user", "text", text, 1, prompt=True))

    def answer(self, text: str, *, is_thought: bool = False) -> None:
        """Record a complete message of the agent."""
        key = str(len(self._pieces))
        kind: MessageKind = "thinking" if is_thought else "text"
        self._pieces.append(Piece(key, "assistant", kind, text, 1))

    def call(self, *, at: int, is_running: bool) -> None:
        """Record a tool call."""
        self._pieces.append(Piece("call", "assistant", "tool_call", "{}", at))
        self._is_running = is_running


class OpenMessageRig:
    """An agent's transcript and the message that is read off its screen."""

    def __init__(self, folder: Path, record: RecordName = "claude") -> None:
        pattern = SPECS[record].open_message
        assert pattern is not None
        self._pattern = pattern
        self.transcript = RecordedTranscript({}, "conversation")
        self.journal = Journal(folder / "journal.db")
        self.record = SessionRecord(
            id="session_x", kind="cli", type="x", name="X", path="/", model=None,
            created_at=1, last_activity_at=1,
        )  # fmt: skip
        self.journal.save_session(self.record)
        self.restart()

    def restart(self) -> None:
        """Read the screen as a daemon does that has just started."""
        self.message = OpenMessage(self._pattern, self.transcript, self.record, self.journal)

    def shows(self, *lines: str) -> dict[str, str]:
        """Return the open texts on a screen of Claude Code that ends with these lines."""
        footer = ["", "✻ Thinking… (3s)", "", "─" * 40, PROMPT, "─" * 40, "  esc to interrupt"]
        return self.message.texts("\n".join([*lines, *footer]))

    def ids(self) -> list[str]:
        """Return the ids of the chat."""
        self.message.assign_id()
        ids = self.journal.message_ids(self.record.id)
        return [message.id for message in self.transcript.messages(ids, GUARDS)]


@pytest.fixture
def rig(tmp_path: Path) -> OpenMessageRig:
    rig = OpenMessageRig(tmp_path)
    rig.transcript.prompt("hello")
    return rig


SLOWLY = "Hello from stub, slowly. word1 word2 word3"


@pytest.mark.parametrize("record", ["aider", "codex", "gemini", "opencode"])
def test_the_screen_of_a_writing_agent_gives_the_text_of_its_open_message(
    record: RecordName, tmp_path: Path
) -> None:
    rig = OpenMessageRig(tmp_path, record)
    (text,) = rig.message.texts((CAPTURES / record / "generating.txt").read_text()).values()
    assert text.startswith(SLOWLY)


@pytest.mark.parametrize("record", ["claude", "codex", "gemini", "opencode"])
@pytest.mark.parametrize("state", ["waiting_llm", "approval"])
def test_a_screen_without_an_answer_has_no_open_message(
    record: RecordName, state: str, tmp_path: Path
) -> None:
    capture = CAPTURES / record / f"{state}.txt"
    if not capture.exists():
        return
    rig = OpenMessageRig(tmp_path, record)
    texts = rig.message.texts(capture.read_text())
    assert not any("word" in text for text in texts.values())


def test_a_complete_message_gets_the_id_of_its_open_message(rig: OpenMessageRig) -> None:
    (first,) = rig.shows(HELLO, "", "● One")
    assert rig.shows(HELLO, "", "● One", "", "  - two") == {first: "One\n\n- two"}
    rig.transcript.answer("I think", is_thought=True)
    assert rig.shows(HELLO, "", "● One", "", "  - two", "  - three") == {
        first: "One\n\n- two\n- three"
    }
    rig.transcript.answer("**One**\n\n- two\n- three")
    assert rig.ids()[-1] == first
    assert rig.shows(HELLO, "", "● One", "", "  - two", "  - three") == {}


def test_each_message_of_a_turn_gets_its_own_id(rig: OpenMessageRig) -> None:
    (first,) = rig.shows(HELLO, "● I will use a tool.")
    rig.transcript.answer("I will use a tool.")
    assert rig.shows(HELLO, "● I will use a tool.", "● Bash(echo hi)", "  ⎿  hi") == {}
    (second,) = rig.shows(HELLO, "● Bash(echo hi)", "  ⎿  hi", "● Done")
    rig.transcript.answer("Done.")
    assert rig.ids()[1:] == [first, second]


def test_the_id_is_the_same_after_a_restart(rig: OpenMessageRig) -> None:
    (first,) = rig.shows("● One")
    rig.restart()
    assert rig.shows("● One", "  two") == {first: "One\ntwo"}
    rig.transcript.answer("One\ntwo")
    assert rig.ids()[-1] == first


def test_a_message_that_was_never_recorded_gives_its_id_to_no_other(rig: OpenMessageRig) -> None:
    (first,) = rig.shows("● One")
    rig.transcript.prompt("again")
    rig.transcript.answer("Two")
    assert first not in rig.ids()


def test_the_answer_before_a_prompt_is_not_an_open_message(rig: OpenMessageRig) -> None:
    """The screen shows it until the agent has drawn the next message of the user."""
    rig.transcript.answer("# One\n\ntwo")
    rig.transcript.prompt("again")
    assert rig.shows("● One", "", "  two") == {}


def test_an_open_message_longer_than_the_screen_is_joined(rig: OpenMessageRig) -> None:
    lines = [f"line {number}" for number in range(1, 60)]
    rest = [f"  {line}" for line in lines[1:]]
    (first,) = rig.shows("● line 1", *rest[:20])
    assert rig.shows(*rest[4:30]) == {first: "\n".join(lines[:31])}
    assert rig.shows(*rest[27:40]) == {first: "\n".join(lines[:41])}
    assert rig.shows("half of", "a screen") == {first: "\n".join(lines[:41])}
    # It has moved by more than a screen: what is between is not known.
    assert rig.shows(*rest[45:]) == {first: "\n".join(lines[:41])}


def test_the_rest_of_a_long_message_of_the_user_is_not_the_answer(tmp_path: Path) -> None:
    """aider shows it above the answer, with nothing in between."""
    rig = OpenMessageRig(tmp_path, "aider")
    rig.transcript.prompt("one\ntwo wide\n\nthree")
    asked = "> one\ntwo\nwide\n\nthree\n"
    assert rig.message.texts("> one\ntwo\n") == {}
    assert rig.message.texts(asked) == {}
    (text,) = rig.message.texts(f"{asked}\nThe answer").values()
    assert text == "The answer"


@pytest.mark.parametrize(
    "moving", ["█░        ", "   ░█     ", "        ░█", "#=        ", "  =#      "]
)
def test_a_wait_of_aider_is_not_the_answer(moving: str, tmp_path: Path) -> None:
    rig = OpenMessageRig(tmp_path, "aider")
    rig.transcript.prompt("hello")
    waits = f"{moving} Waiting for openai/stub-model"
    assert rig.message.texts(f"> hello\n\n{waits}\n") == {}
    assert rig.message.texts(f"{waits}\n") == {}
    assert rig.message.texts("> hello\n\nThe answer\n") != {}


def test_an_open_message_whose_beginning_was_not_shown_is_not_reported(rig: OpenMessageRig) -> None:
    assert rig.shows("  line 20", "  line 21") == {}


@pytest.mark.fuzz
@given(
    screens=st.lists(
        st.lists(st.sampled_from(["● One", "  two", "", HELLO, "● Bash(x)", "✻ y…", "─" * 20]))
    )
)
def test_any_screen_can_be_read(
    screens: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rig = OpenMessageRig(tmp_path_factory.mktemp("rig"))
    for screen in screens:
        assert len(rig.shows(*screen)) <= 1
