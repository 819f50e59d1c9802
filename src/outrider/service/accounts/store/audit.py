"""The audit trail."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, select

from outrider.service.database import tables
from outrider.service.database.engine import Database

_audit = tables.audit


class Record(NamedTuple):
    """A request and its outcome (an HTTP status)."""

    id: str
    at: int
    account_id: str | None
    principal: str | None
    action: str
    target: str | None
    outcome: int
    address: str
    request_id: str


async def add(database: Database, records: Sequence[Record]) -> None:
    """Add records; skip ids that an interrupted write has stored already."""
    async with database.begin() as connection:
        await connection.add(_audit, [record._asdict() for record in records])


async def of_account(
    database: Database, account_id: str, *, limit: int, before: str | None
) -> list[Record]:
    """Return the account's records, newest first; only those older than the id `before`."""
    query = select(*(_audit.c[name] for name in Record._fields)).where(
        _audit.c.account_id == account_id
    )
    if before is not None:
        query = query.where(_audit.c.id < before)
    async with database.read() as connection:
        rows = await connection.execute(query.order_by(_audit.c.id.desc()).limit(limit))
        return [Record._make(row) for row in rows]


async def prune(database: Database, before: int) -> None:
    """Delete records older than `before` (epoch milliseconds)."""
    async with database.begin() as connection:
        await connection.execute(delete(_audit).where(_audit.c.at < before))
