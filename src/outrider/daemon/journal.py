"""What the machine agent must not forget: a small SQLite file in its configuration directory.

Every call is a few rows on a local file, so it is made on the event loop directly.

A record that cannot be read (damaged, or written by a newer version) is moved to the table
`unreadable`, with an error in the log: it must not keep the daemon from starting, nor the
records behind it from being sent.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import structlog

from outrider.contract.commands import ChatInput
from outrider.contract.events import AgentEvent, Refused
from outrider.daemon.session_record import SessionRecord

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    record BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS queue (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL UNIQUE,
    input BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS message_ids (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    native TEXT NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (session_id, native)
);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY,
    event BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS numbering (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL,
    welcomed INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS refusals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    refusal BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS unreadable (
    origin TEXT NOT NULL,
    key,
    record
);
INSERT OR IGNORE INTO numbering VALUES (1, 0, 0);
"""

_Table = Literal["sessions", "queue", "events", "refusals"]

_COLUMNS: Final[dict[_Table, tuple[str, str]]] = {
    "sessions": ("id", "record"),
    "queue": ("message_id", "input"),
    "events": ("seq", "event"),
    "refusals": ("seq", "refusal"),
}
"""Of each table with records, the columns of the key and of the record."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError, TypeError)

RecordT = TypeVar("RecordT")

_log = structlog.get_logger(__name__)

MAX_EVENTS: Final = 100_000
"""Events that wait for the service; beyond it the oldest are dropped."""

MAX_REFUSALS: Final = 1_000
"""Refusals that wait for the service; beyond it the oldest are dropped."""


def recorded_sessions(path: Path) -> list[SessionRecord]:
    """Return the sessions of a journal, oldest first; writes nothing, whoever has it open.

    Returns an empty list where there is no journal, and leaves out what cannot be read.
    """
    if not path.exists():
        return []
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = db.execute("SELECT record FROM sessions ORDER BY id").fetchall()
    finally:
        db.close()
    records = []
    for (data,) in rows:
        with suppress(*_UNREADABLE):
            records.append(msgspec.json.decode(data, type=SessionRecord))
    return records


class Journal:
    """The durable memory of one machine agent.

    Args:
        max_events: events that wait for the service; beyond it the oldest are dropped.
        max_refusals: refusals that wait for the service; beyond it the oldest are dropped.

    Raises:
        sqlite3.Error: the file is damaged, or cannot be used.
    """

    def __init__(
        self, path: Path, *, max_events: int = MAX_EVENTS, max_refusals: int = MAX_REFUSALS
    ) -> None:
        self._max_events = max_events
        self._max_refusals = max_refusals
        path.touch(0o600)  # nobody else's, whoever may look into the directory
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.text_factory = lambda data: data.decode(errors="replace")
        (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def sessions(self) -> list[SessionRecord]:
        """Return every session that was not removed, oldest first."""
        return [record for _, record in self._read("sessions", SessionRecord, "ORDER BY id")]

    def save_session(self, record: SessionRecord) -> None:
        """Remember this session, or what has changed about it."""
        self._db.execute(
            "INSERT INTO sessions VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            (record.id, msgspec.json.encode(record)),
        )

    def remove_session(self, session_id: str) -> None:
        """Delete a session with all that hangs on it."""
        self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def queue(self, session_id: str) -> list[tuple[str, ChatInput]]:
        """Return the messages (id, input) that wait for this session's agent, in order."""
        return self._read("queue", ChatInput, "WHERE session_id = ? ORDER BY rowid", session_id)

    def enqueue(self, session_id: str, message_id: str, message: ChatInput) -> None:
        """Remember a message that waits."""
        self._db.execute(
            "INSERT INTO queue VALUES (?, ?, ?)",
            (session_id, message_id, msgspec.json.encode(message)),
        )

    def dequeue(self, message_id: str) -> None:
        """Delete a message that waits no more."""
        self._db.execute("DELETE FROM queue WHERE message_id = ?", (message_id,))

    def message_ids(self, session_id: str) -> dict[str, str]:
        """Return, by the agent's own key for it, the id of each message sent through here."""
        rows = self._db.execute(
            "SELECT native, message_id FROM message_ids WHERE session_id = ?", (session_id,)
        )
        return dict(rows.fetchall())

    def save_message_id(self, session_id: str, agent_key: str, message_id: str) -> None:
        """Remember that the agent records the message `message_id` under the key `agent_key`."""
        self._db.execute(
            "INSERT OR IGNORE INTO message_ids VALUES (?, ?, ?)",
            (session_id, agent_key, message_id),
        )

    def last_event(self) -> int:
        """Return the number of the newest event, 0 before the first."""
        (last,) = self._db.execute("SELECT last FROM numbering").fetchone()
        return int(last)

    def add_event(self, event: AgentEvent) -> int:
        """Number an event and keep it until it is acknowledged.

        Returns:
            How many of the oldest events were dropped to make room for it.
        """
        with self._transaction():
            self._db.execute("UPDATE numbering SET last = last + 1")
            last = self.last_event()
            self._db.execute("INSERT INTO events VALUES (?, ?)", (last, msgspec.json.encode(event)))
            dropped = self._db.execute(
                "DELETE FROM events WHERE seq <= ?", (last - self._max_events,)
            ).rowcount
        if dropped:
            _log.error("oldest events dropped: too many wait for the service", count=dropped)
        return dropped

    def events(self, after: int, limit: int) -> list[tuple[int, AgentEvent]]:
        """Return the events behind the number `after`, oldest first."""
        return self._read_page("events", AgentEvent, after, limit)

    def acknowledge_events(self, acknowledged: int) -> None:
        """Delete the events up to this number: the service has stored them."""
        self._db.execute("DELETE FROM events WHERE seq <= ?", (acknowledged,))

    def is_numbered(self) -> bool:
        """Return whether `renumber_events` has been called: the service knows the numbers."""
        (welcomed,) = self._db.execute("SELECT welcomed FROM numbering").fetchone()
        return bool(welcomed)

    def renumber_events(self, acknowledged: int) -> None:
        """Give the waiting events the numbers after `acknowledged`, in their order."""
        with self._transaction():
            waiting = self._db.execute("SELECT event FROM events ORDER BY seq").fetchall()
            self._db.execute("DELETE FROM events")
            self._db.executemany(
                "INSERT INTO events VALUES (?, ?)",
                [(acknowledged + n, event) for n, (event,) in enumerate(waiting, start=1)],
            )
            last = acknowledged + len(waiting)
            self._db.execute("UPDATE numbering SET last = ?, welcomed = 1", (last,))

    def add_refusal(self, refused: Refused) -> None:
        """Number a refusal and keep it until it is acknowledged."""
        with self._transaction():
            data = msgspec.json.encode(refused)
            seq = self._db.execute("INSERT INTO refusals (refusal) VALUES (?)", (data,)).lastrowid
            assert seq is not None
            self.acknowledge_refusals(seq - self._max_refusals)

    def refusals(self, after: int, limit: int) -> list[tuple[int, Refused]]:
        """Return the refusals behind the number `after`, oldest first."""
        return self._read_page("refusals", Refused, after, limit)

    def acknowledge_refusals(self, acknowledged: int) -> None:
        """Delete the refusals up to this number: the service has recorded them."""
        self._db.execute("DELETE FROM refusals WHERE seq <= ?", (acknowledged,))

    def _read_page(
        self, table: _Table, kind: type[RecordT], after: int, limit: int
    ) -> list[tuple[Any, RecordT]]:
        """Return up to `limit` records behind the number `after`; none only if there is none."""
        while True:
            before = self._db.total_changes
            page = self._read(table, kind, "WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
            if page or self._db.total_changes == before:  # none was set aside either
                return page

    def _read(
        self, table: _Table, kind: type[RecordT], where: str, *values: object
    ) -> list[tuple[Any, RecordT]]:
        """Return keys and records of a table; set aside those that cannot be read."""
        key, column = _COLUMNS[table]
        query = f"SELECT rowid, {key}, {column} FROM {table} {where}"  # noqa: S608  # constants
        found = []
        for row_id, name, data in self._db.execute(query, values).fetchall():
            try:
                found.append((name, msgspec.json.decode(data, type=kind)))
            except _UNREADABLE as error:
                self._set_aside(table, row_id, name, data)
                _log.error(
                    "journal record set aside: it cannot be read",
                    table=table,
                    record=name,
                    error=str(error),
                )
        return found

    def _set_aside(self, table: _Table, row_id: int, name: object, data: object) -> None:
        with self._transaction():
            self._db.execute("INSERT INTO unreadable VALUES (?, ?, ?)", (table, name, data))
            self._db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row_id,))  # noqa: S608

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
