"""A history of deliveries, put into the database of a service that does not run."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from outrider.contract.ids import derived_id

_ATTEMPTS: Final = (
    b'[{"attempt":1,"statusCode":200,"responseBody":"ok","error":null,'
    b'"startedAt":1750000000000,"durationMs":12}]'
)
_AT_ONCE: Final = 20_000


def write(file: Path, rows: int, before: int) -> None:
    """Add so many deliveries that succeeded, one a second up to `before` (epoch milliseconds).

    They are those of the webhooks that there are, in turns.
    """
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA foreign_keys = ON")
        owned = database.execute("SELECT id, account_id FROM webhooks").fetchall()
        for start in range(0, rows, _AT_ONCE):
            numbers = range(start, min(rows, start + _AT_ONCE))
            made = list(_rows(numbers, rows, before, owned))
            database.executemany(
                "INSERT INTO events (id, account_id, name, body, created_at)"
                " VALUES (:event_id, :account, :event, :body, :at)",
                made,
            )
            database.executemany(
                "INSERT INTO deliveries (id, webhook_id, event_id, event, status, attempt,"
                " attempts, created_at, completed_at, next_attempt_at, claimed_until) VALUES"
                " (:id, :webhook, :event_id, :event, 'succeeded', 1, :attempts, :at, :at, NULL, 0)",
                made,
            )
            database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _rows(
    numbers: range, rows: int, before: int, owned: list[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    for number in numbers:
        at = before - (rows - number) * 1000
        webhook, account = owned[number % len(owned)]
        event_id = derived_id("evt", at, str(number))
        yield {
            "id": derived_id("dlv", at, str(number)),
            "webhook": webhook,
            "account": account,
            "event_id": event_id,
            "event": "agent:generating_completed",
            "attempts": _ATTEMPTS,
            "body": b'{"id":"%b"}' % event_id.encode() + b" " * 350,
            "at": at,
        }
