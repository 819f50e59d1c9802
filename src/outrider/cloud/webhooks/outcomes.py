"""What has come of attempts, until it is written down, which is done in batches.

With it goes what it says of its webhook: the newest delivery, and since when all have failed.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from outrider.cloud.store import deliveries, webhooks
from outrider.cloud.store.database import Database
from outrider.cloud.store.deliveries import Delivery
from outrider.cloud.webhooks.sender import Outcome
from outrider.cloud.webhooks.subscriptions import Subscriptions

_FAILING_SECONDS: Final = 5 * 86400.0


class _Over(NamedTuple):
    """A delivery after an attempt, which is not written down yet."""

    delivery: Delivery
    account_id: str
    status_code: int | None
    at: int


class Outcomes:
    """The deliveries whose attempts are over.

    Attributes:
        come: set once there is something to write down.

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
        self.come = asyncio.Event()
        self._database = database
        self._subscriptions = subscriptions
        self._clock = clock
        self._over: list[_Over] = []
        self._hopeless: dict[str, str] = {}
        attempts = Counter(
            "outrider_webhook_attempts", "Attempts, by outcome.", ["outcome"], registry=registry
        )
        self._attempts = {True: attempts.labels("delivered"), False: attempts.labels("failed")}
        self._counts = {True: 0, False: 0}
        self._seconds = Histogram(
            "outrider_webhook_attempt_seconds", "Seconds of an attempt.", registry=registry
        )

    def observe(self, outcome: Outcome) -> None:
        """Count an attempt in the metrics."""
        self._counts[outcome.delivered] += 1
        self._seconds.observe(outcome.duration_ms / 1000)

    def add(self, delivery: Delivery, account_id: str, status_code: int | None, at: int) -> None:
        """Have a delivery written down as it is after its attempt.

        Args:
            status_code: what the receiver answered, None where it did not.
            at: when that was, in epoch milliseconds.
        """
        self._over.append(_Over(delivery, account_id, status_code, at))
        self.come.set()

    async def write(self) -> list[Delivery]:
        """Write down what is over, and return it.

        Raises:
            SQLAlchemyError, OSError: the database is away; the next call writes it.
        """
        for delivered, count in self._counts.items():
            self._attempts[delivered].inc(count)
            self._counts[delivered] = 0
        over, self._over = self._over, []
        if not over:
            return []
        try:
            written = [one.delivery for one in over]
            failing = await deliveries.finish(self._database, written, _results(over))
        except BaseException:
            self._over = over + self._over
            raise
        latest = int((self._clock() - _FAILING_SECONDS) * 1000)
        self._hopeless = {
            one.delivery.webhook_id: one.account_id
            for one in over
            if failing.get(one.delivery.webhook_id, latest + 1) <= latest
        }
        return written

    async def switch_off_hopeless(self) -> None:
        """Switch off the webhooks of which, for days, all that was written down are failures.

        Raises:
            SQLAlchemyError, OSError: the database is away; their next failure brings it up again.
        """
        hopeless, self._hopeless = self._hopeless, {}
        for webhook_id, account_id in hopeless.items():
            reason = "Every delivery has failed for 5 days"
            await self._subscriptions.switch_off(account_id, webhook_id, reason)


def _results(over: Sequence[_Over]) -> list[webhooks.Result]:
    """Return, for each webhook, what its newest deliveries say of it."""
    results: dict[str, webhooks.Result] = {}
    for delivery, _, status_code, at in over:
        earlier = results.get(delivery.webhook_id)
        failed = delivery.status == "failed"
        results[delivery.webhook_id] = webhooks.Result(
            webhook_id=delivery.webhook_id,
            last_delivery={
                "id": delivery.id,
                "event": delivery.event,
                "status": delivery.status,
                "statusCode": status_code,
                "at": at,
            },
            failed_at=at if failed else None if earlier is None else earlier.failed_at,
            succeeded=delivery.status == "succeeded" or (earlier is not None and earlier.succeeded),
        )
    return list(results.values())
