"""aider's history and log, as the chat that they tell of."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from outrider.contract.ids import derived_id
from outrider.contract.resources import Message
from outrider.machine.agents.cli.transcripts.aider_transcript import AiderTranscript
from outrider.machine.sessions.guards import Guards

ID = "d0711f9a-50c0-5883-8cc4-4a6f3e3f8d11"
START = """
# aider chat started at 2026-11-20 22:00:00

> Aider v0.86.2  
> Model: openai/stub-model with diff edit format  
"""  # noqa: W291  # aider ends its lines so


class History:
    """The two files, written as aider does: each piece at once."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / ".aider" / "chats"
        self.folder.mkdir(parents=True)
        self.transcript = AiderTranscript({"HOME": str(home)}, ID)
        self.write(START)

    def write(self, text: str, kind: Literal["md", "jsonl"] = "md", *, poll: bool = True) -> None:
        with (self.folder / f"{ID}.{kind}").open("a") as stream:
            stream.write(text)
        if poll:
            self.transcript.poll()

    def user(self, text: str) -> None:
        self.write("\n" + "  \n".join(f"#### {line}" for line in text.splitlines()) + "  \n")

    def answer(self, text: str, at: int = 2_000_000_000) -> None:
        self.write(f"\n{text}\n\n")
        self.own("Tokens: 2.3k sent, 9 received.")
        self.event(at)

    def event(self, at: int = 2_000_000_000) -> None:
        self.write(json.dumps({"event": "message_send", "time": at}) + "\n", "jsonl")

    def failure(self) -> str | None:
        return self.transcript.failure

    def own(self, text: str) -> None:
        self.write(f"> {text}  \n")

    def chat(self, ids: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        return [(m.role, m.content) for m in self.transcript.messages(ids or {}, Guards())]


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_a_turn(history: History) -> None:
    history.user("hello")
    assert history.transcript.activity() == "busy"
    history.answer("Hi.\n\n> a quote\n\n#### a heading\n\n```\n> code\n```", at=2_000_000_000)
    assert history.transcript.activity() is None
    assert history.transcript.model == "openai/stub-model"
    assert history.chat() == [
        ("user", "hello"),
        ("assistant", "Hi.\n\n> a quote\n\n#### a heading\n\n```\n> code\n```"),
    ]


def test_messages_of_many_lines_are_exact(history: History) -> None:
    text = "several\nlines\n\n  with  spaces  \n#### and\n> marks"
    history.user(text)
    assert history.chat() == [("user", text)]
    assert history.transcript.find_prompt(text + "\n ", 0) == "0"
    assert history.transcript.find_prompt(text, 1) is None


def test_ids_and_timestamps_are_the_same_for_a_new_reader(history: History, tmp_path: Path) -> None:
    history.user("one")
    history.answer("first", at=2_000_000_000)
    history.user("two")
    history.answer("second", at=2_000_000_007)
    ids = {"0": derived_id("msg", 1_999_999_999_123, "a")}
    found = history.transcript.messages(ids, Guards())
    assert found[0].id == ids["0"]
    stamps = [message.timestamp for message in found]
    assert stamps == [1_999_999_999_123, 2_000_000_000_000, 2_000_000_000_000, 2_000_000_007_000]
    again = AiderTranscript({"HOME": str(tmp_path)}, ID)
    again.poll()
    assert again.messages(ids, Guards()) == found


def test_what_aider_says_itself(history: History) -> None:
    history.user("run it")
    history.answer("Run this:\n\n```bash\ntouch a\n```")
    before = history.transcript.open_calls()
    history.own("touch a")
    assert history.transcript.open_calls() == before
    history.own("Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: y")
    assert history.transcript.open_calls() != before
    history.own("Running touch a")
    history.write("> Commit a1cc990 a title\n\nand a body\n\n> quoted  \n")
    history.own("You can use /undo")
    assert [text for role, text in history.chat() if role == "system"] == [
        "touch a",
        "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: y",
        "Running touch a",
        "Commit a1cc990 a title\n\nand a body\n\n> quoted",
        "You can use /undo",
    ]


def test_what_a_resumed_aider_says_at_its_start_is_no_message(history: History) -> None:
    history.user("hello")
    history.answer("Hello.")
    history.user("cut off")
    before = history.chat()
    history.user("/exit")
    history.write(START + "> Restored previous conversation history.  \n")
    assert history.chat() == before
    history.user("and on")
    history.own("Added x.py to the chat")
    assert history.chat() == [*before, ("user", "and on"), ("system", "Added x.py to the chat")]


def test_an_answer_waits_for_the_log_to_tell_its_time(history: History) -> None:
    history.user("hello")
    history.write("\nHi.\n\n")
    assert history.chat() == [("user", "hello")]
    history.write("> Tokens: 2.3k sent, 9 received.  \n")
    assert history.chat() == [("user", "hello")]
    history.event()
    assert history.chat() == [("user", "hello"), ("assistant", "Hi.")]


@pytest.mark.parametrize("usage", ["", "> Tokens: 2.3k sent, 9 received.  \n"])
def test_an_answer_without_a_time_is_shown_when_something_follows(
    history: History, usage: str
) -> None:
    chat = [("user", "hello"), ("assistant", "Hi.")]
    history.user("hello")
    history.write(f"\nHi.\n\n{usage}")
    assert history.chat() == chat[:1]
    history.transcript.end_turn()
    assert history.chat() == chat
    history.user("again")
    assert history.chat() == [*chat, ("user", "again")]
    again = AiderTranscript({"HOME": str(history.home)}, ID)
    again.poll()
    assert again.messages({}, Guards()) == history.transcript.messages({}, Guards())


def test_an_answer_keeps_its_time_when_the_model_then_says_nothing(history: History) -> None:
    history.user("hello")
    history.answer("Hi.", at=2_000_000_000)
    before = history.transcript.messages({}, Guards())
    history.own("Tokens: 2.3k sent, 0 received.")
    history.event(2_000_000_009)
    assert history.transcript.messages({}, Guards()) == before


WRITES: list[tuple[Literal["md", "jsonl"], str]] = [
    ("md", START),
    ("md", "\n#### one  \n####   \n#### line  \n"),
    ("md", "\nFirst.\n\n- a\n\n- b\n\n"),
    ("md", "> Tokens: 2.3k sent, 9 received.\nCost: $0.01 message.  \n"),
    ("jsonl", '{"event": "message_send", "time": 2000000001}\n'),
    ("md", "> touch a  \n"),
    ("md", "> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: y  \n"),
    ("md", "> Commit a1cc990 a title\n\nand a body  \n"),
    ("jsonl", '{"event": "message_send_starting", "time": 2000000002}\n'),
    ("md", "\nFixed.\n\n"),  # aider has sent an error to the model, which answers again
    ("md", "> Tokens: 2.3k sent, 9 received.  \n"),
    ("jsonl", '{"event": "message_send", "time": 2000000003}\n'),
    ("md", "\n#### two  \n"),
    ("md", ">  \n>  \n> ^C again to exit  \n"),
    ("md", "\nSec\n\n"),  # interrupted
    ("md", "\n#### /exit  \n"),
    ("md", START),
    ("md", "\n#### three  \n"),
    ("md", "\nThird.\n\n"),
    ("md", "> Tokens: 2.3k sent, 9 received.  \n"),
    ("jsonl", '{"event": "message_send", "time": 2000000005}\n'),
]
"""What aider writes in three turns, in order."""


def test_what_was_returned_at_any_moment_stays(tmp_path: Path) -> None:
    """A reader sees the files up to any byte, not only whole writes."""
    ids = {"0": derived_id("msg", 1_999_999_999_123, "a")}
    complete = History(tmp_path / "complete")
    for kind, text in WRITES[1:]:
        complete.write(text, kind)
    chat = complete.transcript.messages(ids, Guards())
    assert [message.content for message in chat if message.role != "system"] == [
        "one\n\nline", "First.\n\n- a\n\n- b", "Fixed.", "two", "Sec", "three", "Third."
    ]  # fmt: skip
    for number, (kind, text) in enumerate(WRITES[1:], 1):
        for cut in range(len(text)):
            history = History(tmp_path / f"{number} {cut}")
            for earlier, whole in WRITES[1:number]:
                history.write(whole, earlier, poll=False)
            history.write(text[:cut], kind)
            early = history.transcript.messages(ids, Guards())
            completed = len(early) - history.transcript.unfinished_count
            history.write(text[cut:], kind)
            for later, whole in WRITES[number + 1 :]:
                history.write(whole, later)
            assert history.transcript.messages(ids, Guards()) == chat, (text, cut)
            assert [identity(message) for message in early] == [
                identity(message) for message in chat[: len(early)]
            ]
            for message, same in zip(early[:completed], chat, strict=False):
                # The first lines of a message of the user look like all of it.
                same_text = message.content == same.content
                assert same_text or (
                    message.role == "user" and same.content.startswith(message.content)
                )


def identity(message: Message) -> tuple[int, str, int, str]:
    return message.index, message.id, message.timestamp, message.role


def test_what_a_turn_costs_is_no_message(history: History) -> None:
    history.user("hello")
    history.write(
        "\nHi.\n\n> Tokens: 2.3k sent, 1k cache hit, 9 received.\nCost: $0.01 message.  \n"
    )
    history.event()
    assert history.chat() == [("user", "hello"), ("assistant", "Hi.")]


def test_a_failure_lasts_until_an_answer_or_the_next_message(history: History) -> None:
    said = "litellm.BadRequestError: OpenAIException - no"
    history.user("hello")
    history.own(said)
    assert history.failure() == said
    history.own("Retrying in 0.2 seconds...")
    history.answer("Hi.")
    assert history.failure() is None
    history.own(said)
    history.user("again")
    assert history.failure() is None
    history.own(said)
    history.own("^C again to exit")
    assert history.failure() is None
