"""The chat that is read off a terminal's history."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.machine.agents.cli.keyboard import lines_to_type
from outrider.machine.agents.cli.scrollback import Scrollback
from outrider.machine.agents.cli.spec import Input, MultiLine
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_log import ChatLog, chat_file
from outrider.machine.sessions.guards import Guards
from outrider.machine.sessions.record import SessionRecord

START = ["Welcome", "to the agent"]
GUARDS = Guards(r"^[!/]", None, "\u2060")
KEYS = Input(single_line=True, multi_line=MultiLine(begin="!multi {token}", end="!end {token}"))


class Terminal:
    """A terminal's history, and the chat that is read off it."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "journal.db")
        self.record = SessionRecord(
            id="session_x", kind="cli", type="x", name="X", path="/", model=None,
            created_at=1, last_activity_at=1,
        )  # fmt: skip
        self.folder = folder
        self.lines = list(START)
        self.open()
        self.scrollback.read_turn(self.lines)

    def open(self) -> None:
        """Begin to read it, as a daemon that starts does."""
        chat = ChatLog(chat_file(self.folder / "chats", self.record.id), lambda: 1000)
        self.scrollback = Scrollback(
            chat,
            "> ",
            lambda key, text: lines_to_type(KEYS, GUARDS, key, text),
            self.record,
            self.journal,
        )

    def shows(self, *lines: str) -> None:
        self.lines += lines

    def asks(self, *lines: str, said: str = "") -> None:
        """Show a question, the end of it without a line break, behind what was said."""
        self.lines += [said + lines[0], *lines[1:]]
        self.scrollback.add_question(self.lines, "".join("".join(lines).split()))

    def answered(self, typed: str) -> None:
        self.lines[-1] += typed

    def chat(self) -> list[tuple[str, str]]:
        """Read what is new, and return the whole chat."""
        self.scrollback.read_turn(self.lines)
        return [(message.role, message.content) for message in self.scrollback.messages()]


@pytest.fixture
async def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


async def test_the_guard_of_a_message_is_not_part_of_the_chat(terminal: Terminal) -> None:
    terminal.scrollback.add_sent_message("msg_1", "!exit")
    terminal.shows("> \u2060!exit", "I will not.")
    assert terminal.chat() == [("user", "!exit"), ("assistant", "I will not.")]


async def test_a_message_typed_line_by_line_is_one_message(terminal: Terminal) -> None:
    terminal.scrollback.add_sent_message("msg_1", "one\n\n!two")
    terminal.shows("> !multi 1", "one", "", "\u2060!two", "!end 1", "Two lines.")
    assert terminal.chat() == [("user", "one\n\n!two"), ("assistant", "Two lines.")]


async def test_only_messages_read_off_the_terminal_have_the_source_screen(
    terminal: Terminal,
) -> None:
    terminal.scrollback.add_sent_message("msg_1", "hello")
    terminal.shows("> hello", "One", "  two")
    terminal.chat()
    assert [m.source for m in terminal.scrollback.messages()] == [None, "screen"]
    terminal.open()
    assert [m.source for m in terminal.scrollback.messages()] == [None, "screen"]


async def test_the_text_being_written_has_the_id_of_its_later_message(
    terminal: Terminal,
) -> None:
    terminal.scrollback.add_sent_message("msg_1", "hello")
    terminal.shows("> hello", "", "One")
    first = terminal.scrollback.open_texts(terminal.lines)
    terminal.shows("two")
    terminal.asks("Sure?", "y/n:", said="three ")
    terminal.answered("y")
    later = terminal.scrollback.open_texts(terminal.lines)
    terminal.chat()
    _, answer = terminal.scrollback.messages()
    assert first == {answer.id: "One"}
    assert later == {answer.id: "One\ntwo\nthree "}
    assert terminal.scrollback.open_texts(terminal.lines) == {}


async def test_no_text_is_open_after_typing_in_the_terminal(
    terminal: Terminal,
) -> None:
    terminal.shows("> typed", "answer")
    assert terminal.scrollback.open_texts(terminal.lines) == {}
    terminal.scrollback.add_sent_message("msg_1", "hello")
    terminal.shows("> hello", "One", "> typed", "two")
    assert terminal.scrollback.open_texts(terminal.lines) == {}
    assert terminal.scrollback.open_texts(terminal.lines[-2:]) == {}  # the rest has scrolled off


async def test_a_question_and_its_answer_are_left_out_of_the_chat(terminal: Terminal) -> None:
    terminal.shows("Let me see.")
    terminal.asks("Tool: ls", "", "Sure? [y/N]:", said="I use a tool. ")
    terminal.answered(" y")
    terminal.shows("Sure? [y/N]: is what I asked.")
    assert terminal.chat() == [
        ("assistant", "Let me see.\nI use a tool. \nSure? [y/N]: is what I asked.")
    ]


async def test_a_message_that_quotes_its_question_is_kept(terminal: Terminal) -> None:
    """As in a Python console: the question stands in the line that was typed, too."""
    terminal.scrollback.add_sent_message("msg_1", "input('y or n?') and None")
    terminal.shows("> input('y or n?') and None")
    terminal.asks("y or n?")
    terminal.answered("y")
    assert terminal.chat() == [("user", "input('y or n?') and None")]


async def test_questions_are_left_out_after_a_restart(terminal: Terminal) -> None:
    for number in range(3):
        terminal.asks(f"Number {number}?", "y/n:")
        terminal.open()
        terminal.answered("y")
        terminal.shows(f"answer {number}")
    assert terminal.chat() == [("assistant", "answer 0\nanswer 1\nanswer 2")]


async def test_a_question_that_the_agent_has_removed_changes_nothing(terminal: Terminal) -> None:
    terminal.asks("Sure?", "y/n:")
    del terminal.lines[-2:]
    terminal.shows("done")
    assert terminal.chat() == [("assistant", "done")]


async def test_a_question_that_is_not_at_the_end_is_not_recorded(terminal: Terminal) -> None:
    terminal.shows("Sure? y", "done")
    terminal.scrollback.add_question(terminal.lines, "Sure?")
    assert terminal.chat() == [("assistant", "Sure? y\ndone")]


line = st.sampled_from(["", "> ", "> typed", "y/n: y", "y/n:", "Sure?", "words", "> \u2060!x"])


@pytest.mark.fuzz
@given(
    steps=st.lists(
        st.lists(line | st.text(max_size=8), max_size=6)
        | st.tuples(line, line)
        | line
        | st.integers(0, 9),
        max_size=12,
    )
)
async def test_any_history_can_be_read(
    steps: list[object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What was read stays as it is, whatever comes, and whatever the terminal has dropped."""
    terminal = Terminal(tmp_path_factory.mktemp("terminal"))
    shown: list[tuple[str, str]] = []
    for number, step in enumerate(steps):
        match step:
            case list():
                terminal.shows(*step)
            case tuple():
                terminal.asks(*step)
            case str():
                terminal.scrollback.add_sent_message(f"msg_{number}", step)
            case int():
                del terminal.lines[:step]
        before, shown = shown, terminal.chat()
        assert shown[: len(before)] == before
    terminal.open()
    assert [m.content for m in terminal.scrollback.messages()] == [text for _, text in shown]
    terminal.journal.close()
