"""Outcomes of delivery attempts: stored in batches, with their effect on the webhooks."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from outrider.service.database.engine import Database
from outrider.service.periodic import WriteBehind
from outrider.service.webhooks.retry_policy import GONE, Outcome
from outrider.service.webhooks.store import deliveries, webhooks
from outrider.service.webhooks.store.deliveries import Delivery
from outrider.service.webhooks.subscriptions import Subscriptions

DISABLE_AFTER_DAYS: Final = 5
"""A webhook whose every delivery has failed for this long is disabled."""


class _Completed(NamedTuple):
    """A delivery after an attempt, not stored yet."""

    delivery: Delivery
    account_id: str
    status_code: int | None
    at: int


class OutcomeBuffer:
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
        return [entry.delivery for entry in (await self._buffer.flush()).values()]

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
        stored = [entry.delivery for entry in completed]
        failing = await deliveries.finish(self._database, stored, _results(completed))
        latest = int((self._clock() - DISABLE_AFTER_DAYS * 86400) * 1000)
        self._failing = {
            entry.delivery.webhook_id: entry.account_id
            for entry in completed
            if failing.get(entry.delivery.webhook_id, latest + 1) <= latest
        }
        for account_id in {entry.account_id for entry in completed if entry.status_code == GONE}:
            self._subscriptions.invalidate(account_id)


def _results(completed: Sequence[_Completed]) -> list[webhooks.Result]:
    """Return the effect of the deliveries on each webhook; they are in order."""
    newest: dict[str, _Completed] = {}
    failed_at: dict[str, int] = {}
    succeeded: set[str] = set()
    gone: set[str] = set()
    for entry in completed:
        webhook_id, status = entry.delivery.webhook_id, entry.delivery.status
        newest[webhook_id] = entry
        if status == "succeeded":
            succeeded.add(webhook_id)
        elif status == "failed":
            failed_at[webhook_id] = entry.at
        if entry.status_code == GONE:
            gone.add(webhook_id)
    return [
        webhooks.Result(
            webhook_id=webhook_id,
            last_delivery={
                "id": entry.delivery.id,
                "event": entry.delivery.event,
                "status": entry.delivery.status,
                "statusCode": entry.status_code,
                "at": entry.at,
            },
            failed_at=failed_at.get(webhook_id),
            succeeded=webhook_id in succeeded,
            disabled_reason="The receiver answered 410 Gone" if webhook_id in gone else None,
        )
        for webhook_id, entry in newest.items()
    ]
