"""The queue's own queries read what is pending, however long the history is."""

import re
from typing import Any

import pytest
from sqlalchemy import event, text

from outrider.service.webhooks.store import deliveries
from tests.service.webhooks.delivery_node import DeliveryNode
from tests.service.webhooks.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_queue_reads_by_index(node: DeliveryNode, receiver: Receiver) -> None:
    asked: list[tuple[str, Any]] = []
    engine = node.database.engine.sync_engine

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, parameters: object, *_: object) -> None:
        asked.append((statement, parameters))

    webhook = await node.webhook(receiver.url)
    await node.store(webhook.id, 1, claimed_until=2**60)
    asked.clear()
    await deliveries.due_times(node.database, 2**60)
    await deliveries.claim(node.database, now=1, until=2, limit=10, without=[])
    event.remove(engine, "before_cursor_execute", note)
    queries = [query for query in asked if "deliveries" in query[0]]
    assert len(queries) >= 2
    async with node.database.engine.begin() as connection:
        explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[connection.dialect.name]
        if explain == "EXPLAIN":  # PostgreSQL would read so short a table as a whole
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in queries:
            plan = await connection.exec_driver_sql(f"{explain} {statement}", parameters)
            steps = [str(row[-1]) for row in plan]
            steps = [
                step for step in steps if re.search(r"(SCAN|SEARCH|Scan .*on) deliveries", step)
            ]
            assert any("ix_deliveries_due" in step for step in steps), steps
            assert not any(re.search(r"^SCAN|Seq Scan", step) for step in steps), steps
