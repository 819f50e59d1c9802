"""The delivery queue: the pending rows of the deliveries table, claimed and attempted by nodes.

    due rows ── claim ──▶ claimed here ── DeliveryLimiter ──▶ attempt ──▶ outcome ── flush ──▶ table
                               └── renew, every 20 s

A claim is a lease: no other node attempts a claimed row until `claimed_until`, so the deliveries
of a node that dies are attempted by another one after `CLAIM_SECONDS` at the latest. Between an
attempt and its flush (about 50 ms) a crash loses the outcome, and the delivery is attempted again:
at least once, never lost.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from outrider.contract.errors import OutriderError
from outrider.contract.events import EventName
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.periodic import WriteBehind
from outrider.service.webhooks import retry_policy
from outrider.service.webhooks.delivery_limiter import (
    DEFAULT_LIMITS,
    DeliveryLimiter,
    DeliveryLimits,
)
from outrider.service.webhooks.retry_policy import GONE, Outcome
from outrider.service.webhooks.sender import Sender
from outrider.service.webhooks.store import deliveries, webhooks
from outrider.service.webhooks.store.deliveries import Delivery
from outrider.service.webhooks.subscriptions import Subscriptions

CLAIM_SECONDS: Final = 60.0

DISABLE_AFTER_DAYS: Final = 5
"""A webhook whose every delivery has failed for this long is disabled."""

_LOW_WATERMARK: Final = 100
"""Waiting deliveries of a webhook below which more of them are fetched from the table."""

_CLAIM_BATCH: Final = 200
_CLAIM_BATCH_WHEN_FULL: Final = 8
"""Rows claimed at once while the bodies that wait here have too many bytes. They are of webhooks of
which nothing waits: each has a few deliveries at a time here, however large they are."""

_CALLER_SECONDS: Final = 20.0
"""Seconds that a caller waits beyond the timeout of an attempt, for a slot and for the flush."""

_RENEW_SECONDS: Final = 20.0
_PROMPT_MS: Final = 1000
"""A receiver that answers within this time is prompt; see `delivery_limiter`."""

_FLUSH_INTERVAL: Final = 0.05
"""Pause between two flushes of outcomes: many in one transaction cost little more than one."""

_log = structlog.get_logger(__name__)

Waiter = asyncio.Future[Delivery]


class DeliveryQueue:
    """Attempts deliveries until they are completed.

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
        self._limiter = DeliveryLimiter(self._attempt_safely, self._started, limits)
        self._outcomes = _OutcomeBuffer(database, subscriptions, registry, clock)
        self._claims: dict[str, float] = {}
        self._to_release: list[str] = []
        self._overflow: set[str] = set()
        self._waiters: dict[str, Waiter] = {}
        self._wake_claim = asyncio.Event()
        self._flush_now = asyncio.Event()
        self._next_due = float("inf")
        self._more_due = False
        self._age = Gauge(
            "outrider_webhook_queue_age_seconds",
            "How long the oldest due delivery has waited.",
            registry=registry,
        )

    @property
    def claimed(self) -> int:
        """The number of deliveries that this node has claimed."""
        return len(self._claims)

    @property
    def limiter(self) -> DeliveryLimiter:
        """The limits on deliveries in flight, for metrics and tests."""
        return self._limiter

    def has_room(self, webhook_id: str, count: int, size: int) -> bool:
        """Return whether this node has room for `count` more deliveries of a webhook.

        Without room they stay in the table; see `overflowed`.

        Args:
            size: the bytes of their bodies.
        """
        return self._limiter.has_room(webhook_id, count, size)

    def overflowed(self, webhook_id: str) -> None:
        """Note that deliveries of a webhook were stored unclaimed, for lack of room."""
        self._overflow.add(webhook_id)
        if not self._limiter.has_enough(webhook_id, _LOW_WATERMARK):
            self._wake_claim.set()

    def add(self, delivery: Delivery, body: bytes, *, first: bool = False) -> None:
        """Add a delivery that is stored and claimed by this node.

        Args:
            first: ahead of those of its webhook that wait.
        """
        self._claims[delivery.id] = self._clock() + CLAIM_SECONDS
        self._limiter.add(delivery, body, first=first)

    async def deliver(self, delivery: Delivery, body: bytes) -> Delivery:
        """Add a delivery and wait for its first attempt.

        Returns:
            The delivery after its attempt is stored, or as it was if that takes more than 20 s
            longer than an attempt may.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[delivery.id] = waiter
        self.add(delivery, body, first=True)
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
        return await self.deliver(delivery, body[old.event_id])

    async def replay(self, failed: Sequence[Delivery]) -> None:
        """Deliver the events of these deliveries again, as new deliveries that any node claims."""
        now = int(self._clock() * 1000)
        again = [
            retry_policy.new_delivery(old.webhook_id, old.event_id, old.event, now)
            for old in failed
        ]
        await deliveries.again(self._database, again)
        self.wake()

    def wake(self) -> None:
        """Look for due deliveries now: some were stored that no node has claimed."""
        self._wake_claim.set()

    async def run(self) -> None:
        """Claim, attempt and flush until cancelled; claims are released then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(self.claim, self._claim_pause), name="claim")
                group.create_task(self._keep(self._flush, self._flush_pause), name="flush")
                group.create_task(self._keep(self.renew, self._renew_pause), name="renew")
        finally:
            await self._close()

    async def claim(self) -> None:
        """Claim due deliveries that no node has claimed."""
        if released := list(self._to_release):
            await deliveries.renew(self._database, released, 0)
            # Deliveries may have been appended while the database was awaited: these stay.
            del self._to_release[: len(released)]
        now = int(self._clock() * 1000)
        if not self._more_due:
            oldest, upcoming = await deliveries.due_times(self._database, now)
            self._next_due = float("inf") if upcoming is None else upcoming / 1000
            self._age.set(0 if oldest is None else (now - oldest) / 1000)
            if oldest is None:
                return
        enough = self._limiter.with_enough(_LOW_WATERMARK)
        limit = _CLAIM_BATCH_WHEN_FULL if self._limiter.is_full else _CLAIM_BATCH
        rows, self._more_due = await deliveries.claim(
            self._database,
            now=now,
            until=now + int(CLAIM_SECONDS * 1000),
            limit=limit,
            without=enough,
        )
        self._overflow.update(enough)  # the table may have more of theirs
        for delivery, body in rows:
            # A lease that has expired here (a suspended process) is claimed again, perhaps by this
            # node, which still has the delivery.
            if delivery.id not in self._claims:
                self.add(delivery, body)
        if self._more_due:
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

    def _started(self, webhook_id: str) -> None:
        """Fetch more of a webhook's deliveries from the table once few are left here."""
        if webhook_id in self._overflow and not self._limiter.has_enough(
            webhook_id, _LOW_WATERMARK
        ):
            self._overflow.discard(webhook_id)
            self._wake_claim.set()

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
        found = await self._subscriptions.destination(delivery.webhook_id)
        if found is None:
            self._claims.pop(delivery.id, None)  # deleted, with its deliveries
            self._notify(delivery)
            return None
        account_id, destination = found
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
                self._wake_claim.set()
        await self._outcomes.disable_failing()

    async def _keep(
        self, work: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                await work()
            except DATABASE_ERRORS as error:
                _log.warning("delivery queue paused, database unavailable", error=str(error))
                await asyncio.sleep(self._poll_interval)
            await pause()

    async def _claim_pause(self) -> None:
        wait = min(self._poll_interval, max(0.0, self._next_due - self._clock()))
        await _wait(self._wake_claim, wait)

    async def _flush_pause(self) -> None:
        await _wait(self._flush_now, _FLUSH_INTERVAL)
        await _wait(self._outcomes.added, self._poll_interval)

    async def _renew_pause(self) -> None:
        await asyncio.sleep(_RENEW_SECONDS)

    def _notify(self, delivery: Delivery) -> None:
        waiter = self._waiters.pop(delivery.id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(delivery)

    async def _close(self) -> None:
        """Cancel deliveries in flight, flush outcomes, and release the other claims."""
        # In this order: an attempt that ended after the flush would lose its outcome. One that is
        # cancelled may have reached its receiver; its delivery is released, and attempted again.
        await self._limiter.close()
        try:
            await self._flush()
            if self._claims:
                await deliveries.renew(self._database, list(self._claims), 0)
        except DATABASE_ERRORS as error:
            _log.warning("releasing claims failed, they expire within a minute", error=str(error))


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


class _Completed(NamedTuple):
    """A delivery after an attempt, not stored yet."""

    delivery: Delivery
    account_id: str
    status_code: int | None
    at: int


class _OutcomeBuffer:
    """Outcomes that wait to be stored, in batches, with their effect on the webhooks.

    Attributes:
        added: set when there is something to flush.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        subscriptions: Subscriptions,
        registry: CollectorRegistry,
        clock: Callable[[], float],
    ) -> None:
        self.added = asyncio.Event()
        self._database = database
        self._subscriptions = subscriptions
        self._clock = clock
        self._buffer: WriteBehind[_Completed] = WriteBehind(self._store, "delivery outcomes")
        self._failing: dict[str, str] = {}
        attempts = Counter(
            "outrider_webhook_attempts", "Attempts, by outcome.", ["outcome"], registry=registry
        )
        self._attempts = {True: attempts.labels("delivered"), False: attempts.labels("failed")}
        self._seconds = Histogram(
            "outrider_webhook_attempt_seconds", "Seconds of an attempt.", registry=registry
        )

    def observe(self, outcome: Outcome) -> None:
        """Count an attempt in the metrics."""
        self._attempts[outcome.delivered].inc()
        self._seconds.observe(outcome.duration_ms / 1000)

    def add(self, delivery: Delivery, account_id: str, status_code: int | None, at: int) -> None:
        """Buffer a delivery in its state after an attempt.

        Args:
            status_code: the receiver's answer, None without one.
            at: the end of the attempt, in epoch milliseconds.
        """
        self._buffer.put(delivery.id, _Completed(delivery, account_id, status_code, at))
        self.added.set()

    async def flush(self) -> list[Delivery]:
        """Store the buffered deliveries and return them.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; they stay in the buffer.
        """
        return [one.delivery for one in (await self._buffer.flush()).values()]

    async def disable_failing(self) -> None:
        """Disable webhooks whose every delivery has failed for `DISABLE_AFTER_DAYS` days.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable; their next failure tries again.
        """
        failing, self._failing = self._failing, {}
        for webhook_id, account_id in failing.items():
            reason = f"Every delivery has failed for {DISABLE_AFTER_DAYS} days"
            await self._subscriptions.disable(account_id, webhook_id, reason)

    async def _store(self, buffered: dict[str, _Completed]) -> None:
        completed = list(buffered.values())
        stored = [one.delivery for one in completed]
        failing = await deliveries.finish(self._database, stored, _results(completed))
        latest = int((self._clock() - DISABLE_AFTER_DAYS * 86400) * 1000)
        self._failing = {
            one.delivery.webhook_id: one.account_id
            for one in completed
            if failing.get(one.delivery.webhook_id, latest + 1) <= latest
        }
        for account_id in {one.account_id for one in completed if one.status_code == GONE}:
            self._subscriptions.invalidate(account_id)


def _results(completed: Sequence[_Completed]) -> list[webhooks.Result]:
    """Return the effect of the deliveries on each webhook; they are in order."""
    newest: dict[str, _Completed] = {}
    failed_at: dict[str, int] = {}
    succeeded: set[str] = set()
    gone: set[str] = set()
    for one in completed:
        webhook_id, status = one.delivery.webhook_id, one.delivery.status
        newest[webhook_id] = one
        if status == "succeeded":
            succeeded.add(webhook_id)
        elif status == "failed":
            failed_at[webhook_id] = one.at
        if one.status_code == GONE:
            gone.add(webhook_id)
    return [
        webhooks.Result(
            webhook_id=webhook_id,
            last_delivery={
                "id": one.delivery.id,
                "event": one.delivery.event,
                "status": one.delivery.status,
                "statusCode": one.status_code,
                "at": one.at,
            },
            failed_at=failed_at.get(webhook_id),
            succeeded=webhook_id in succeeded,
            disabled_reason="The receiver answered 410 Gone" if webhook_id in gone else None,
        )
        for webhook_id, one in newest.items()
    ]
