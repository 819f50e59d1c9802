"""The delivery queue: the pending rows of the deliveries table, claimed and attempted by nodes.

    due rows ── claim ──▶ waiting here ── a free slot ──▶ attempt ──▶ outcome ── flush ──▶ table
                               └── renew, every 20 s

A claim is a lease: no other node attempts a claimed row until `claimed_until`, so the deliveries
of a node that dies are attempted by another one after `CLAIM_SECONDS` at the latest. Between an
attempt and its flush (about 100 ms) a crash loses the outcome, and the delivery is attempted again:
at least once, never lost.

A slow receiver must not delay others. A webhook has a few deliveries in flight at most, and a
bounded number of them waits here; the others stay in the table. However many receivers hang, half
of the slots are reserved for webhooks whose receiver answered promptly the last time.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog
from cachetools import FIFOCache
from prometheus_client import CollectorRegistry, Gauge

from outrider.contract.errors import OutriderError
from outrider.contract.events import EventName
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.database.transaction import to_its_end
from outrider.service.webhooks import retry_policy
from outrider.service.webhooks.outcomes import OutcomeBuffer
from outrider.service.webhooks.retry_policy import GONE, Outcome
from outrider.service.webhooks.sender import Sender
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.store.deliveries import Delivery
from outrider.service.webhooks.subscriptions import Subscriptions

CLAIM_SECONDS: Final = 60.0

_CLAIM_BATCH: Final = 1000
_CLAIM_BATCH_WHEN_FULL: Final = 8
"""Rows claimed at once while the bodies that wait here have too many bytes. They are of webhooks of
which nothing waits: each has a few deliveries at a time here, however large they are."""

_CALLER_SECONDS: Final = 20.0
"""Seconds that a caller waits beyond the timeout of an attempt, for a slot and for the flush."""

_RENEW_SECONDS: Final = 20.0
_PROMPT_MS: Final = 1000
"""A receiver that answers within this time is prompt."""

_MAX_PROMPT: Final = 100_000

_FLUSH_INTERVAL: Final = 0.1
"""Pause between two flushes of outcomes: many in one transaction cost little more than one."""

_TIMER_ERROR: Final = 0.002
"""Timers may end a little early. A look at the table then would be a claim, which is a write."""

_log = structlog.get_logger(__name__)

Waiter = asyncio.Future[Delivery]


class DeliveryLimits(NamedTuple):
    """How much is in flight, and how much waits in memory rather than in the table.

    Attributes:
        in_flight: deliveries in flight; half of them are of webhooks whose receiver was slow or has
            not answered yet.
        waiting_per_webhook: deliveries of a webhook; beyond it, no more of them are claimed.
        waiting_bytes_per_webhook: the same in bytes of bodies.
        waiting_bytes: bytes of waiting bodies, over all webhooks.
    """

    in_flight: int = 1000
    in_flight_per_webhook: int = 8
    waiting_per_webhook: int = 1000
    waiting_bytes_per_webhook: int = 4 * 1024 * 1024
    waiting_bytes: int = 32 * 1024 * 1024


DEFAULT_LIMITS: Final = DeliveryLimits()


class _Webhook:
    """A webhook's claimed deliveries that wait, and the number of its workers."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Delivery, bytes]] = deque()
        self.size = 0
        self.workers = 0


class DeliveryQueue:
    """Attempts deliveries until they are completed.

    It is long because a claim is one idea: claiming, renewing, releasing and dropping it must agree
    on what this node may attempt.

    Args:
        delays: seconds before each retry.
        clock: seconds since the epoch.
        chance: returns a number from 0 to 1, for the spread of retries.
        poll_interval: seconds between polls of the table for due deliveries.
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
        limits: DeliveryLimits = DEFAULT_LIMITS,
        poll_interval: float = 1.0,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._sender = sender
        self._delays = delays
        self._clock = clock
        self._chance = chance
        self._poll_interval = poll_interval
        self._limits = limits
        self._webhooks: dict[str, _Webhook] = {}
        self._size = 0
        self._prompt: FIFOCache[str, None] = FIFOCache(_MAX_PROMPT)
        others = limits.in_flight // 2
        self._slots = {
            True: asyncio.Semaphore(limits.in_flight - others),  # of prompt webhooks
            False: asyncio.Semaphore(others),
        }
        self._workers: set[asyncio.Task[None]] = set()
        self._outcomes = OutcomeBuffer(database, subscriptions, registry, clock)
        self._claims: dict[str, float] = {}
        self._to_release: list[str] = []
        self._skipped: set[str] = set()
        self._waiters: dict[str, Waiter] = {}
        self._wake_claim = asyncio.Event()
        self._flush_now = asyncio.Event()
        self._look_at = 0.0
        self._age = Gauge(
            "outrider_webhook_queue_age_seconds",
            "How long the oldest due delivery has waited.",
            registry=registry,
        )

    @property
    def claimed(self) -> int:
        """The number of deliveries that this node has claimed."""
        return len(self._claims)

    def _add(
        self, delivery: Delivery, body: bytes, claimed_until: int, *, first: bool = False
    ) -> None:
        """Add a delivery that is stored and claimed by this node.

        Args:
            claimed_until: what the table has. A time of now would be later, and let this node
                attempt what another one has claimed already.
            first: ahead of those of its webhook that wait.
        """
        self._claims[delivery.id] = claimed_until / 1000
        webhook = self._webhooks.setdefault(delivery.webhook_id, _Webhook())
        webhook.size += len(body)
        self._size += len(body)
        if first:
            webhook.waiting.appendleft((delivery, body))
        else:
            webhook.waiting.append((delivery, body))
        if webhook.workers < self._limits.in_flight_per_webhook:
            webhook.workers += 1
            worker = asyncio.create_task(self._work(delivery.webhook_id, webhook))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def deliver(self, delivery: Delivery, body: bytes, claimed_until: int) -> Delivery:
        """Add a delivery that this node has claimed, and wait for its first attempt.

        Returns:
            The delivery after its attempt is stored, or as it was if that takes more than 20 s
            longer than an attempt may.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[delivery.id] = waiter
        self._add(delivery, body, claimed_until, first=True)
        try:
            async with asyncio.timeout(self._sender.timeout + _CALLER_SECONDS):
                return await waiter
        except TimeoutError:
            return delivery
        finally:
            self._waiters.pop(delivery.id, None)

    async def deliver_again(self, old: Delivery) -> Delivery:
        """Deliver an event again; return the new delivery after its first attempt."""
        now = self._clock()
        delivery = retry_policy.new_delivery(
            old.webhook_id, old.event_id, old.event, int(now * 1000)
        )
        claimed_until = int((now + CLAIM_SECONDS) * 1000)
        body = await deliveries.again(self._database, [delivery], claimed_until)
        return await self.deliver(delivery, body[old.event_id], claimed_until)

    async def replay(self, failed: Sequence[Delivery]) -> None:
        """Deliver the events of these deliveries again, as new deliveries that any node claims."""
        now = int(self._clock() * 1000)
        again = [
            retry_policy.new_delivery(old.webhook_id, old.event_id, old.event, now)
            for old in failed
        ]
        await deliveries.again(self._database, again)
        self.wake({delivery.webhook_id for delivery in again})

    def wake(self, webhook_ids: Iterable[str]) -> None:
        """Claim due deliveries now: some of these webhooks were stored that no node has claimed."""
        for webhook_id in webhook_ids:
            webhook = self._webhooks.get(webhook_id)
            if webhook is not None and self._has_enough(webhook):
                self._skipped.add(webhook_id)  # `_attempt_next` wakes when it has not any more
            else:
                self._wake_claim.set()

    async def run(self) -> None:
        """Claim, attempt and flush until cancelled; claims are released then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(self.claim, self._claim_pause), name="claim")
                group.create_task(self._keep(self._flush, self._flush_pause), name="flush")
                group.create_task(self._keep(self.renew, self._renew_pause), name="renew")
        finally:
            await self.close()

    async def claim(self) -> None:
        """Claim due deliveries that no node has claimed."""
        if released := list(self._to_release):
            await deliveries.renew(self._database, released, 0)
            # Deliveries may have been appended while the database was awaited: these stay.
            del self._to_release[: len(released)]
        now = int(self._clock() * 1000)
        if now >= self._look_at * 1000:
            oldest, upcoming = await deliveries.due_times(self._database, now)
            self._look_at = now / 1000 + self._poll_interval
            if upcoming is not None:
                self._look_at = min(self._look_at, upcoming / 1000)
            self._age.set(0 if oldest is None else (now - oldest) / 1000)
            if oldest is None:
                return
        self._skipped = {
            name for name, webhook in self._webhooks.items() if self._has_enough(webhook)
        }
        limit = _CLAIM_BATCH_WHEN_FULL if self._is_full else _CLAIM_BATCH
        until = now + int(CLAIM_SECONDS * 1000)
        rows, more_due = await deliveries.claim(
            self._database,
            now=now,
            until=until,
            limit=limit,
            without=list(self._skipped),
        )
        for delivery, body in rows:
            # A lease that has expired here (a suspended process) is claimed again, perhaps by this
            # node, which still has the delivery.
            if delivery.id in self._claims:
                self._claims[delivery.id] = until / 1000
            else:
                self._add(delivery, body, until)
        if more_due:
            self._age.set((now - (rows[0][0].next_attempt_at or now)) / 1000)
            self._wake_claim.set()

    async def renew(self) -> None:
        """Extend the claims of this node, except those that have expired."""
        now = self._clock()
        valid = [delivery for delivery, until in self._claims.items() if now <= until]
        if valid:
            await deliveries.renew(self._database, valid, int((now + CLAIM_SECONDS) * 1000))
            # A delivery may have ended while the database was awaited: do not claim it again.
            claims = self._claims
            claims |= {delivery: now + CLAIM_SECONDS for delivery in valid if delivery in claims}

    async def close(self) -> None:
        """Cancel the attempts in flight, store the outcomes, and release the other claims."""
        # In this order: an attempt that ended after the flush would lose its outcome. One that is
        # cancelled may have reached its receiver; its delivery is released, and attempted again.
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        try:
            await self._flush()
            if self._claims:
                await deliveries.renew(self._database, list(self._claims), 0)
        except DATABASE_ERRORS as error:
            _log.warning("releasing claims failed, they expire within a minute", error=str(error))

    @property
    def _is_full(self) -> bool:
        return self._size > self._limits.waiting_bytes

    def _has_enough(self, webhook: _Webhook) -> bool:
        """Return whether no more of a webhook's deliveries should be claimed now."""
        if self._is_full:  # those of which nothing waits still get their turn
            return bool(webhook.waiting)
        is_large = webhook.size > self._limits.waiting_bytes_per_webhook
        return is_large or len(webhook.waiting) > self._limits.waiting_per_webhook

    async def _work(self, webhook_id: str, webhook: _Webhook) -> None:
        """Attempt a webhook's deliveries, in order, until none waits.

        Each attempt is in a slot, for which all webhooks queue: whoever had one goes to the end.
        """
        try:
            while webhook.waiting:
                is_prompt = webhook_id in self._prompt
                async with self._slots[is_prompt]:
                    # While this waited for the slot, another worker may have taken the last
                    # delivery, or seen that the receiver is slow.
                    if webhook.waiting and is_prompt == (webhook_id in self._prompt):
                        await self._attempt_next(webhook_id, webhook)
        finally:
            webhook.workers -= 1
            if not webhook.workers:
                self._webhooks.pop(webhook_id, None)

    async def _attempt_next(self, webhook_id: str, webhook: _Webhook) -> None:
        delivery, body = webhook.waiting.popleft()
        webhook.size -= len(body)
        self._size -= len(body)
        if webhook_id in self._skipped and not self._has_enough(webhook):
            self._skipped.discard(webhook_id)
            self._wake_claim.set()  # the table may have more of this webhook
        was_prompt = await self._attempt_safely(delivery, body)
        if was_prompt:
            self._prompt[webhook_id] = None
        elif was_prompt is not None:
            self._prompt.pop(webhook_id, None)

    async def _attempt_safely(self, delivery: Delivery, body: bytes) -> bool | None:
        """Attempt a delivery; return whether its receiver was prompt, None if not contacted."""
        try:
            outcome = await self._attempt(delivery, body)
        except DATABASE_ERRORS as error:
            _log.warning(
                "delivery postponed, database unavailable", delivery=delivery.id, error=str(error)
            )
            # The lease keeps other nodes away until `claim` reaches the database again.
            self._claims.pop(delivery.id, None)
            self._to_release.append(delivery.id)
        except Exception:  # noqa: BLE001  # a defect must not keep the claim for ever
            _log.exception("delivery attempt failed unexpectedly, retrying", delivery=delivery.id)
            # Not released: it is attempted again when its lease expires, not at once and for ever.
            self._claims.pop(delivery.id, None)
        else:
            return None if outcome is None else outcome.duration_ms < _PROMPT_MS
        return None

    async def _attempt(self, delivery: Delivery, body: bytes) -> Outcome | None:
        """Attempt a delivery and buffer its outcome; None if it was not sent."""
        if self._clock() > self._claims.get(delivery.id, 0.0):
            # The lease expired while this process was suspended: another node may have it.
            self._claims.pop(delivery.id, None)
            return None
        owned = await self._subscriptions.destination(delivery.webhook_id)
        if owned is None:
            self._claims.pop(delivery.id, None)  # deleted, with its deliveries
            self._notify(delivery)
            return None
        account_id, destination = owned
        if not destination.active and delivery.event != EventName.WEBHOOK_TEST:
            self._abandon(delivery, account_id, "The webhook is disabled")
            return None
        try:
            secrets = self._subscriptions.secrets(destination)
        except OutriderError as error:
            self._abandon(delivery, account_id, str(error))
            return None
        outcome = await self._sender.attempt(
            url=destination.url,
            secrets=secrets,
            event=delivery.event,
            delivery=delivery.id,
            number=delivery.attempt + 1,
            body=body,
        )
        self._outcomes.observe(outcome)
        after = retry_policy.after_attempt(delivery, outcome, self._delays, self._chance())
        self._outcomes.add(after, account_id, outcome.status, outcome.ended_at)
        if outcome.status == GONE:
            self._flush_now.set()  # it disables the webhook: nothing more should be sent to it
        return outcome

    def _abandon(self, delivery: Delivery, account_id: str, reason: str) -> None:
        now = int(self._clock() * 1000)
        self._outcomes.add(retry_policy.abandoned(delivery, reason, now), account_id, None, now)

    async def _flush(self) -> None:
        """Store the buffered outcomes and drop the claims of their deliveries."""
        soon = (self._clock() + self._poll_interval) * 1000
        for delivery in await self._outcomes.flush():
            # Only now, after the commit: a lease that expires before it causes a second attempt.
            self._claims.pop(delivery.id, None)
            self._notify(delivery)
            if delivery.next_attempt_at is not None and delivery.next_attempt_at < soon:
                self._look_at = min(self._look_at, delivery.next_attempt_at / 1000)
                self._wake_claim.set()
        await self._outcomes.disable_failing()

    async def _keep(
        self, work: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                # To its end: a claim that was committed and is not known here would keep every
                # node from its deliveries until it expires.
                await to_its_end(work())
            except DATABASE_ERRORS as error:
                _log.warning("delivery queue paused, database unavailable", error=str(error))
                await asyncio.sleep(self._poll_interval)
            await pause()

    async def _claim_pause(self) -> None:
        wait = self._look_at - self._clock() + _TIMER_ERROR
        await _wait(self._wake_claim, min(self._poll_interval, max(0.0, wait)))

    async def _flush_pause(self) -> None:
        await _wait(self._flush_now, _FLUSH_INTERVAL)
        await _wait(self._outcomes.added, self._poll_interval)

    async def _renew_pause(self) -> None:
        await asyncio.sleep(_RENEW_SECONDS)

    def _notify(self, delivery: Delivery) -> None:
        waiter = self._waiters.pop(delivery.id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(delivery)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Return once the event is set or the time is over; the event is cleared."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
    finally:
        # Cleared before the work, not after it: what is set during the work counts next time.
        event.clear()
