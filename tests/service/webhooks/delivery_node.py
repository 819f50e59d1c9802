"""The parts that deliver, joined without the rest of the service, on a clock that tests set."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry

from outrider.contract.events import AgentEvent
from outrider.contract.webhooks import Delivery as View
from outrider.contract.webhooks import WebhookRequest, WebhookWithSecret
from outrider.service.accounts.encryption import Cipher
from outrider.service.database.engine import Database
from outrider.service.events.log import Event
from outrider.service.settings import Settings
from outrider.service.webhooks import retry_policy
from outrider.service.webhooks.addresses import AddressPolicy
from outrider.service.webhooks.delivery_queue import DEFAULT_LIMITS, DeliveryLimits, DeliveryQueue
from outrider.service.webhooks.event_intake import EventIntake
from outrider.service.webhooks.sender import Sender
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.store.deliveries import Delivery
from outrider.service.webhooks.subscriptions import Subscriptions
from tests.rig.clock import Clock
from tests.rig.site import new_account
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import DAEMON, agent_event

DELAYS: Final[Sequence[float]] = Settings.model_fields["webhook_retry_delays"].default
"""The default of the service."""


class DeliveryNode:
    """A node: its own queue and intake, on a database that nodes may share."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        account_id: str,
        *,
        timeout: float = 4 * TIMEOUT,
        delays: Sequence[float] = DELAYS,
        limits: DeliveryLimits = DEFAULT_LIMITS,
        poll_interval: float = 1.0,
    ) -> None:
        self.database = database
        self.clock = clock
        self.account_id = account_id
        self.chance = 0.5
        self.registry = CollectorRegistry()
        guard = AddressPolicy(allow_private=True)
        self.sender = Sender(guard, timeout, clock)
        self.subscriptions = Subscriptions(database, guard, Cipher("k" * 32), clock)
        self.queue = DeliveryQueue(
            database=database,
            subscriptions=self.subscriptions,
            sender=self.sender,
            delays=delays,
            registry=self.registry,
            clock=clock,
            chance=lambda: self.chance,
            limits=limits,
            poll_interval=poll_interval,
        )
        self.accounts_stored: list[str] = []
        self.intake = EventIntake(
            database=database,
            subscriptions=self.subscriptions,
            queue=self.queue,
            on_stored=self.accounts_stored.append,
            clock=clock,
            retry_interval=0.02,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.seq = 0

    async def open(self) -> None:
        """Begin to work."""
        self._tasks = [
            asyncio.create_task(self.intake.run()),
            asyncio.create_task(self.queue.run()),
        ]

    async def close(self) -> None:
        """End as the service does."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait({task}, timeout=TIMEOUT)
        await self.sender.close()

    async def webhook(self, url: str, *events: str) -> WebhookWithSecret:
        """Subscribe."""
        request = WebhookRequest(url=url, events=list(events) or ["*"])
        return await self.subscriptions.create(self.account_id, request, None)

    async def store_event(self, event: AgentEvent | None = None) -> AgentEvent:
        """Take an event in; return it once it is stored."""
        event = event or agent_event()
        stored = asyncio.Event()
        self.seq += 1
        await self.intake.agent_event(
            self.account_id, DAEMON, 1, self.seq, event, stored=stored.set
        )
        async with asyncio.timeout(TIMEOUT):
            await stored.wait()
        return event

    async def history(self, webhook_id: str) -> list[View]:
        """Return a webhook's deliveries, newest first."""
        rows, _ = await deliveries.of_webhook(self.database, webhook_id, limit=1000, before=None)
        return [retry_policy.record(row) for row in rows]

    async def wait_for_attempt(self, webhook_id: str, attempt: int = 1, index: int = 0) -> View:
        """Return a delivery (the newest, or an older one) once an attempt is written down."""
        seen: list[View] = []

        async def tried() -> bool:
            seen[:] = await self.history(webhook_id)
            return len(seen) > index and seen[index].attempt >= attempt

        await eventually(tried)
        return seen[index]

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and see to it that the queue looks."""
        self.clock.passes(seconds)
        self.queue.wake(await self.subscriptions.destinations(self.account_id))

    async def store(
        self, webhook_id: str, count: int, claimed_until: int = 0, body: bytes = b'{"event":"x"}'
    ) -> list[Delivery]:
        """Put deliveries into the database behind the back of the queue."""
        now = int(self.clock() * 1000)
        made = []
        for _ in range(count):
            event = agent_event()
            row = Event(event.id, self.account_id, event.event, body, now)
            made.append((row, retry_policy.new_delivery(webhook_id, event.id, event.event, now)))
        stored = [delivery for _, delivery in made]
        await deliveries.store(self.database, [row for row, _ in made], stored, {})
        if claimed_until:
            await deliveries.renew(self.database, [row.id for row in stored], claimed_until)
        return stored


@asynccontextmanager
async def delivery_nodes(
    url: str, count: int = 1, **options: Any
) -> AsyncIterator[list[DeliveryNode]]:
    """Give nodes that share a migrated database, and the clock."""
    database = Database(url)
    clock = Clock()
    account_id = (await new_account(database, "enterprise")).id
    made = [DeliveryNode(database, clock, account_id, **options) for _ in range(count)]
    try:
        yield made
    finally:
        for node in made:
            await node.close()
        await database.close()
