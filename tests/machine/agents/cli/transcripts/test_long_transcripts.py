"""Records that are long, or that no agent would write: bounded, linear, never a traceback."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from outrider.contract.commands import Chat, ReadChat
from outrider.contract.frames import MAX_FRAME_BYTES
from outrider.contract.sizes import MAX_PAGE_BYTES
from outrider.machine.agents.cli.transcripts.claude_transcript import ORPHAN_WAIT, ClaudeTranscript
from outrider.machine.agents.cli.transcripts.transcript import (
    MAX_CHUNK,
    MAX_LINE,
    Tail,
    Transcript,
    catch_up,
)
from outrider.machine.sessions.chat_log import MAX_CONTENT, truncate_content
from outrider.machine.sessions.chat_selection import select_messages
from outrider.machine.sessions.guards import Guards
from tests.machine.agents.cli.transcripts.records import CONVERSATION, KINDS, RecordKind
from tests.rig.clock import Clock

CUT = "\n[outrider: the rest is left out here]"
all_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def caught_up(transcript: Transcript) -> Transcript:
    asyncio.run(catch_up(transcript))
    return transcript


def chat(transcript: Transcript) -> list[str]:
    return [message.content for message in transcript.messages({}, Guards())]


def frame(transcript: Transcript, query: ReadChat) -> bytes:
    """Return an answer to read_chat, as it goes into a frame."""
    messages = transcript.messages({}, Guards())
    return msgspec.json.encode(
        Chat(
            id="target",
            session_id="session",
            agent_type="agent",
            title=None,
            status="idle",
            messages=select_messages(messages, query),
            pending_action=None,
            total_messages=len(messages),
        )
    )


def work(function: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


# Long


@all_kinds
def test_a_message_of_15_mb_is_cut_and_its_chat_readable(kind: RecordKind, tmp_path: Path) -> None:
    kind.begin(tmp_path)
    kind.answers(tmp_path, "before", "x" * 15_000_000, "after")
    reader = caught_up(kind.reader(tmp_path))
    before, long, after = reader.messages({}, Guards())[:3]
    assert (before.content, after.content) == ("before", "after")
    assert long.content.endswith(f"xxx{CUT}")
    assert len(long.content) == MAX_CONTENT + len(CUT)
    assert len(frame(reader, ReadChat())) < MAX_FRAME_BYTES
    assert len(frame(reader, ReadChat(after=before.id, limit=1))) < MAX_FRAME_BYTES


@all_kinds
@pytest.mark.parametrize("character", ["\x01", "漢", '"'])
def test_no_answer_is_longer_than_a_frame(kind: RecordKind, tmp_path: Path, character: str) -> None:
    """Characters take up to six times as many bytes in JSON as one would think."""
    kind.begin(tmp_path)
    kind.answers(tmp_path, *[character * 400_000] * 12)
    reader = caught_up(kind.reader(tmp_path))
    (first, *_, last) = reader.messages({}, Guards())
    assert len(frame(reader, ReadChat())) <= MAX_PAGE_BYTES
    assert len(frame(reader, ReadChat(after=first.id))) <= MAX_PAGE_BYTES
    assert last.id.encode() in frame(reader, ReadChat())


@pytest.mark.parametrize("kind", KINDS[2:], ids=lambda kind: kind.name)  # they share their reading
def test_a_line_that_is_too_long_is_left_out_with_a_note(kind: RecordKind, tmp_path: Path) -> None:
    kind.begin(tmp_path)
    kind.answers(tmp_path, "before", "x" * (MAX_LINE + 1), "after")
    reader = caught_up(kind.reader(tmp_path))
    before, note, after = chat(reader)[:3]
    assert (before, after) == ("before", "after")
    assert note.endswith("is left out here]")


def test_a_long_record_is_read_a_part_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    line = b"x" * 999 + b"\n"
    path.write_bytes(line * 10_000)
    tail, reads = Tail(path), []
    while True:
        reads.append(len(list(tail.lines())))
        if not tail.has_more:
            break
    assert sum(reads) == 10_000
    assert max(reads) <= MAX_CHUNK // len(line) + 1


@pytest.mark.parametrize("special", ["fifo", "directory", "/dev/zero"])
def test_a_pipe_or_folder_as_transcript_has_no_lines(tmp_path: Path, special: str) -> None:
    path = tmp_path / "file"
    match special:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(special)
    assert list(Tail(path).lines()) == []


# Linear


@all_kinds
def test_reading_is_linear(kind: RecordKind, tmp_path: Path) -> None:
    def read(count: int) -> int:
        home = tmp_path / str(count)
        kind.begin(home)
        kind.answers(home, *["text"] * count)
        reader = kind.reader(home)
        return work(reader.poll) + work(lambda: reader.messages({}, Guards()))

    assert read(1000) < 2.2 * read(500)


@all_kinds
def test_following_is_linear(kind: RecordKind, tmp_path: Path) -> None:
    """What has been read is not gone through again when something is added."""
    kind.begin(tmp_path)
    reader = kind.reader(tmp_path)
    reader.poll()

    def follow(first: int) -> int:
        total = 0
        for n in range(first, first + 20):
            kind.answers(tmp_path, "text", first=n * 10_000)  # opencode looks 2 s back
            total += work(reader.poll)
        return total

    early = follow(0)
    kind.answers(tmp_path, *["text"] * 1000, first=300_000)
    reader.poll()
    follow(500)
    assert follow(1000) < 2 * early
    assert len(reader.messages({}, Guards())) == 1060


@pytest.mark.parametrize("parents", ["none", "one", "backwards"])
def test_entries_of_claude_code_without_parents_are_linear(tmp_path: Path, parents: str) -> None:
    """20,000 of them took 16.7 s."""
    kind = next(kind for kind in KINDS if kind.name == "claude")

    def read(count: int) -> int:
        home = tmp_path / str(count)
        kind.begin(home)
        entries = [kind.answer(n, str(n))[0] for n in range(count)]
        for n, entry in enumerate(entries):
            if parents == "backwards":
                entry["parentUuid"] = f"u{n - 1}" if n else None
            else:
                entry["parentUuid"] = "nowhere" if parents == "one" else f"nowhere {n}"
        kind.append(home, *(entries[::-1] if parents == "backwards" else entries))
        clock = Clock()
        reader = ClaudeTranscript({"HOME": str(home)}, CONVERSATION, clock)
        total = work(reader.poll)
        if parents != "backwards":
            assert chat(reader) == []
            clock.passes(ORPHAN_WAIT + 0.001)
            total += work(reader.poll)
        assert chat(reader) == [str(n) for n in range(count)]
        return total

    assert read(1000) < 2.2 * read(500)


@pytest.mark.parametrize("depth", [*range(900, 1000, 3), 10_000])
def test_a_deeply_nested_entry_is_read_or_skipped(tmp_path: Path, depth: int) -> None:
    """It is read as far as the stack goes, which is less far when it is written again."""
    kind = KINDS[0]
    kind.begin(tmp_path)
    nested = b"[" * depth + b"]" * depth
    kind.append(
        tmp_path,
        b'{"type": "assistant", "uuid": "u", "message": {"content": '
        b'[{"type": "tool_use", "id": "t", "input": %s}]}}\n' % nested,
    )
    kind.answers(tmp_path, "after")
    assert chat(caught_up(kind.reader(tmp_path)))[-1] == "after"


def test_the_cut_is_where_the_bytes_end() -> None:
    assert truncate_content("x" * MAX_CONTENT) == "x" * MAX_CONTENT
    assert truncate_content("x" * MAX_CONTENT + "y") == "x" * MAX_CONTENT + CUT
    uneven = "\x01" * 1_000_000 + "x" * MAX_CONTENT
    kept = truncate_content(uneven).removesuffix(CUT)
    assert uneven.startswith(kept)
    assert MAX_CONTENT - 6 <= len(msgspec.json.encode(kept)) - 2 <= MAX_CONTENT
