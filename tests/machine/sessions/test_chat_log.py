"""The chat log: what it holds after a restart, when a write fails, and how large it may get."""

import json
from pathlib import Path

import msgspec
import pytest

from outrider.machine.sessions.chat_log import ChatLog
from tests.machine.agents.machine import until


def clock() -> int:
    return 1_000


async def test_a_chat_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "chats" / "one.jsonl"
    log = ChatLog(path, clock)
    user = log.add("user", "text", "héllo\n\u2028", "msg_1")
    answer = log.add("assistant", "text", "a", source="screen")
    log.save()
    log.extend(answer, "b")
    log.extend(answer, "c")
    log.save()
    log.replace(answer, "other", role="system")
    log.extend(answer, "!")
    log.save()
    assert [m.content for m in log.messages()] == ["héllo\n\u2028", "other!"]
    assert ChatLog(path, clock).messages() == log.messages()
    assert user.id == "msg_1"
    assert [m.source for m in log.messages()] == [None, "screen"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_torn_last_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    log = ChatLog(path, clock)
    log.add("user", "text", "hello")
    log.save()
    with path.open("a") as file:
        file.write('{"id": "msg_2", "rol')
    again = ChatLog(path, clock)
    assert [m.content for m in again.messages()] == ["hello"]
    again.add("user", "text", "more")
    again.save()
    assert [m.content for m in ChatLog(path, clock).messages()] == ["hello", "more"]


async def test_streamed_text_is_written_a_few_times_and_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    log = ChatLog(path, clock)
    answer = log.add("assistant", "text", "")
    for _ in range(1000):
        log.extend(answer, "x" * 100)
    await until(path.exists)
    for _ in range(1000):
        log.extend(answer, "x" * 100)
    log.save()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 2
    assert path.stat().st_size < 210_000


async def test_a_chat_log_that_cannot_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    log = ChatLog(tmp_path / "file" / "one.jsonl", clock)
    log.add("user", "text", "hello")
    log.save()
    assert [m.content for m in log.messages()] == ["hello"]


async def test_what_a_full_disk_did_not_take_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "chats" / "one.jsonl"
    log = ChatLog(path, clock)
    log.add("user", "text", "before")
    answer = log.add("assistant", "text", "a")
    log.save()
    path.rename(tmp_path / "aside")
    path.mkdir()  # in the way
    log.extend(answer, "b")
    lost = log.add("user", "text", "mean")
    log.save()
    log.extend(lost, "while")
    log.save()
    path.rmdir()
    (tmp_path / "aside").rename(path)
    log.extend(answer, "c")
    log.add("assistant", "text", "after")
    log.save()
    contents = ["before", "abc", "meanwhile", "after"]
    assert [m.content for m in log.messages()] == contents
    assert ChatLog(path, clock).messages() == log.messages()


@pytest.mark.parametrize("character", ["x", "\n", "\x01", "é", "🎉"], ids=ascii)
async def test_a_long_message_fits_into_a_frame_whatever_is_in_it(
    tmp_path: Path, character: str
) -> None:
    log = ChatLog(tmp_path / "one.jsonl", clock, max_content=10_000)
    whole = log.add("assistant", "text", character * 20_000)
    pieces = log.add("assistant", "text", "")
    for _ in range(2_000):
        log.extend(pieces, character * 10)
    log.save()
    for entry in (whole, pieces):
        text, note = entry.content.split("\n[outrider: ")
        assert note == "the rest is left out here]"
        assert set(text) == {character}
        assert 9_900 < len(msgspec.json.encode(text)) <= 10_002
    assert ChatLog(tmp_path / "one.jsonl", clock, max_content=10_000).messages() == log.messages()
