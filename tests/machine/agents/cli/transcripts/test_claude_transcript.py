"""Reading Claude Code's record: exact, incremental, with ids that never change."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.ids import is_id
from outrider.machine.agents.cli.transcripts.claude_transcript import ORPHAN_WAIT, ClaudeTranscript
from outrider.machine.agents.cli.transcripts.transcript import RESUMED, Tail
from outrider.machine.sessions.guards import Guards
from tests.rig.clock import Clock

NAME = "11111111-1111-4111-8111-111111111111"
TIME = "2026-11-20T21:30:52.066Z"
MILLIS = 1795210252066


class Record:
    """Writes a record as Claude Code does."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / ".claude" / "projects" / "-some-where" / f"{NAME}.jsonl"
        self.path.parent.mkdir(parents=True)
        (home / ".claude" / "sessions").mkdir()
        self.count = 0

    def add(self, kind: str, content: Any = None, **more: Any) -> str:
        self.count += 1
        key = f"00000000-0000-4000-8000-{self.count:012}"
        entry = {"type": kind, "uuid": key, "timestamp": TIME, **more}
        if kind in {"user", "assistant"}:
            entry["message"] = {"role": kind, "content": content}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return key

    def says(self, status: str, at: int = MILLIS + 1) -> None:
        state = {"sessionId": NAME, "status": status, "statusUpdatedAt": at}
        (self.home / ".claude" / "sessions" / "42.json").write_text(json.dumps(state))

    def reader(self, clock: Callable[[], float] = time.monotonic) -> ClaudeTranscript:
        return ClaudeTranscript({"HOME": str(self.home)}, NAME, clock)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


def test_messages_of_each_kind_are_read(record: Record) -> None:
    key = record.add("user", "hi\n```\t'\"🎉")
    record.add("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}])
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    record.add("assistant", [call])
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "x"}],
    }
    record.add("user", [result])
    record.add("user", [{"type": "text", "text": "[Request interrupted by user]"}])
    record.add("user", "meta", isMeta=True)
    record.add("assistant", [{"type": "text", "text": "aside"}], isSidechain=True)
    reader = record.reader()
    reader.poll()
    messages = reader.messages({key: "msg_mine"}, Guards())
    assert [(m.role, m.kind, m.content) for m in messages] == [
        ("user", "text", "hi\n```\t'\"🎉"),
        ("assistant", "thinking", "hm"),
        ("assistant", "text", "a"),
        ("assistant", "tool_call", '{"id":"t1","name":"Bash","input":{"command":"ls"}}'),
        ("tool", "tool_result", "x"),
        ("system", "text", "[Request interrupted by user]"),
    ]
    assert messages[0].id == "msg_mine"
    assert all(is_id("msg", message.id) for message in messages[1:])
    assert {message.timestamp for message in messages} == {MILLIS}
    again = record.reader()
    again.poll()
    assert again.messages({key: "msg_mine"}, Guards()) == messages
    assert len({message.id for message in messages}) == len(messages)


def test_a_failed_command_and_an_edit(record: Record) -> None:
    record.add("user", "go")
    command = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test"}}
    edited = {"file_path": "/x.py", "old_string": "b", "new_string": "c"}
    edit = {"type": "tool_use", "id": "t2", "name": "Edit", "input": edited}
    record.add("assistant", [command])
    record.add("assistant", [edit])
    reader = record.reader()
    reader.poll()
    running = [m.tool for m in reader.messages({}, Guards()) if m.tool is not None]
    assert [(tool.kind, tool.title, tool.status) for tool in running] == [
        ("execute", "make test", "running"),
        ("edit", "Edit /x.py", "running"),
    ]
    assert running[1].diff[0].patch == "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-b\n+c\n"
    failed = {"type": "tool_result", "tool_use_id": "t1", "content": "Exit code 2\nno"}
    record.add("user", [failed | {"is_error": True}], toolUseResult="Error: Exit code 2\nno")
    hunk = {"oldStart": 7, "oldLines": 2, "newStart": 7, "newLines": 2}
    patch = [hunk | {"lines": [" a", "-b", "+c"]}]
    record.add(
        "user",
        [{"type": "tool_result", "tool_use_id": "t2", "content": "done"}],
        toolUseResult={"filePath": "/x.py", "structuredPatch": patch},
    )
    reader.poll()
    tools = [m.tool for m in reader.messages({}, Guards()) if m.tool is not None]
    assert tools[:2] == tools[2:], "a call has what its result has"
    assert [(tool.status, tool.exit_code) for tool in tools[:2]] == [
        ("failed", 2),
        ("completed", None),
    ]
    assert tools[1].diff[0].patch == "--- a/x.py\n+++ b/x.py\n@@ -7,2 +7,2 @@\n a\n-b\n+c\n"
    assert tools[0].ended_at == MILLIS


@pytest.mark.parametrize(
    ("outcome", "status", "exit_code"),
    [
        ({"stdout": "x", "interrupted": False}, "completed", 0),
        ({"stdout": "x", "interrupted": True}, "failed", 5),
        ({"stdout": "", "backgroundTaskId": "b1"}, "completed", None),
        ({"filePath": "/x", "structuredPatch": [{"lines": 5}]}, "completed", None),
        (None, "completed", None),
    ],
)
def test_the_end_of_a_command_has_status_and_exit_code(
    record: Record, outcome: Any, status: str, exit_code: int | None
) -> None:
    record.add("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": None}])
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Exit code 5"}
    record.add("user", [result], toolUseResult=outcome)
    reader = record.reader()
    reader.poll()
    tool = reader.messages({}, Guards())[-1].tool
    assert tool is not None
    assert (tool.status, tool.exit_code) == (status, exit_code)


def test_a_call_that_was_interrupted_has_failed(record: Record) -> None:
    record.add("user", "go")
    record.add("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}])
    record.add("user", [{"type": "text", "text": "[Request interrupted by user]"}])
    reader = record.reader()
    reader.poll()
    tool = reader.messages({}, Guards())[1].tool
    assert tool is not None
    assert tool.status == "failed"


def test_activity_follows_the_state_file(record: Record) -> None:
    reader = record.reader()
    assert reader.activity() == "idle"
    record.add("user", "go")
    reader.poll()
    assert reader.activity() is None  # the record alone does not tell whether it goes on
    record.says("idle", MILLIS - 5)
    assert reader.activity() == "busy"  # it reports that before the message
    record.says("busy")
    assert reader.activity() == "busy"
    record.says("waiting")
    assert reader.activity() == "waiting"
    record.says("idle", MILLIS + 900)
    assert reader.activity() is None  # the answer is not in the record yet
    record.add("assistant", [{"type": "text", "text": "done"}])
    record.add("system", subtype="turn_duration", durationMs=3)
    reader.poll()
    assert reader.activity() == "idle"


def test_a_turn_that_began_before_a_resume_is_over(record: Record) -> None:
    record.add("user", "go")
    block = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    record.add("assistant", [block])
    record.says("busy")  # as the process that was killed left it
    assert record.reader().activity() == "busy"
    environment = {"HOME": str(record.home), RESUMED: str(MILLIS + 1000)}
    resumed = ClaudeTranscript(environment, NAME)
    resumed.poll()
    assert (resumed.activity(), resumed.open_calls()) == ("idle", [])
    record.says("busy", MILLIS + 2000)
    assert resumed.activity() == "busy"


def test_the_command_that_ended_it_is_no_message(record: Record) -> None:
    record.add("user", "<command-name>/model</command-name>")
    record.add("user", "<local-command-stdout>Set model</local-command-stdout>")
    record.add("user", "<command-name>/exit</command-name>\n<command-args></command-args>")
    record.add("user", "<local-command-stdout>Bye!</local-command-stdout>")
    record.add("user", "resumed")
    reader = record.reader()
    reader.poll()
    contents = [message.content for message in reader.messages({}, Guards())]
    assert [text.partition(">")[0] for text in contents] == [
        "<command-name",
        "<local-command-stdout",
        "resumed",
    ]


def test_an_error_of_the_model_lasts_until_the_next_message(record: Record) -> None:
    record.add("user", "go")
    record.add("assistant", [{"type": "text", "text": "API Error: 400"}], isApiErrorMessage=True)
    reader = record.reader()
    reader.poll()
    assert reader.failure == "API Error: 400"
    record.add("user", "again")
    reader.poll()
    assert reader.failure is None


def test_open_calls_and_sent_messages(record: Record) -> None:
    first = record.add("user", "same")
    record.add("assistant", [{"type": "tool_use", "id": "t1"}, {"type": "tool_use", "id": "t2"}])
    record.add("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}])
    reader = record.reader()
    reader.poll()
    assert [call.id for call in reader.open_calls()] == ["t2"]
    assert reader.find_prompt("same", 0) == first
    assert reader.find_prompt("same", 1) is None
    second = record.add("user", "same")
    reader.poll()
    assert reader.find_prompt("same", 1) == second


def test_a_sent_message_keeps_its_id_behind_another_block(record: Record) -> None:
    key = record.add("user", [{"type": "image"}, {"type": "text", "text": "look"}])
    reader = record.reader()
    reader.poll()
    (message,) = reader.messages({key: "msg_mine"}, Guards())
    assert (message.id, message.content) == ("msg_mine", "look")


def test_an_answer_that_was_written_before_its_question(record: Record) -> None:
    first, second = (f"00000000-0000-4000-8000-{n:012}" for n in (2, 3))
    record.add("assistant", [{"type": "text", "text": "answer"}], parentUuid=second)
    reader = record.reader()
    reader.poll()
    assert reader.messages({}, Guards()) == []
    record.add("user", "question", parentUuid=None)
    record.add("attachment", parentUuid=first)
    reader.poll()
    assert [m.content for m in reader.messages({}, Guards())] == ["question", "answer"]


def test_an_entry_whose_parent_never_comes_is_not_lost(
    record: Record,
) -> None:
    record.add("user", "orphan", parentUuid="nowhere")
    clock = Clock()
    reader = record.reader(clock)
    reader.poll()
    assert reader.messages({}, Guards()) == []
    clock.passes(ORPHAN_WAIT + 0.001)
    reader.poll()
    assert [m.content for m in reader.messages({}, Guards())] == ["orphan"]


def test_a_broken_line_is_left_out(record: Record) -> None:
    record.add("user", "one")
    with record.path.open("a") as file:
        file.write('{"type": "user", "mess\n[]\n\n')
    record.add("user", "two")
    reader = record.reader()
    reader.poll()
    assert [m.content for m in reader.messages({}, Guards())] == ["one", "two"]


def test_a_tail_waits_for_the_end_of_a_line_and_notices_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntw")
    assert list(tail.lines()) == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert list(tail.lines()) == [b"two", b"three"]
    assert list(tail.lines()) == []
    path.unlink()
    path.write_bytes(b"new\n")
    assert list(tail.lines()) == [b"new"]
