"""Takes events in: each is stored with its deliveries in one transaction, then acknowledged.

One task writes what has come since its last transaction, so that many events at once cost
little more than one, and one alone does not wait.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from outrider.cloud.store import deliveries
from outrider.cloud.store.database import Database
from outrider.cloud.store.deliveries import Delivery, Event
from outrider.cloud.store.transaction import Transaction
from outrider.cloud.webhooks import bodies, history
from outrider.cloud.webhooks.queue import AWAY, CLAIM_SECONDS, DeliveryQueue
from outrider.cloud.webhooks.subscriptions import Subscriptions
from outrider.contract.events import AGENT_EVENTS, AgentEvent, EventName
from outrider.contract.ids import is_id, new_id

MAX_WAITING: Final = 1000
"""Events that wait to be stored; a machine that sends more waits."""

_AT_ONCE: Final = 500
_RETRY_SECONDS: Final = 1.0
_BREATH_SECONDS: Final = 0.01
"""After several events were stored at once, so that the next time there are more of them."""

_log = structlog.get_logger(__name__)


class _Taken(NamedTuple):
    """An event that waits. `machine` is whose `seq` it has.

    One that is not told keeps its place, so that none before it is acknowledged too early.
    """

    event: Event | None
    machine: str
    seq: int
    stored: Callable[[], None]


class Intake:
    """Takes events in.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        database: Database,
        subscriptions: Subscriptions,
        queue: DeliveryQueue,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._queue = queue
        self._clock = clock
        self._waiting: asyncio.Queue[_Taken] = asyncio.Queue(MAX_WAITING)

    async def agent_event(
        self,
        account_id: str,
        daemon_id: str,
        seq: int,
        event: AgentEvent,
        stored: Callable[[], None],
    ) -> None:
        """Take a machine's event; `stored` is called once it will not be lost any more.

        Waits while too many events wait. One that is not an agent's is not told.
        """
        row: Event | None = None
        if event.event in AGENT_EVENTS and is_id("evt", event.id):
            body = bodies.agent_body(daemon_id, event)
            row = Event(event.id, account_id, event.event, body, self._now())
        else:
            _log.warning("not an agent's event", machine=daemon_id, name=event.event, id=event.id)
        await self._waiting.put(_Taken(row, daemon_id, seq, stored))

    async def machine_event(
        self,
        name: EventName,
        *,
        account_id: str,
        daemon_id: str,
        hostname: str,
        nickname: str,
        platform: str,
    ) -> "MachineEvent":
        """Return the event of a machine that comes or goes, to be stored together with that."""
        event_id, now = new_id("evt"), self._now()
        body = bodies.machine_body(
            event_id=event_id,
            event=name,
            daemon_id=daemon_id,
            hostname=hostname,
            nickname=nickname,
            platform=platform,
            now=now,
        )
        event = Event(event_id, account_id, name, body, now)
        targets = await self._subscriptions.targets(account_id)
        rows = [
            (
                history.new_delivery(target.id, event_id, name, now),
                self._claimed_until() if self._queue.room(target.id, 1, len(body)) else 0,
            )
            for target in targets.values()
            if target.wants(name)
        ]
        return MachineEvent(event, rows, self._queue)

    async def test(self, account_id: str, webhook_id: str) -> Delivery:
        """Deliver a test to one webhook, and return the delivery after its first attempt."""
        event_id, now = new_id("evt"), self._now()
        body = bodies.test_body(event_id=event_id, webhook_id=webhook_id, now=now)
        event = Event(event_id, account_id, EventName.WEBHOOK_TEST, body, now)
        delivery = history.new_delivery(webhook_id, event_id, event.name, now)
        await deliveries.store(self._database, [event], [(delivery, self._claimed_until())], {})
        return await self._queue.deliver(delivery, body)

    async def run(self) -> None:
        """Store what is taken in, until cancelled; what waits then is stored first."""
        batch: list[_Taken] = []
        try:
            while True:
                batch.append(await self._waiting.get())
                self._fill(batch)
                await self._store_surely(batch)
                several = len(batch) > 1
                batch.clear()
                if several:
                    await asyncio.sleep(_BREATH_SECONDS)
        finally:
            self._fill(batch, limit=MAX_WAITING)
            if batch:
                await self._store(batch)

    def _fill(self, batch: list[_Taken], limit: int = _AT_ONCE) -> None:
        while len(batch) < limit and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())

    async def _store_surely(self, batch: list[_Taken]) -> None:
        """Store a batch, however long the database is away: machines wait meanwhile."""
        is_again = False
        while True:
            try:
                await self._store(batch, is_again=is_again)
            except (IntegrityError, DataError) as error:
                await self._store_apart(batch, error)
                return
            except AWAY as error:
                _log.warning("events wait for the database", count=len(batch), error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                is_again = True
            else:
                return

    async def _store_apart(self, batch: list[_Taken], cause: SQLAlchemyError) -> None:
        """Store a batch of which something does not fit, without what does not.

        A webhook or an account may have gone since it was looked up. One event must not hold
        up those of every other machine.
        """
        for taken in batch:
            if taken.event is not None:
                self._subscriptions.forget(taken.event.account_id)
        if len(batch) > 1:
            for taken in batch:
                await self._store_surely([taken])
            return
        try:
            await self._store(batch)
        except (IntegrityError, DataError):
            _log.error("event cannot be stored", machine=batch[0].machine, error=str(cause))
            batch[0].stored()

    async def _store(self, batch: list[_Taken], *, is_again: bool = False) -> None:
        """Store a batch, and hand its deliveries over.

        Args:
            is_again: a try before this one may have stored it, and been cut off then.
        """
        now, claimed_until = self._now(), self._claimed_until()
        events: list[Event] = []
        rows: list[tuple[Delivery, int]] = []
        taken_of: dict[str, tuple[int, int]] = {}
        wanting: dict[tuple[str, str], list[str]] = {}
        seen: set[str] = set()
        newest: dict[str, int] = {}
        for taken in batch:
            newest[taken.machine] = max(taken.seq, newest.get(taken.machine, 0))
            event = taken.event
            if event is None or event.id in seen:
                continue
            seen.add(event.id)
            subscribed = wanting.get((event.account_id, event.name))
            if subscribed is None:
                targets = await self._subscriptions.targets(event.account_id)
                subscribed = [one.id for one in targets.values() if one.wants(event.name)]
                wanting[event.account_id, event.name] = subscribed
            if subscribed:
                events.append(event)
            for webhook_id in subscribed:
                count, size = taken_of.get(webhook_id, (0, 0))
                taken_of[webhook_id] = load = (count + 1, size + len(event.body))
                in_hand = self._queue.room(webhook_id, *load)
                delivery = history.new_delivery(webhook_id, event.id, event.name, now)
                rows.append((delivery, claimed_until if in_hand else 0))
        new = await deliveries.store(self._database, events, rows, newest)
        if is_again and len(new) < len(events):
            known = [event.id for event in events if event.id not in new]
            await deliveries.release(self._database, known)
            self._queue.look()
        body = {event.id: event.body for event in events}
        for delivery, claimed in rows:
            if delivery.event_id in new:
                _hand_over(self._queue, delivery, claimed, body[delivery.event_id])
        for taken in batch:
            taken.stored()

    def _claimed_until(self) -> int:
        return int((self._clock() + CLAIM_SECONDS) * 1000)

    def _now(self) -> int:
        return int(self._clock() * 1000)


class MachineEvent:
    """The event of a machine that came or went, with its deliveries, not stored yet."""

    def __init__(
        self, event: Event, rows: list[tuple[Delivery, int]], queue: DeliveryQueue
    ) -> None:
        self._event = event
        self._rows = rows
        self._queue = queue

    async def store(self, transaction: Transaction) -> None:
        """Store it, if anybody has subscribed to it, in the transaction of what it tells of."""
        if self._rows:
            await deliveries.add(transaction, [self._event], self._rows)

    def stored(self) -> None:
        """Begin to deliver it: the transaction has been committed."""
        for delivery, claimed in self._rows:
            _hand_over(self._queue, delivery, claimed, self._event.body)


def _hand_over(queue: DeliveryQueue, delivery: Delivery, claimed: int, body: bytes) -> None:
    """Give the queue a delivery that was stored, or tell it that one waits to be claimed."""
    if claimed:
        queue.take(delivery, body)
    else:
        queue.spilled(delivery.webhook_id)
