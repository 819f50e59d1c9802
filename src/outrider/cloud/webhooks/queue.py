"""The delivery queue: pending rows of the deliveries table, and those of them in hand here.

A row in hand is claimed: no other node takes it until the claim runs out, which it does on its
own where this node dies.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy.exc import SQLAlchemyError

from outrider.cloud.store import deliveries
from outrider.cloud.store.database import Database
from outrider.cloud.store.deliveries import Delivery
from outrider.cloud.webhooks import history
from outrider.cloud.webhooks.lanes import Lanes
from outrider.cloud.webhooks.outcomes import Outcomes
from outrider.cloud.webhooks.sender import GONE, Outcome, Sender
from outrider.cloud.webhooks.subscriptions import Subscriptions
from outrider.contract.errors import OutriderError
from outrider.contract.events import EventName

CLAIM_SECONDS: Final = 60.0

_RUNNING_LOW: Final = 100

_CLAIMED_AT_ONCE: Final = 200
_POLL_SECONDS: Final = 1.0
_ASKED_SECONDS: Final = 30.0
_RENEW_SECONDS: Final = 20.0
_PROMPT_MS: Final = 1000
"""How soon a receiver answers that does not hold up others."""

_BREATH_SECONDS: Final = 0.05
"""Between two writings of outcomes: nobody waits for them, and many at once cost little more."""

_SPREAD: Final = 0.2

_log = structlog.get_logger(__name__)

Waiter = asyncio.Future[Delivery]

AWAY: Final = (SQLAlchemyError, OSError)
"""What is raised while the database cannot be used. Drivers raise the latter themselves."""


class DeliveryQueue:
    """Tries deliveries until they are over.

    Args:
        delays: seconds before each retry.
        clock: seconds since the epoch.
        chance: returns a number from 0 to 1, to spread retries.
    """

    def __init__(
        self,
        *,
        database: Database,
        subscriptions: Subscriptions,
        sender: Sender,
        delays: Sequence[float],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._sender = sender
        self._delays = delays
        self._clock = clock
        self._chance = chance
        self._lanes = Lanes(self._try, self._left)
        self._outcomes = Outcomes(database, subscriptions, registry, clock)
        self._in_hand: dict[str, float] = {}
        self._to_give_back: list[str] = []
        self._spilled: set[str] = set()
        self._waiters: dict[str, Waiter] = {}
        self._wake_claimer = asyncio.Event()
        self._next_due = float("inf")
        self._there_are_more = False
        self._age = Gauge(
            "outrider_webhook_queue_age_seconds",
            "How long the oldest delivery that is due has waited.",
            registry=registry,
        )

    def room(self, webhook_id: str, count: int, size: int) -> bool:
        """Tell whether this node may take so many more deliveries of a webhook in hand.

        Where it may not, they stay in the table: see `spilled`.

        Args:
            size: of their bodies, in bytes.
        """
        return self._lanes.has_room(webhook_id, count, size)

    def spilled(self, webhook_id: str) -> None:
        """Take it that deliveries were stored for which there was no room."""
        self._spilled.add(webhook_id)
        if self._lanes.waiting(webhook_id) <= _RUNNING_LOW:
            self._wake_claimer.set()

    def take(self, delivery: Delivery, body: bytes, *, first: bool = False) -> None:
        """Take a delivery in hand that is stored, and claimed by this node.

        Args:
            first: put it before those of its webhook that wait.
        """
        self._in_hand[delivery.id] = self._clock() + CLAIM_SECONDS
        self._lanes.add(delivery, body, first=first)

    async def deliver(self, delivery: Delivery, body: bytes) -> Delivery:
        """Take a delivery in hand that somebody waits for.

        Returns:
            The delivery once its attempt is written down, or as it was where that takes more
            than half a minute.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[delivery.id] = waiter
        self.take(delivery, body, first=True)
        try:
            async with asyncio.timeout(_ASKED_SECONDS):
                return await waiter
        except TimeoutError:
            return delivery
        finally:
            self._waiters.pop(delivery.id, None)

    async def deliver_again(self, old: Delivery) -> Delivery:
        """Deliver an event once more, and return the new delivery after its first attempt."""
        now = self._clock()
        delivery = history.new_delivery(old.webhook_id, old.event_id, old.event, int(now * 1000))
        claimed_until = int((now + CLAIM_SECONDS) * 1000)
        body = await deliveries.again(self._database, [delivery], claimed_until)
        return await self.deliver(delivery, body[old.event_id])

    def look(self) -> None:
        """Look for due deliveries now: some were stored that nobody has in hand."""
        self._wake_claimer.set()

    async def run(self) -> None:
        """Claim, retry and write down, until cancelled; what is in hand is given back then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(self._claim, self._claim_pause), name="claim")
                group.create_task(self._keep(self._write, self._write_pause), name="outcomes")
                group.create_task(self._keep(self._renew, self._renew_pause), name="renew")
        finally:
            await self._end()

    def _left(self, webhook_id: str, waiting: int) -> None:
        """Have more of a webhook's deliveries fetched once few of those in hand are left."""
        if waiting <= _RUNNING_LOW and webhook_id in self._spilled:
            self._spilled.discard(webhook_id)
            self._wake_claimer.set()

    async def _try(self, delivery: Delivery, body: bytes) -> bool | None:
        """Try a delivery; return whether its receiver was prompt, None where it was not asked."""
        try:
            outcome = await self._attempt(delivery, body)
        except AWAY as error:
            _log.warning("delivery waits for the database", delivery=delivery.id, error=str(error))
            self._in_hand.pop(delivery.id, None)
            self._to_give_back.append(delivery.id)
        except Exception:  # noqa: BLE001  # a defect must not keep it in hand for ever
            _log.exception("delivery broke, it is tried again later", delivery=delivery.id)
            self._in_hand.pop(delivery.id, None)
        else:
            return None if outcome is None else outcome.duration_ms < _PROMPT_MS
        return None

    async def _attempt(self, delivery: Delivery, body: bytes) -> Outcome | None:
        """Try a delivery and have what came of it written down; None where it was not sent."""
        if self._clock() > self._in_hand.get(delivery.id, 0.0):
            self._in_hand.pop(delivery.id, None)  # this node stood still: it is another's by now
            return None
        found = await self._subscriptions.target(delivery.webhook_id)
        if found is None:
            self._in_hand.pop(delivery.id, None)  # removed, and its deliveries with it
            self._tell(delivery)
            return None
        account_id, target = found
        if not target.active and delivery.event != EventName.WEBHOOK_TEST:
            self._give_up(delivery, account_id, "The webhook is switched off")
            return None
        try:
            secrets = self._subscriptions.secrets(target)
        except OutriderError as error:
            self._give_up(delivery, account_id, str(error))
            return None
        outcome = await self._sender.attempt(
            url=target.url,
            secrets=secrets,
            event=delivery.event,
            delivery=delivery.id,
            number=delivery.attempt + 1,
            body=body,
        )
        self._outcomes.observe(outcome)
        spread = 1 + _SPREAD * (2 * self._chance() - 1)
        tried = history.tried(delivery, outcome, self._delays, spread)
        self._outcomes.add(tried, account_id, outcome.status, outcome.ended_at)
        if outcome.status == GONE:
            await self._subscriptions.switch_off(
                account_id, target.id, "The receiver answered 410: it is gone"
            )
        return outcome

    def _give_up(self, delivery: Delivery, account_id: str, reason: str) -> None:
        now = int(self._clock() * 1000)
        self._outcomes.add(history.given_up(delivery, reason, now), account_id, None, now)

    async def _write(self) -> None:
        """Write down what has come of attempts, and let go of what they were for."""
        soon = (self._clock() + _POLL_SECONDS) * 1000
        for delivery in await self._outcomes.write():
            self._in_hand.pop(delivery.id, None)
            self._tell(delivery)
            if delivery.next_attempt_at is not None and delivery.next_attempt_at < soon:
                self._wake_claimer.set()
        await self._outcomes.switch_off_hopeless()

    async def _claim(self) -> None:
        """Take in hand what is due and nobody's."""
        if back := list(self._to_give_back):
            await deliveries.renew(self._database, back, 0)
            del self._to_give_back[: len(back)]
        now = int(self._clock() * 1000)
        if not self._there_are_more:
            oldest, upcoming = await deliveries.due_times(self._database, now)
            self._next_due = float("inf") if upcoming is None else upcoming / 1000
            self._age.set(0 if oldest is None else (now - oldest) / 1000)
            if oldest is None:
                return
        full = self._lanes.with_more_than(_RUNNING_LOW)
        rows = await deliveries.claim(
            self._database,
            now=now,
            until=now + int(CLAIM_SECONDS * 1000),
            limit=_CLAIMED_AT_ONCE,
            without=full,
        )
        self._spilled.update(full)  # there may be more of theirs
        for delivery, body in rows:
            if delivery.id not in self._in_hand:
                self.take(delivery, body)
        self._there_are_more = len(rows) == _CLAIMED_AT_ONCE
        if self._there_are_more:
            self._age.set((now - (rows[0][0].next_attempt_at or now)) / 1000)
            self._wake_claimer.set()

    async def _renew(self) -> None:
        """Keep what is in hand, but for that of which the claim has run out."""
        now = self._clock()
        kept = [delivery for delivery, until in self._in_hand.items() if now <= until]
        if kept:
            await deliveries.renew(self._database, kept, int((now + CLAIM_SECONDS) * 1000))
            held = self._in_hand
            held |= {delivery: now + CLAIM_SECONDS for delivery in kept if delivery in held}

    async def _keep(
        self, work: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await work()
            except AWAY as error:
                _log.warning("the delivery queue waits for the database", error=str(error))
                await asyncio.sleep(_POLL_SECONDS)
            await pause()

    async def _claim_pause(self) -> None:
        wait = min(_POLL_SECONDS, max(0.0, self._next_due - self._clock()))
        await _wait(self._wake_claimer, wait)

    async def _write_pause(self) -> None:
        await asyncio.sleep(_BREATH_SECONDS)
        await _wait(self._outcomes.come, _POLL_SECONDS)

    async def _renew_pause(self) -> None:
        await asyncio.sleep(_RENEW_SECONDS)

    def _tell(self, delivery: Delivery) -> None:
        waiter = self._waiters.pop(delivery.id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(delivery)

    async def _end(self) -> None:
        """Stop what is in flight, write down what is over, and give the rest back."""
        await self._lanes.end()
        try:
            await self._write()
            if self._in_hand:
                await deliveries.renew(self._database, list(self._in_hand), 0)
        except AWAY as error:
            _log.warning("deliveries in hand stay claimed for a minute", error=str(error))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Return once the event is set, which it is no more then, or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
    finally:
        event.clear()
