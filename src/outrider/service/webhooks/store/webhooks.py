"""Webhooks and the events that they subscribe to."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    bindparam,
    case,
    delete,
    func,
    insert,
    null,
    select,
    update,
)

from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.database.transaction import Transaction

_webhooks = tables.webhooks
_DELETE_BATCH = 500


class Webhook(NamedTuple):
    """A subscription. The secrets are encrypted; times are epoch milliseconds."""

    id: str
    account_id: str
    url: str
    events: list[str]
    active: bool
    created_at: int
    updated_at: int
    secret: bytes
    old_secret: bytes | None = None
    old_secret_until: int | None = None
    disabled_reason: str | None = None
    failing_since: int | None = None
    last_delivery: dict[str, Any] | None = None


_COLUMNS = [_webhooks.c[name] for name in Webhook._fields]


async def add(database: Database, webhook: Webhook, maximum: int | None) -> bool:
    """Add a webhook; return False if the account has `maximum` of them already."""
    mine = _webhooks.c.account_id == webhook.account_id
    account = tables.accounts.c.id == webhook.account_id
    async with database.begin() as connection:
        # The row lock on the account serializes counting and adding.
        await connection.execute(select(tables.accounts.c.id).where(account).with_for_update())
        count = await connection.scalar(select(func.count()).select_from(_webhooks).where(mine))
        if maximum is not None and (count or 0) >= maximum:
            return False
        await connection.execute(insert(_webhooks).values(webhook._asdict()))
        return True


async def of_account(database: Database, account_id: str) -> list[Webhook]:
    """Return the account's webhooks, oldest first."""
    query = select(*_COLUMNS).where(_webhooks.c.account_id == account_id).order_by(_webhooks.c.id)
    async with database.read() as connection:
        return [Webhook._make(row) for row in await connection.execute(query)]


async def by_id(database: Database, webhook_id: str) -> Webhook | None:
    """Return the webhook with this id, of any account."""
    async with database.read() as connection:
        query = select(*_COLUMNS).where(_webhooks.c.id == webhook_id)
        row = (await connection.execute(query)).first()
    return None if row is None else Webhook._make(row)


async def change(
    database: Database, account_id: str, webhook_id: str, values: Mapping[str, object]
) -> Webhook | None:
    """Change a webhook of the account and return it; None if there is no such webhook."""
    statement = (
        update(_webhooks)
        .where(_webhooks.c.id == webhook_id, _webhooks.c.account_id == account_id)
        .values(**values)
        .returning(*_COLUMNS)
    )
    async with database.begin() as connection:
        row = (await connection.execute(statement)).first()
        return None if row is None else Webhook._make(row)


async def remove(database: Database, account_id: str, webhook_id: str) -> bool:
    """Delete a webhook of the account with its deliveries; False if there is no such webhook.

    The history is deleted in batches first, so that no other writer waits for long.
    """
    mine = (_webhooks.c.id == webhook_id, _webhooks.c.account_id == account_id)
    deliveries = tables.deliveries
    some = (
        select(deliveries.c.id)
        .where(deliveries.c.webhook_id == webhook_id, deliveries.c.status != "pending")
        .where(select(_webhooks.c.id).where(*mine).exists())
        .limit(_DELETE_BATCH)
    )
    removed = _DELETE_BATCH
    while removed == _DELETE_BATCH:
        async with database.begin() as connection:
            result = await connection.execute(delete(deliveries).where(deliveries.c.id.in_(some)))
            removed = result.rowcount
    async with database.begin() as connection:
        return (await connection.execute(delete(_webhooks).where(*mine))).rowcount == 1


class Result(NamedTuple):
    """The effect of the newest deliveries on their webhook."""

    webhook_id: str
    last_delivery: dict[str, Any]
    failed_at: int | None
    """When a delivery failed; None if none has."""
    succeeded: bool
    disabled_reason: str | None = None
    """Why the webhook is disabled at `failed_at`; None if it is not."""


_STORE_RESULT = (
    update(_webhooks)
    .where(_webhooks.c.id == bindparam("webhook"))
    .values(
        last_delivery=bindparam("delivery", type_=_webhooks.c.last_delivery.type),
        failing_since=case(
            (bindparam("succeeded", type_=Boolean), null()),
            else_=func.coalesce(
                _webhooks.c.failing_since, bindparam("failed_at", type_=BigInteger)
            ),
        ),
    )
)


async def store_results(transaction: Transaction, results: Sequence[Result]) -> None:
    """Store the newest delivery of webhooks, since when all have failed, and what disables them."""
    await transaction.execute(
        _STORE_RESULT,
        [
            {
                "webhook": result.webhook_id,
                "delivery": result.last_delivery,
                "succeeded": result.succeeded,
                "failed_at": result.failed_at,
            }
            # In one order: other nodes lock the same webhooks, for other deliveries.
            for result in sorted(results, key=lambda result: result.webhook_id)
        ],
    )
    for webhook_id, _, failed_at, _, reason in results:
        if reason is not None and failed_at is not None:
            await disable(transaction, webhook_id, reason, failed_at)


async def disable(transaction: Transaction, webhook_id: str, reason: str, now: int) -> None:
    """Disable an active webhook and store the reason."""
    await transaction.execute(
        update(_webhooks)
        .where(_webhooks.c.id == webhook_id, _webhooks.c.active)
        .values(active=False, disabled_reason=reason, updated_at=now)
    )
