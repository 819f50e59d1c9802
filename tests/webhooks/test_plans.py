"""The queue's own queries read what is pending, however long the history is."""

import pytest
from sqlalchemy import event

from outrider.cloud.store import deliveries
from tests.webhooks.office import Office
from tests.webhooks.receiver import Receiver

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
    async with office.database.engine.connect() as connection:
        for statement, parameters in queries:
            plan = await connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}",
                parameters,  # type: ignore[arg-type]
            )
            details = [row._mapping["detail"] for row in plan]
            steps = [step for step in details if "deliveries" in step]
            assert steps
            assert all("ix_deliveries_due" in step for step in steps), steps
