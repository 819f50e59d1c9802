"""Gemini CLI's record, as the chat that it tells of."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.machine.agents.cli.transcripts.gemini_transcript import GeminiTranscript
from outrider.machine.sessions.guards import Guards

ID = "11111111-2222-4333-8444-555555555555"
GUARDS = Guards(r"^[\s/?]", None, "\u2060")
CONTEXT = "<session_context>\nThis is the Gemini CLI."


class Record:
    """The file of one conversation."""

    def __init__(self, home: Path, minute: str = "22-34") -> None:
        self.home = home
        folder = home / ".gemini" / "tmp" / "project" / "chats"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"session-2026-11-20T{minute}-{ID[:8]}.jsonl"
        self.transcript = GeminiTranscript({"HOME": str(home)}, ID)
        self.lines({"sessionId": ID, "projectHash": "x", "kind": "main"})

    def lines(self, *lines: dict[str, Any]) -> None:
        with self.path.open("a") as stream:
            for line in lines:
                stream.write(json.dumps(line) + "\n")
        self.transcript.poll()

    def chat(self) -> list[tuple[str, str, str]]:
        return [(m.role, m.kind, m.content) for m in self.transcript.messages({}, GUARDS)]


def user(key: str, *texts: str, second: int = 0, **more: Any) -> dict[str, Any]:
    content = [{"text": text} for text in texts]
    return {"id": key, "timestamp": at(second), "type": "user", "content": content, **more}


def gemini(key: str, text: Any, second: int = 1, **more: Any) -> dict[str, Any]:
    model = "gemini-2.5-pro"
    return {
        "id": key, "timestamp": at(second), "type": "gemini", "content": text, "model": model,
        **more,
    }  # fmt: skip


def at(second: int) -> str:
    return f"2026-11-20T22:35:{second:02}.441Z"


def call(key: str, **result: str) -> dict[str, Any]:
    answer = {"functionResponse": {"id": key, "name": "run_shell_command", "response": result}}
    return {
        "id": key, "name": "run_shell_command", "args": {"command": "touch a"},
        "result": [answer], "status": "success", "timestamp": at(9),
    }  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


def test_a_turn_with_a_tool_is_read(record: Record) -> None:
    record.lines(user("u1", "please"))
    assert record.transcript.activity() == "busy"
    asked = record.transcript.open_calls()
    record.lines(gemini("g1", "I will."))
    assert record.transcript.activity() is None
    assert record.transcript.open_calls() == asked  # the dialog may stand there before this line
    record.lines(gemini("g1", "I will.", toolCalls=[call("c1", output="done")]))
    response = {"functionResponse": {"id": "c1", "response": {"output": "done"}}}
    record.lines({"id": "u2", "timestamp": at(9), "type": "user", "content": [response]})
    record.lines(gemini("g2", "Finished.", 10))
    assert record.transcript.open_calls() != asked
    tool = '{"id":"c1","name":"run_shell_command","input":{"command":"touch a"}}'
    assert record.chat() == [
        ("user", "text", "please"),
        ("assistant", "text", "I will."),
        ("assistant", "tool_call", tool),
        ("tool", "tool_result", "done"),
        ("assistant", "text", "Finished."),
    ]
    assert record.transcript.model == "gemini-2.5-pro"


@pytest.mark.parametrize(
    ("status", "output", "shown", "exit_code"),
    [
        ("success", "done", "completed", None),
        ("success", "Output: no\nExit Code: 2", "failed", 2),
        ("success", "Output: Exit Code: 0\nExit Code: 0\nExit Code: 2", "failed", 2),
        ("success", "Exit Code: " + "9" * 5000, "completed", None),
        ("error", "no such file", "failed", None),
        ("cancelled", "the user said no", "failed", None),
        ("unheard of", "x", None, None),
    ],
)
def test_the_end_of_a_tool_has_status_and_exit_code(
    record: Record, status: str, output: str, shown: str | None, exit_code: int | None
) -> None:
    edited = {"filePath": "/x", "originalContent": "a\n", "newContent": "b\n"}
    ended = call("c1", output=output) | {"status": status, "resultDisplay": edited}
    record.lines(gemini("g1", "", toolCalls=[ended | {"result": None, "status": "executing"}]))
    record.lines(gemini("g1", "", toolCalls=[ended]))
    asked, result = (m.tool for m in record.transcript.messages({}, GUARDS))
    assert asked == result
    assert asked is not None
    assert (asked.kind, asked.title) == ("execute", "touch a")
    assert (asked.status, asked.exit_code) == (shown, exit_code)
    assert [diff.patch for diff in asked.diff] == ["--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"]


def test_a_file_that_was_written_is_new(record: Record) -> None:
    written = {"filePath": "/x", "originalContent": "", "newContent": "b\n", "isNewFile": True}
    record.lines(gemini("g1", "", toolCalls=[call("c1", output="") | {"resultDisplay": written}]))
    tool = record.transcript.messages({}, GUARDS)[0].tool
    assert tool is not None
    assert [diff.patch for diff in tool.diff] == ["--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n"]


def test_a_record_that_another_gemini_has_deleted_before_its_first_message(
    record: Record,
) -> None:
    """Gemini then writes its messages to a new file, whose first line does not have the id."""
    record.path.unlink()
    reader = GeminiTranscript({"HOME": str(record.home)}, ID)
    reader.poll()
    record.lines(user("u1", "please"), gemini("g1", "I will."))
    reader.poll()
    assert [m.content for m in reader.messages({}, GUARDS)] == ["please", "I will."]
    assert reader.find_prompt("please", 0) == "u1"


def test_a_history_that_is_written_again_is_no_chat(record: Record) -> None:
    record.lines(user("u1", "one"), gemini("g1", "first"))
    record.lines(user("u2", "two", second=5), gemini("g2", "second", 6))
    before = record.transcript.messages({}, GUARDS)
    cancelled = {"id": "i", "timestamp": at(7), "type": "info", "content": "Request cancelled."}
    record.lines(cancelled)
    record.lines(user("x1", CONTEXT, "one", second=7), gemini("x2", [{"text": "first"}], 7))
    record.lines(user("x3", "two", second=7))
    record.lines({"$set": {"messages": [user("x1", CONTEXT)]}})
    record.lines(user("u3", "three", second=8))
    found = record.transcript.messages({}, GUARDS)
    assert found[: len(before)] == before
    assert [m.content for m in found[len(before) :]] == ["Request cancelled.", "three"]
    assert record.transcript.prompts == 3


def test_a_message_long_after_a_history_without_an_end_counts(record: Record) -> None:
    record.lines(user("x1", CONTEXT, second=1), user("x2", "old", second=1))
    record.lines(user("u1", "new", second=30))
    assert [text for *_, text in record.chat()] == ["new"]


def test_what_the_user_wrote_counts_and_not_what_a_file_holds(record: Record) -> None:
    typed = [{"text": "look at @a"}]
    record.lines(user("u1", "look at @a", "--- Content ---", "secret", displayContent=typed))
    assert record.chat() == [("user", "text", "look at @a")]


def test_what_kept_a_message_from_being_a_command_is_taken_off(record: Record) -> None:
    record.lines(user("u1", "\u2060/help me"), user("u2", "\u2060  indented"))
    assert record.transcript.find_prompt("/help me", 0) == "u1"
    assert record.transcript.find_prompt("  indented", 1) == "u2"
    ids = {"u1": "msg_1", "u2": "msg_2"}
    found = record.transcript.messages(ids, GUARDS)
    assert [(m.id, m.content) for m in found] == [("msg_1", "/help me"), ("msg_2", "  indented")]


def test_an_error_is_the_failure_of_its_turn(record: Record) -> None:
    said = "[API Error: no]"
    record.lines(user("u1", "one"))
    record.lines({"id": "e", "timestamp": at(1), "type": "error", "content": said})
    assert record.transcript.failure == said
    assert record.chat()[-1] == ("system", "text", said)
    record.lines(user("u2", "two", second=2))
    assert record.transcript.failure is None


def test_the_file_of_a_gemini_that_started_itself_again(tmp_path: Path) -> None:
    first = Record(tmp_path)
    first.path.unlink()  # as Gemini does where nothing was said
    second = Record(tmp_path, minute="22-35")
    second.lines(user("u1", "hello"))
    first.transcript.poll()
    assert [m.content for m in first.transcript.messages({}, GUARDS)] == ["hello"]


def test_a_resumed_gemini_writes_to_its_old_file(tmp_path: Path) -> None:
    old = Record(tmp_path, "22-34")
    old.lines(user("u1", "hello"), gemini("g1", "Hello."))
    new = Record(tmp_path, "22-40")
    new.lines(user("c1", CONTEXT))
    reader = GeminiTranscript({"HOME": str(tmp_path)}, ID)
    reader.poll()
    assert [m.content for m in reader.messages({}, GUARDS)] == ["hello", "Hello."]
    old.lines(user("u2", "and on", second=9000))
    reader.poll()
    assert [m.content for m in reader.messages({}, GUARDS)] == ["hello", "Hello.", "and on"]


def test_a_file_of_another_conversation_is_not_read(tmp_path: Path) -> None:
    record = Record(tmp_path)
    other = GeminiTranscript({"HOME": str(tmp_path)}, ID[:8] + "-0000")
    record.lines(user("u1", "hello"))
    other.poll()
    assert other.prompts == 0


def test_a_new_reader_returns_the_same_messages(record: Record, tmp_path: Path) -> None:
    thought = {"subject": "Plan", "description": "do it"}
    record.lines(user("u1", "one"), gemini("g1", "first", thoughts=[thought]))
    record.lines({"$set": {"summary": "A title"}})
    found = record.transcript.messages({}, GUARDS)
    assert [(m.kind, m.content) for m in found][1] == ("thinking", "Plan\ndo it")
    again = GeminiTranscript({"HOME": str(tmp_path)}, ID)
    again.poll()
    assert again.messages({}, GUARDS) == found
    assert again.title == "A title"
