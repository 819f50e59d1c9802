"""What becomes of a delivery after an attempt: it succeeded, failed, or is due again.

Pure: deliveries and outcomes in, deliveries out. The delays before the retries are the setting
`webhook_retry_delays`.

    new_delivery ─▶ pending ── after_attempt ──▶ succeeded | failed | pending with a later due time
                       └────── abandoned ──────▶ failed
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from outrider.contract.ids import new_id
from outrider.contract.webhooks import Attempt
from outrider.contract.webhooks import Delivery as DeliveryRecord
from outrider.service.webhooks.store.deliveries import Delivery

GONE: Final = 410
"""The status with which a receiver refuses all further deliveries (RFC 9110, 15.5.11).

Its delivery fails here; `outcomes` disables the webhook.
"""

SPREAD: Final = 0.2
"""The part of its delay by which a retry is earlier or later, at most: failures of one moment are
not retried in one moment."""


class Outcome(NamedTuple):
    """The outcome of an attempt. Without an answer `status` is None and `error` says why.

    `started_at` is epoch milliseconds, `retry_after` the seconds that the receiver asked for.
    """

    status: int | None
    response_body: str | None
    error: str | None
    started_at: int
    duration_ms: int
    retry_after: float

    @property
    def ended_at(self) -> int:
        """The end of the attempt, in epoch milliseconds."""
        return self.started_at + self.duration_ms

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted the delivery: a 2xx in time."""
        return self.error is None and self.status is not None and 200 <= self.status < 300


def new_delivery(webhook_id: str, event_id: str, event: str, now: int) -> Delivery:
    """Return a delivery that is due at once."""
    return Delivery(
        id=new_id("dlv"),
        webhook_id=webhook_id,
        event_id=event_id,
        event=event,
        status="pending",
        attempt=0,
        attempts=b"[]",
        created_at=now,
        completed_at=None,
        next_attempt_at=now,
    )


def after_attempt(
    delivery: Delivery, outcome: Outcome, delays: Sequence[float], chance: float
) -> Delivery:
    """Return the delivery after an attempt: completed, or due again.

    Args:
        delays: seconds before each retry; their number is the number of retries.
        chance: a random number from 0 to 1, for the spread of retries.
    """
    number = delivery.attempt + 1
    attempt = Attempt(
        attempt=number,
        status_code=outcome.status,
        response_body=outcome.response_body,
        error=outcome.error,
        started_at=outcome.started_at,
        duration_ms=outcome.duration_ms,
    )
    status, ended, due = "pending", outcome.ended_at, None
    if outcome.delivered:
        status = "succeeded"
    elif outcome.status == GONE or number > len(delays):
        status = "failed"
    else:
        delay = delays[number - 1] * (1 + SPREAD * (2 * chance - 1))
        due = ended + int(max(delay, outcome.retry_after) * 1000)
    return delivery._replace(
        status=status,
        attempt=number,
        attempts=_append(delivery.attempts, attempt),
        completed_at=None if status == "pending" else ended,
        next_attempt_at=due,
    )


def abandoned(delivery: Delivery, reason: str, now: int) -> Delivery:
    """Return the delivery as failed without a further attempt; `reason` becomes its error.

    The list of attempts gets an entry, with the number that the attempt would have had.
    """
    attempt = Attempt(
        attempt=delivery.attempt + 1,
        status_code=None,
        response_body=None,
        error=reason,
        started_at=now,
        duration_ms=0,
    )
    return delivery._replace(
        attempts=_append(delivery.attempts, attempt),
        status="failed",
        completed_at=now,
        next_attempt_at=None,
    )


def record(delivery: Delivery) -> DeliveryRecord:
    """Return the delivery as the API shows it."""
    attempts = msgspec.json.decode(delivery.attempts, type=list[Attempt])
    newest = attempts[-1] if attempts else None
    return DeliveryRecord(
        id=delivery.id,
        webhook_id=delivery.webhook_id,
        event_id=delivery.event_id,
        event=delivery.event,
        status=delivery.status,  # type: ignore[arg-type]  # the column holds no other
        status_code=newest.status_code if newest else None,
        response_body=newest.response_body if newest else None,
        error=newest.error if newest else None,
        attempt=delivery.attempt,
        duration_ms=newest.duration_ms if newest else None,
        created_at=delivery.created_at,
        completed_at=delivery.completed_at,
        next_attempt_at=delivery.next_attempt_at,
        attempts=attempts,
    )


def _append(attempts: bytes, attempt: Attempt) -> bytes:
    """Append to the JSON of a list of attempts."""
    return msgspec.json.encode([*msgspec.json.decode(attempts, type=list[Attempt]), attempt])
