"""Reading Codex's record."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.ids import is_id
from outrider.machine.agents.cli.transcripts.codex_transcript import THREAD, CodexTranscript
from outrider.machine.agents.cli.transcripts.transcript import RESUMED, milliseconds
from outrider.machine.sessions.guards import Guards

NAME = "01a1fb19-a5ce-71e0-a75a-426013ed9033"
TIME = "2026-11-20T22:35:53.818Z"


class Record:
    """Writes a thread as Codex does."""

    def __init__(self, home: Path) -> None:
        self.home = home
        day = home / ".codex" / "sessions" / "2026" / "11" / "20"
        day.mkdir(parents=True)
        self.path = day / f"rollout-2026-11-20T22-35-24-{NAME}.jsonl"
        self.ordinal = -1

    def add(self, kind: str, **payload: Any) -> None:
        self.ordinal += 1
        entry = {"timestamp": TIME, "ordinal": self.ordinal, "type": kind, "payload": payload}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def says(self, text: str, key: str = "u1") -> None:
        item = {"type": "UserMessage", "id": key, "content": [{"type": "text", "text": text}]}
        self.add("event_msg", type="item_completed", item=item)

    def reader(self, **environment: str) -> CodexTranscript:
        return CodexTranscript({"HOME": str(self.home), **environment}, "conversation")

    def read(self) -> CodexTranscript:
        reader = self.reader(**{THREAD: NAME})
        reader.poll()
        return reader


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


def test_messages_and_turns_are_read(record: Record) -> None:
    record.add("session_meta", id=NAME)
    assert record.read().activity() == "idle"
    record.add("event_msg", type="task_started", turn_id="t1")
    record.add("response_item", type="message", role="developer", content=[{"text": "hidden"}])
    record.add("turn_context", model="stub-model")
    record.says("go\n🎉")
    record.add("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "hm"}])
    record.add("response_item", type="message", role="assistant", content=[{"text": "a\n```"}])
    record.add(
        "response_item", type="function_call", name="exec", arguments='{"cmd":"ls"}', call_id="c1"
    )
    reader = record.read()
    assert (reader.activity(), reader.model, reader.prompts) == ("busy", "stub-model", 1)
    assert [call.id for call in reader.open_calls()] == ["c1"]
    record.add("response_item", type="function_call_output", call_id="c1", output="done")
    record.add("event_msg", type="task_complete", turn_id="t1")
    reader.poll()
    assert (reader.activity(), list(reader.open_calls())) == ("idle", [])
    messages = reader.messages({"u1": "msg_mine"}, Guards())
    assert [(m.role, m.kind, m.content) for m in messages] == [
        ("user", "text", "go\n🎉"),
        ("assistant", "thinking", "hm"),
        ("assistant", "text", "a\n```"),
        ("assistant", "tool_call", '{"id":"c1","name":"exec","input":"{\\"cmd\\":\\"ls\\"}"}'),
        ("tool", "tool_result", "done"),
    ]
    assert messages[0].id == "msg_mine"
    assert all(is_id("msg", message.id) for message in messages[1:])
    assert record.read().messages({"u1": "msg_mine"}, Guards()) == messages


@pytest.mark.parametrize(
    ("output", "status", "exit_code"),
    [
        ("Chunk ID: a\nProcess exited with code 3\nOutput:\nno", "failed", 3),
        ("Exit code: 0\nWall time: 1 s\nOutput:\nExit code: 1", "completed", 0),
        ('{"output":"x","metadata":{"exit_code":1}}', "failed", 1),
        ("exec command rejected by user", None, None),
        ("{", None, None),
    ],
)
def test_the_end_of_a_command_has_status_and_exit_code(
    record: Record, output: str, status: str | None, exit_code: int | None
) -> None:
    arguments = '{"command":["bash","-lc","make test"]}'
    record.add(
        "response_item", type="function_call", name="shell", arguments=arguments, call_id="c1"
    )
    record.add("response_item", type="function_call_output", call_id="c1", output=output)
    call, result = (m.tool for m in record.read().messages({}, Guards()))
    assert call == result
    assert call is not None
    assert (call.kind, call.title) == ("execute", "make test")
    assert (call.status, call.exit_code) == (status, exit_code)


def test_a_patch_has_the_diff_of_each_file(record: Record) -> None:
    call = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c1", "input": "***"}
    record.add("response_item", **call)
    changes = {
        "/x": {"type": "update", "unified_diff": "@@ -7 +7 @@\n-a\n+b\n"},
        "/new": {"type": "add", "content": "n\n"},
        "/old": {"type": "delete", "content": "o\n"},
        "/odd": [],
    }
    record.add("event_msg", type="patch_apply_end", call_id="c1", success=True, changes=changes)
    record.add("response_item", type="custom_tool_call_output", call_id="c1", output="done")
    _, tool = (m.tool for m in record.read().messages({}, Guards()))
    assert tool is not None
    assert (tool.kind, tool.status) == ("edit", "completed")
    assert [diff.patch for diff in tool.diff] == [
        "--- a/x\n+++ b/x\n@@ -7 +7 @@\n-a\n+b\n",
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n",
        "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n",
    ]


def test_a_call_without_a_result_in_an_aborted_turn_has_failed(record: Record) -> None:
    record.add("event_msg", type="task_started")
    record.add("response_item", type="function_call", name="exec", arguments="{", call_id="c1")
    record.add("event_msg", type="turn_aborted", reason="interrupted")
    (message,) = record.read().messages({}, Guards())
    assert message.tool is not None
    assert message.tool.status == "failed"


def test_a_failed_turn_has_its_error_and_an_interrupted_one_has_none(record: Record) -> None:
    record.add("event_msg", type="task_started")
    record.add("event_msg", type="task_complete", error={"message": "400 as asked"})
    reader = record.read()
    assert (reader.activity(), reader.failure) == ("idle", "400 as asked")
    assert [(m.role, m.content) for m in reader.messages({}, Guards())] == [
        ("system", "400 as asked")
    ]
    record.add("event_msg", type="task_started")
    reader.poll()
    assert (reader.activity(), reader.failure) == ("busy", None)
    record.add("event_msg", type="turn_aborted", reason="interrupted")
    reader.poll()
    assert (reader.activity(), reader.failure) == ("idle", None)


def test_a_turn_that_began_before_a_resume_is_over(record: Record) -> None:
    record.add("event_msg", type="task_started", turn_id="t1")
    record.says("go")
    record.add("response_item", type="function_call", name="shell", call_id="c1", arguments="{}")
    assert record.read().activity() == "busy"
    resumed = record.reader(**{THREAD: NAME, RESUMED: str(milliseconds(TIME) + 1)})
    resumed.poll()
    assert (resumed.activity(), resumed.open_calls()) == ("idle", [])
    assert len(resumed.messages({}, Guards())) == 2


def test_a_sent_message_is_found_behind_the_others(record: Record) -> None:
    record.says("same", "u1")
    record.says("same", "u2")
    reader = record.read()
    assert [reader.find_prompt("  same ", after) for after in (0, 1, 2)] == ["u1", "u2", None]


def test_the_title_is_that_of_the_thread(record: Record) -> None:
    record.says("go")
    index = [{"id": "other", "thread_name": "no"}, {"id": NAME, "thread_name": "yes"}]
    path = record.home / ".codex" / "session_index.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in index))
    assert record.read().title == "yes"


@pytest.fixture
def lock(record: Record) -> Iterator[Path]:
    path = record.home / ".codex" / "thread-writer-locks" / f"{NAME}.lock"
    path.parent.mkdir()
    with path.open("w"):
        yield path


def test_the_thread_is_the_one_that_the_process_writes(record: Record, lock: Path) -> None:
    record.says("go")
    reader, kept = record.reader(), dict[str, str]()
    reader.poll()
    assert reader.prompts == 0
    reader.find_by_process(os.getpid(), kept)
    reader.poll()
    assert (reader.prompts, kept) == (1, {THREAD: NAME})


def test_a_broken_line_and_a_rewritten_file_change_nothing(record: Record) -> None:
    record.says("one", "u1")
    with record.path.open("a") as file:
        file.write("{broken\n[]\n")
    record.says("two", "u2")
    reader = record.read()
    before = reader.messages({}, Guards())
    assert [message.content for message in before] == ["one", "two"]
    text = record.path.read_text()
    record.path.unlink()
    record.path.write_text(text)
    reader.poll()
    assert reader.messages({}, Guards()) == before
