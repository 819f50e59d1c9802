"""A record that cannot be read is set aside; the others are as if it had not been there."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from outrider.contract.commands import ChatInput, TextPart
from outrider.contract.events import Refused
from outrider.machine.link.journal import Journal, recorded_sessions
from outrider.machine.sessions.record import SessionRecord
from tests.contract.link.memory_log import agent_event

DAMAGE = [
    b"",
    b"{",
    b"{}",
    b"\xff\xfe",
    b'{"id": 5}',
    b"[" * 100_000,
    5,
    None,
    '{"kind": "of a later version"}',
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


def record(name: str) -> SessionRecord:
    return SessionRecord(
        id=name,
        kind="cli",
        type="codex",
        name="Codex",
        path="/srv",
        model=None,
        created_at=1,
        last_activity_at=1,
    )


def message(text: str) -> ChatInput:
    return ChatInput(parts=[TextPart(text=text)])


def damage(path: Path, statement: str, data: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, (data,))
    db.close()


def set_aside(path: Path) -> list[tuple[str, object, object]]:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT origin, key, record FROM unreadable").fetchall()
    db.close()
    return rows


@pytest.mark.parametrize("data", [data for data in DAMAGE if data is not None])
def test_a_session(journal: Journal, path: Path, data: object) -> None:
    for name in ("a", "b", "c"):
        journal.save_session(record(name))
    damage(path, "UPDATE sessions SET record = ? WHERE id = 'b'", data)
    assert [kept.id for kept in recorded_sessions(path)] == ["a", "c"]
    assert set_aside(path) == []  # that only reads
    with capture_logs() as logs:
        assert [kept.id for kept in journal.sessions()] == ["a", "c"]
    assert set_aside(path) == [("sessions", "b", data)]
    assert [(log["table"], log["record"]) for log in logs] == [("sessions", "b")]
    with capture_logs() as logs:
        assert [kept.id for kept in journal.sessions()] == ["a", "c"]
    assert logs == []


@pytest.mark.parametrize("data", [data for data in DAMAGE if data is not None])
def test_an_event(journal: Journal, path: Path, data: object) -> None:
    """A gap in the numbers, which a service takes for an event that was dropped."""
    for name in ("a", "b", "c"):
        journal.add_event(agent_event(name))
    damage(path, "UPDATE events SET event = ? WHERE seq = 2", data)
    assert [(seq, kept.id) for seq, kept in journal.events(0, 10)] == [(1, "a"), (3, "c")]
    assert set_aside(path) == [("events", 2, data)]


def test_a_page_of_unreadable_events_is_not_the_end(journal: Journal, path: Path) -> None:
    for index in range(10):
        journal.add_event(agent_event(str(index)))
    damage(path, "UPDATE events SET event = ? WHERE seq <= 9", b"{}")
    assert [seq for seq, _ in journal.events(0, 3)] == [10]
    assert len(set_aside(path)) == 9
    assert journal.events(10, 3) == []


def test_a_message_that_waits(journal: Journal, path: Path) -> None:
    journal.save_session(record("a"))
    for name in ("m1", "m2"):
        journal.enqueue("a", name, message(name))
    damage(path, "UPDATE queue SET input = ? WHERE message_id = 'm1'", b"{")
    assert journal.queue("a") == [("m2", message("m2"))]
    assert set_aside(path) == [("queue", "m1", b"{")]


def test_a_refusal(journal: Journal, path: Path) -> None:
    for target in ("/a", "/b"):
        journal.add_refusal(Refused(session_id="s", action="a", target=target, timestamp=1))
    damage(path, "UPDATE refusals SET refusal = ? WHERE seq = 1", b"{")
    assert [kept.target for _, kept in journal.refusals(0, 10)] == ["/b"]
    assert set_aside(path) == [("refusals", 1, b"{")]


def test_text_that_is_none_is_no_error(journal: Journal, path: Path) -> None:
    """SQLite gives back whatever bytes are in the file."""
    journal.save_session(record("a"))
    damage(path, "UPDATE sessions SET id = CAST(x'ff' AS TEXT), record = ?", b"{")
    assert journal.sessions() == []


def test_a_damaged_page_is_found_when_it_is_opened(path: Path) -> None:
    journal = Journal(path)
    for index in range(500):
        journal.add_event(agent_event(str(index)))
    journal.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\x55" * 4096
    path.write_bytes(data)
    with pytest.raises(sqlite3.DatabaseError):
        Journal(path)
