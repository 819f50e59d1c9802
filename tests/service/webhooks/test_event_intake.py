"""Taking events in, when the database is unavailable or something in it has gone."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError

from outrider.contract.events import EventName
from outrider.contract.ids import new_id
from outrider.contract.webhooks import WebhookRequest
from outrider.service.accounts.store import accounts
from outrider.service.database import tables
from outrider.service.webhooks.store import deliveries
from tests.rig.samples import session
from tests.rig.site import new_account
from tests.rig.waiting import TIMEOUT
from tests.service.webhooks.delivery_node import DeliveryNode
from tests.service.webhooks.events import DAEMON, agent_event
from tests.service.webhooks.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_webhook_that_went_behind_this_nodes_back(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """Another node has removed it within the second for which it is remembered."""
    gone = await node.webhook(receiver.url + "/gone")
    stays = await node.webhook(receiver.url + "/stays")
    await node.store_event()
    await node.wait_for_attempt(stays.id)
    await node.wait_for_attempt(gone.id)
    async with node.database.begin() as connection:
        await connection.execute(delete(tables.webhooks).where(tables.webhooks.c.id == gone.id))
    event = await node.store_event()
    await node.wait_for_attempt(stays.id)
    taken = [request for request in receiver.requests if request.json["id"] == event.id]
    assert [request.path for request in taken] == ["/hook/stays"]


async def test_an_account_that_went_holds_up_nobody_else(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """Its events cannot be stored: they are given up, and acknowledged."""
    webhook = await node.webhook(receiver.url)
    await node.store_event()
    lost, stored = asyncio.Event(), asyncio.Event()
    gone = (await new_account(node.database, "enterprise")).id
    request = WebhookRequest(url=receiver.url, events=["*"])
    await node.subscriptions.create(gone, request, None)
    assert await node.subscriptions.destinations(gone)  # remembered for a second of the clock
    await accounts.remove(node.database, gone, 1)
    await node.intake.agent_event(gone, DAEMON, 1, 2, agent_event(), stored=lost.set)
    await node.intake.agent_event(node.account_id, DAEMON, 1, 3, agent_event(), stored=stored.set)
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(lost.wait(), stored.wait())
    await node.wait_for_attempt(webhook.id, index=1)


async def test_events_wait_for_the_database(
    node: DeliveryNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged while it is unavailable, and nothing is lost."""
    webhook = await node.webhook(receiver.url)
    real, tries = deliveries.store, 0

    async def store(*values: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OperationalError("INSERT", {}, Exception("the server has gone"))
        if tries < 5:
            raise ConnectionRefusedError
        await real(*values)

    monkeypatch.setattr(deliveries, "store", store)
    await node.store_event()
    assert tries == 5
    await node.wait_for_attempt(webhook.id)
    await receiver.wait_for(1)


async def test_an_event_that_is_refused_and_then_meets_an_outage(
    node: DeliveryNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook was deleted, and the database is restarted just then: the intake goes on."""
    webhook = await node.webhook(receiver.url)
    real = deliveries.store
    errors = [
        IntegrityError("INSERT", {}, Exception("the webhook has gone")),
        OperationalError("INSERT", {}, Exception("the server has gone")),
    ]

    async def store(*values: Any) -> None:
        if errors:
            raise errors.pop(0)
        await real(*values)

    monkeypatch.setattr(deliveries, "store", store)
    await node.store_event()
    await node.wait_for_attempt(webhook.id)
    await node.store_event()
    await node.wait_for_attempt(webhook.id, index=1)
    await receiver.wait_for(2)


async def test_a_value_that_the_database_cannot_hold_stops_no_other_event(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """PostgreSQL has no text with NUL; asyncpg has an error of its own for that."""
    webhook = await node.webhook(receiver.url)
    ended = agent_event(EventName.SESSION_ENDED, session_id="a\0b", session=session())
    stored = [asyncio.Event(), asyncio.Event()]
    for number, event in enumerate([ended, agent_event()]):
        await node.intake.agent_event(
            node.account_id, DAEMON, 1, number + 1, event, stored=stored[number].set
        )
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(item.wait() for item in stored))
    await node.wait_for_attempt(webhook.id)


async def test_only_the_newest_connection_advances_the_stored_number(
    node: DeliveryNode, receiver: Receiver
) -> None:
    """What an older one has left may be of a lost journal, whose numbers mean other events now."""
    machine_id = new_id("machine")
    webhook = await node.webhook(receiver.url)
    async with node.database.begin() as transaction:
        await transaction.execute(
            insert(tables.machines).values(
                id=machine_id,
                account_id=node.account_id,
                nickname="n",
                hostname="h",
                platform="linux",
                version="0",
                created_at=0,
                connected=True,
                connection=2,
            )
        )

    async def stored_number_after(connection: int, seq: int) -> int:
        stored = asyncio.Event()
        await node.intake.agent_event(
            node.account_id, machine_id, connection, seq, agent_event(), stored=stored.set
        )
        async with asyncio.timeout(TIMEOUT):
            await stored.wait()
        query = select(tables.machines.c.event_seq).where(tables.machines.c.id == machine_id)
        async with node.database.read() as reading:
            return int((await reading.execute(query)).scalar_one())

    assert await stored_number_after(connection=2, seq=3) == 3
    assert await stored_number_after(connection=1, seq=9) == 3
    assert await stored_number_after(connection=2, seq=4) == 4
    await node.wait_for_attempt(webhook.id, index=2)  # the event is delivered all the same
