"""Reading opencode's record."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from outrider.machine.agents.cli.transcripts.opencode_transcript import OpencodeTranscript
from outrider.machine.agents.cli.transcripts.transcript import RESUMED
from outrider.machine.sessions.guards import Guards

SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, title TEXT);
CREATE TABLE message (
    id TEXT PRIMARY KEY, session_id TEXT, time_created INT, time_updated INT, data TEXT
);
CREATE TABLE part (
    id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INT, time_updated INT,
    data TEXT
);
"""


class Record:
    """Writes a session as opencode does."""

    def __init__(self, home: Path, db: sqlite3.Connection) -> None:
        self.home, self.db = home, db
        self.now = round(time.time() * 1000)
        self.db.executescript(SCHEMA)
        self.title("New session - 2026-11-20T22:37:56.886Z")

    def title(self, title: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO session VALUES ('ses_mine', ?)", (title,))
        self.db.commit()

    def message(self, key: str, role: str, **data: Any) -> None:
        self.now += 1
        times = {"created": self.now, **data.pop("time", {})}
        row = (
            key,
            "ses_mine",
            self.now,
            self.now,
            json.dumps({"role": role, "time": times, **data}),
        )
        self.db.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", row)
        self.db.commit()

    def part(self, message: str, key: str, kind: str, **data: Any) -> None:
        self.now += 1
        row = (key, message, "ses_mine", self.now, self.now, json.dumps({"type": kind, **data}))
        self.db.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
        self.db.commit()

    def reader(self) -> OpencodeTranscript:
        reader = OpencodeTranscript({"HOME": str(self.home)}, "mine")
        reader.poll()
        return reader


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    folder = tmp_path / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "opencode.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        yield Record(tmp_path, db)


def chat_of(reader: OpencodeTranscript) -> list[tuple[str, str, str]]:
    return [(m.role, m.kind, m.content) for m in reader.messages({}, Guards())]


def test_a_turn_with_a_tool_is_read(record: Record) -> None:
    reader = record.reader()
    assert (reader.activity(), reader.title, chat_of(reader)) == ("idle", None, [])
    record.message("m1", "user")
    record.part("m1", "p1", "text", text="go\n🎉")
    record.part("m1", "p2", "text", text="a file's content", synthetic=True)
    reader.poll()
    assert (reader.activity(), reader.prompts, reader.find_prompt("go\n🎉", 0)) == ("busy", 1, "m1")
    record.message("m2", "assistant", modelID="stub-model")
    record.part("m2", "p3", "text", text="part", time={"start": 5})
    record.part("m2", "p4", "tool", tool="bash", callID="c1", state={"status": "pending"})
    reader.poll()
    assert chat_of(reader) == [("user", "text", "go\n🎉")]  # the text is not complete
    record.part("m2", "p3", "text", text="the whole", time={"start": 5, "end": 6})
    running = {"status": "running", "input": {"command": "ls"}, "time": {"start": 7}}
    record.part("m2", "p4", "tool", tool="bash", callID="c1", state=running)
    reader.poll()
    assert (reader.activity(), reader.model) == ("busy", "stub-model")
    assert [(call.id, call.started) for call in reader.open_calls()] == [("c1", 7)]
    before = reader.messages({"m1": "msg_mine"}, Guards())
    done = running | {"status": "completed", "output": "x", "time": {"start": 7, "end": 8}}
    record.part("m2", "p4", "tool", tool="bash", callID="c1", state=done)
    record.message("m2", "assistant", finish="tool-calls", time={"completed": 9})
    reader.poll()
    assert reader.activity() is None  # the next step has not begun, if there is one
    record.message("m3", "assistant", finish="stop", time={"completed": 9})
    record.part("m3", "p5", "text", text="end", time={"start": 5, "end": 6})
    record.title("a title")
    reader.poll()
    assert (reader.activity(), reader.title, list(reader.open_calls())) == ("idle", "a title", [])
    assert chat_of(reader)[1:] == [
        ("assistant", "text", "the whole"),
        ("assistant", "tool_call", '{"id":"c1","name":"bash","input":{"command":"ls"}}'),
        ("tool", "tool_result", "x"),
        ("assistant", "text", "end"),
    ]
    after = reader.messages({"m1": "msg_mine"}, Guards())
    assert [replace(m, tool=None) for m in after[:3]] == [replace(m, tool=None) for m in before]
    assert after[0].id == "msg_mine"
    assert [m.id for m in record.reader().messages({"m1": "msg_mine"}, Guards())] == [
        m.id for m in after
    ]


def test_a_call_keeps_the_time_that_it_had_while_it_ran(record: Record) -> None:
    """Some versions of opencode set its start anew when it is aborted."""
    record.message("m1", "assistant")
    running = {"status": "running", "time": {"start": 7}}
    record.part("m1", "p1", "tool", tool="bash", callID="c1", state=running)
    reader = record.reader()
    (before,) = reader.messages({}, Guards())
    assert reader.unfinished_count == 1
    ids = {piece.key: before.id for piece in reader.pieces()}
    aborted = running | {"status": "error", "error": "aborted", "time": {"start": 9, "end": 9}}
    record.part("m1", "p1", "tool", tool="bash", callID="c1", state=aborted)
    record.message("m1", "assistant", time={"completed": 11})
    reader.poll()
    after = reader.messages(ids, Guards())
    assert replace(after[0], tool=None) == replace(before, tool=None)
    assert after[1].kind == "tool_result"
    assert record.reader().messages(ids, Guards()) == after


@pytest.mark.parametrize(
    ("status", "metadata", "shown", "exit_code"),
    [
        ("completed", {"exit": 0}, "completed", 0),
        ("completed", {"exit": 3}, "failed", 3),
        ("error", {}, "failed", None),
        ("completed", None, "completed", None),
    ],
)
def test_the_end_of_a_tool_has_status_and_exit_code(
    record: Record, status: str, metadata: Any, shown: str, exit_code: int | None
) -> None:
    record.message("m1", "assistant", time={"completed": 9})
    state = {"status": status, "input": {"command": "ls"}, "time": {"start": 7, "end": 8}}
    part = {"tool": "bash", "callID": "c1", "state": state | {"metadata": metadata}}
    record.part("m1", "p1", "tool", **part)
    reader = record.reader()
    reader.poll()
    call, result = (m.tool for m in reader.messages({}, Guards()))
    assert call == result
    assert call is not None
    assert (call.kind, call.title, call.status) == ("execute", "ls", shown)
    assert (call.exit_code, call.started_at, call.ended_at) == (exit_code, 7, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"patch": "Index: /x\n===\n--- /x\n+++ /x\n@@ -1 +1 @@\n-a\n+b\n"},
        {"before": "a\n", "after": "b\n"},
    ],
)
def test_an_edit_has_its_patch(record: Record, change: dict[str, str]) -> None:
    record.message("m1", "assistant", time={"completed": 9})
    state = {"status": "completed", "metadata": {"filediff": {"file": "/x", **change}}}
    record.part("m1", "p1", "tool", tool="edit", callID="c1", state=state)
    reader = record.reader()
    reader.poll()
    tool = reader.messages({}, Guards())[0].tool
    assert tool is not None
    assert [diff.patch for diff in tool.diff] == ["--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({"name": "APIError", "data": {"message": "400 as asked"}}, "400 as asked"),
        ({"name": "UnknownError"}, "UnknownError"),
        ({"name": "MessageAbortedError", "data": {"message": "Aborted"}}, None),
    ],
)
def test_a_turn_that_ended_with_an_error(
    record: Record, error: dict[str, Any], failure: str | None
) -> None:
    record.message("m1", "user")
    record.part("m1", "p1", "text", text="go")
    record.message("m2", "assistant", error=error, time={"completed": 9})
    reader = record.reader()
    assert (reader.activity(), reader.failure) == ("idle", failure)
    record.message("m3", "user")
    record.part("m3", "p2", "text", text="again")
    reader.poll()
    assert reader.failure is None


def test_a_message_that_never_got_an_answer_proves_nothing_for_long(record: Record) -> None:
    record.now -= 60_000
    record.message("m1", "user")
    record.part("m1", "p1", "text", text="go")
    assert record.reader().activity() is None


def test_a_turn_that_began_before_a_resume_is_over(record: Record) -> None:
    record.message("m1", "user")
    record.message("m2", "assistant")
    assert record.reader().activity() == "busy"
    environment = {"HOME": str(record.home), RESUMED: str(record.now + 1)}
    resumed = OpencodeTranscript(environment, "mine")
    resumed.poll()
    assert resumed.activity() == "idle"


def test_a_missing_database_is_an_empty_chat(tmp_path: Path) -> None:
    reader = OpencodeTranscript({"HOME": str(tmp_path)}, "mine")
    reader.poll()
    assert (chat_of(reader), reader.activity()) == ([], "idle")
