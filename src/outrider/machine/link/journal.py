"""The journal: the machine agent's durable state, in a small SQLite file.

Every call reads or writes a few rows of a local file, so it runs directly on the event loop.

A record that cannot be read (damaged, or written by a newer version) is moved to the table
`unreadable` and an error is logged: it must not prevent the daemon from starting, or the records
after it from being sent.
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
from outrider.machine.sessions.record import SessionRecord

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
"""The key column and the record column of each table with records."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError, TypeError)

RecordT = TypeVar("RecordT")

_log = structlog.get_logger(__name__)

MAX_EVENTS: Final = 100_000
"""Events that wait for the service; beyond this limit the oldest are dropped."""

MAX_EVENTS_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the events that wait for the service; beyond this limit the oldest are dropped."""

MAX_REFUSALS: Final = 1_000
"""Refusals that wait for the service; beyond this limit the oldest are dropped."""


def recorded_sessions(path: Path) -> list[SessionRecord]:
    """Return the running sessions of a journal, oldest first, without writing to it.

    It may be open in a running daemon. Without a journal, the list is empty; records that cannot
    be read are left out.
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
    return [record for record in records if record.ended_at is None]


class Journal:
    """The journal of one machine agent; created with mode 0600 if it does not exist.

    Args:
        max_events: events that wait for the service; beyond the limit the oldest are dropped.
        max_events_bytes: bytes of these events; the same.
        max_refusals: refusals that wait for the service; beyond the limit the oldest are dropped.

    Raises:
        sqlite3.Error: the file is damaged or cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_events: int = MAX_EVENTS,
        max_events_bytes: int = MAX_EVENTS_BYTES,
        max_refusals: int = MAX_REFUSALS,
    ) -> None:
        self._max_events = max_events
        self._max_events_bytes = max_events_bytes
        self._max_refusals = max_refusals
        path.touch(0o600)  # private, even in a readable directory
        self._db = sqlite3.connect(path, isolation_level=None)
        # Damaged text has to be readable, so that its record can be set aside.
        self._db.text_factory = lambda data: data.decode(errors="replace")
        (damage,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        self._db.execute("PRAGMA journal_mode = WAL")
        # A killed process loses nothing by this; a power failure may lose the last transactions,
        # but no part of one.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(_SCHEMA)
        self._events_bytes = 0
        self._count_events()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def sessions(self) -> list[SessionRecord]:
        """Return every session, running and ended, oldest first."""
        return [record for _, record in self._read("sessions", SessionRecord, "ORDER BY id")]

    def save_session(self, record: SessionRecord) -> None:
        """Insert or update a session."""
        self._db.execute(
            "INSERT INTO sessions VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            (record.id, msgspec.json.encode(record)),
        )

    def remove_session(self, session_id: str) -> None:
        """Delete a session with its queue and its message ids."""
        self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def queue(self, session_id: str) -> list[tuple[str, ChatInput]]:
        """Return the messages (id, input) that wait for this session's agent, in order."""
        return self._read("queue", ChatInput, "WHERE session_id = ? ORDER BY rowid", session_id)

    def enqueue(
        self, session_id: str, message_id: str, message: ChatInput, *, is_first: bool = False
    ) -> None:
        """Append a message to the queue of a session; `is_first` puts it before the others."""
        # Where the row id is NULL, SQLite chooses it: one more than the largest.
        self._db.execute(
            "INSERT INTO queue (rowid, session_id, message_id, input)"
            " VALUES (CASE WHEN ? THEN (SELECT min(rowid) - 1 FROM queue) END, ?, ?, ?)",
            (is_first, session_id, message_id, msgspec.json.encode(message)),
        )

    def dequeue(self, message_id: str) -> None:
        """Delete a message from the queue."""
        self._db.execute("DELETE FROM queue WHERE message_id = ?", (message_id,))

    def clear_queue(self, session_id: str) -> None:
        """Delete the messages that wait for this session's agent."""
        self._db.execute("DELETE FROM queue WHERE session_id = ?", (session_id,))

    def message_ids(self, session_id: str) -> dict[str, str]:
        """Return the ids of the messages sent through Outrider, by their keys in the transcript."""
        rows = self._db.execute(
            "SELECT native, message_id FROM message_ids WHERE session_id = ?", (session_id,)
        )
        return dict(rows.fetchall())

    def save_message_id(self, session_id: str, agent_key: str, message_id: str) -> None:
        """Save that the message `message_id` has the key `agent_key` in the agent's transcript."""
        self._db.execute(
            "INSERT OR IGNORE INTO message_ids VALUES (?, ?, ?)",
            (session_id, agent_key, message_id),
        )

    def last_event(self) -> int:
        """Return the number of the newest event, 0 before the first."""
        (last,) = self._db.execute("SELECT last FROM numbering").fetchone()
        return int(last)

    def add_event(self, event: AgentEvent) -> None:
        """Number an event and keep it until it is acknowledged.

        The oldest events are dropped to make room for it.
        """
        with self._transaction():
            # Not max(seq) + 1: an acknowledged event is deleted, and its number is never reused.
            self._db.execute("UPDATE numbering SET last = last + 1")
            last = self.last_event()
            data = msgspec.json.encode(event)
            self._db.execute("INSERT INTO events VALUES (?, ?)", (last, data))
            self._events_bytes += len(data)
            dropped = self._db.execute(
                "DELETE FROM events WHERE seq <= ?", (last - self._max_events,)
            ).rowcount
            if self._events_bytes > self._max_events_bytes:
                dropped += self._drop_events()
        if dropped:
            _log.error("oldest events dropped: too many wait for the service", count=dropped)

    def events(self, after: int, limit: int) -> list[tuple[int, AgentEvent]]:
        """Return up to `limit` events after the number `after`, oldest first."""
        return self._read_page("events", AgentEvent, after, limit)

    def acknowledge_events(self, acknowledged: int) -> None:
        """Delete the events up to this number: the service has stored them."""
        self._db.execute("DELETE FROM events WHERE seq <= ?", (acknowledged,))

    def _count_events(self) -> None:
        """Count the bytes of the events that wait; acknowledged ones count until then."""
        (size,) = self._db.execute("SELECT total(length(event)) FROM events").fetchone()
        self._events_bytes = int(size)

    def _drop_events(self) -> int:
        """Drop the oldest events beyond nine tenths of the limit; return how many."""
        self._count_events()
        if self._events_bytes <= self._max_events_bytes:
            return 0
        dropped = self._db.execute(
            "DELETE FROM events WHERE seq <= (SELECT max(seq) FROM (SELECT seq,"
            " sum(length(event)) OVER (ORDER BY seq DESC) AS size FROM events) WHERE size > ?)",
            (self._max_events_bytes * 9 // 10,),
        ).rowcount
        self._count_events()
        return dropped

    def is_numbered(self) -> bool:
        """Return whether the service knows the numbers: `renumber_events` was called."""
        (welcomed,) = self._db.execute("SELECT welcomed FROM numbering").fetchone()
        return bool(welcomed)

    def renumber_events(self, acknowledged: int) -> None:
        """Renumber the waiting events from `acknowledged` + 1 on, in their order."""
        # One transaction: a crash after the DELETE would lose the events.
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
        """Return up to `limit` refusals after the number `after`, oldest first."""
        return self._read_page("refusals", Refused, after, limit)

    def acknowledge_refusals(self, acknowledged: int) -> None:
        """Delete the refusals up to this number: the service has recorded them."""
        self._db.execute("DELETE FROM refusals WHERE seq <= ?", (acknowledged,))

    def _read_page(
        self, table: _Table, kind: type[RecordT], after: int, limit: int
    ) -> list[tuple[Any, RecordT]]:
        """Return up to `limit` records after the number `after`; empty only if there are none.

        A page may consist of unreadable records only. These are set aside while reading, and an
        empty page would look like the end, so the next page is read.
        """
        while True:
            before = self._db.total_changes
            page = self._read(table, kind, "WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
            if page or self._db.total_changes == before:  # no record was set aside
                return page

    def _read(
        self, table: _Table, kind: type[RecordT], where: str, *values: object
    ) -> list[tuple[Any, RecordT]]:
        """Return the keys and records of a table; set aside records that cannot be read."""
        key, column = _COLUMNS[table]
        query = f"SELECT rowid, {key}, {column} FROM {table} {where}"  # noqa: S608  # constants
        records = []
        for row_id, name, data in self._db.execute(query, values).fetchall():
            try:
                records.append((name, msgspec.json.decode(data, type=kind)))
            except _UNREADABLE as error:
                self._set_aside(table, row_id, name, data)
                _log.error(
                    "journal record set aside: it cannot be read",
                    table=table,
                    record=name,
                    error=str(error),
                )
        return records

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
