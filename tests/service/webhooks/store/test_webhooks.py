"""What the results of deliveries change in the rows of their webhooks."""

import pytest
from sqlalchemy import insert

from outrider.contract.ids import new_id
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.webhooks.store import webhooks
from outrider.service.webhooks.store.webhooks import Result, Webhook

pytestmark = pytest.mark.asyncio(loop_scope="session")

_COUNT = 60


async def add_webhooks(database: Database, account: str) -> list[str]:
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.accounts).values(id=account, plan="free", created_at=0)
        )
    ids = [new_id("webhook") for _ in range(_COUNT)]
    for webhook_id in ids:
        webhook = Webhook(
            id=webhook_id,
            account_id=account,
            url="https://receiver.example",
            events=["*"],
            active=True,
            created_at=0,
            updated_at=0,
            secret=b"secret",
            old_secret=None,
            old_secret_until=None,
            disabled_reason=None,
            failing_since=None,
            last_delivery=None,
        )
        await webhooks.add(database, webhook, None)
    return ids


async def store(database: Database, *results: Result) -> None:
    async with database.begin() as transaction:
        await webhooks.store_results(transaction, results)


async def failing(database: Database, account: str) -> dict[str, int | None]:
    return {
        webhook.id: webhook.failing_since
        for webhook in await webhooks.of_account(database, account)
    }


async def test_each_webhook_has_its_newest_delivery(database: Database) -> None:
    account = new_id("acct")
    ids = await add_webhooks(database, account)
    await store(
        database, *(Result(item, {"id": f"of {item}", "at": 1}, None, True) for item in ids[1:])
    )
    found = {
        webhook.id: webhook.last_delivery
        for webhook in await webhooks.of_account(database, account)
    }
    assert found == {ids[0]: None} | {item: {"id": f"of {item}", "at": 1} for item in ids[1:]}


async def test_a_webhook_fails_from_its_first_failure_until_a_success(database: Database) -> None:
    account = new_id("acct")
    failed, other, *rest = await add_webhooks(database, account)
    quiet = dict.fromkeys(rest)
    await store(database, Result(failed, {}, 5, False), Result(other, {}, None, False))
    assert await failing(database, account) == {failed: 5, other: None, **quiet}
    await store(database, Result(failed, {}, 7, False), Result(other, {}, 7, False))
    assert await failing(database, account) == {failed: 5, other: 7, **quiet}
    await store(database, Result(failed, {}, None, False), Result(other, {}, 9, True))
    assert await failing(database, account) == {failed: 5, other: None, **quiet}
