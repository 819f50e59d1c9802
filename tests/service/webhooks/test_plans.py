"""The queue's own queries read what is pending, however long the history is."""

import re
from typing import Any

import pytest
from sqlalchemy import event, text

from outrider.service.database.transaction import Transaction
from outrider.service.webhooks.store import deliveries
from tests.service.webhooks.office import Office
from tests.service.webhooks.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_queue_reads_by_index(office: Office, receiver: Receiver) -> None:
    asked: list[tuple[str, object]] = []
    engine = office.database.engine.sync_engine

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, parameters: object, *_: object) -> None:
        asked.append((statement, parameters))

    webhook = await office.webhook(receiver.url)
    await office.store(webhook.id, 1, claimed_until=2**60)
    asked.clear()
    await deliveries.due_times(office.database, 2**60)
    await deliveries.claim(office.database, now=1, until=2, limit=10, without=[])
    event.remove(engine, "before_cursor_execute", note)
    queries = [one for one in asked if "deliveries" in one[0]]
    assert len(queries) >= 2
    async with office.database.begin() as connection:
        if connection.dialect == "postgresql":  # it would read so short a table as a whole
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in queries:
            steps = await _plan(connection, statement, parameters)
            assert any("ix_deliveries_due" in step for step in steps), steps
            assert not any(re.search(r"^SCAN|Seq Scan", step) for step in steps), steps


async def _plan(connection: Transaction, statement: str, parameters: Any) -> list[str]:
    """Return the steps by which the database would read deliveries."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[connection.dialect]
    plan = await connection.execute_text(f"{explain} {statement}", parameters)
    steps = [str(row[-1]) for row in plan]
    return [step for step in steps if re.search(r"(SCAN|SEARCH|Scan .*on) deliveries", step)]
