"""What the previous release left: the database of its service, and the frames of a link.

Both were recorded at commit 3301f07 with real processes: `outrider serve` on SQLite, and
`outrider daemon` behind a WebSocket proxy that wrote down each frame, while the demo agent was
launched, asked, stopped and launched again over the API. `database.sql` is `sqlite3 outrider.db
.dump`. `database.postgresql.sql` has the same rows, in the schema that the same commit made in an
empty PostgreSQL (`pg_dump --inserts --no-owner --no-privileges` without comments and settings).
Paths and the name of the host were replaced. After each release, record them anew and change the
constants.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import asyncpg  # type: ignore[import-untyped]

SECRET_KEY: Final = "k" * 32
EMAIL: Final = "ada@example.org"
PASSWORD: Final = "correct horse battery staple 7"
API_KEY: Final = "ork_D7flqxruDGd2XecYK7oJX3u7gy7Bqvy30VIvmN"
CONNECTION_TOKEN: Final = "omt_SPfn0ZHbTUWc3cR9ykZlBYoUZGdj7VtsPhrjGHgJLmw"
MACHINE_ID: Final = "machine_01m825yc0bem6tej424jjxn52n"
ENDED_SESSION: Final = "session_01m825yen6ep4sfy8wbw62324y"
RUNNING_SESSION: Final = "session_01m825yhgaen28521yjsshvsz8"
LAST_EVENT: Final = 9
"""The number of the machine's newest event, which the service had stored."""

_FOLDER = Path(__file__).parent


async def fill_postgresql(url: str) -> None:
    """Create the same database in an empty one of PostgreSQL."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute((_FOLDER / "database.postgresql.sql").read_text())
    finally:
        await connection.close()


def create_database(file: Path) -> None:
    """Create the database of the previous release's service."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((_FOLDER / "database.sql").read_text())


def frames(sender: Literal["machine", "service"]) -> list[str]:
    """Return the messages that one end of the link sent, oldest first."""
    lines = map(json.loads, (_FOLDER / "frames.jsonl").read_text().splitlines())
    return [json.dumps(line["frame"]) for line in lines if line["from"] == sender]
