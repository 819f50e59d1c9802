"""A delivery's life: made, tried, over. And how the API shows it."""

from collections.abc import Sequence

import msgspec

from outrider.cloud.store.deliveries import Delivery
from outrider.cloud.webhooks.sender import GONE, Outcome
from outrider.contract.ids import new_id
from outrider.contract.webhooks import Attempt
from outrider.contract.webhooks import Delivery as View

_attempts = msgspec.json.Decoder(list[Attempt])
_encoder = msgspec.json.Encoder()


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


def tried(delivery: Delivery, outcome: Outcome, delays: Sequence[float], spread: float) -> Delivery:
    """Return the delivery after an attempt: over, or due again.

    Args:
        delays: seconds before each retry; there are as many retries.
        spread: the factor by which to vary the delay.
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
        due = ended + int(max(delays[number - 1] * spread, outcome.retry_after) * 1000)
    return Delivery(
        id=delivery.id,
        webhook_id=delivery.webhook_id,
        event_id=delivery.event_id,
        event=delivery.event,
        status=status,
        attempt=number,
        attempts=_with(delivery.attempts, attempt),
        created_at=delivery.created_at,
        completed_at=None if status == "pending" else ended,
        next_attempt_at=due,
    )


def given_up(delivery: Delivery, reason: str, now: int) -> Delivery:
    """Return the delivery as one that is not tried (again), for a reason."""
    attempt = Attempt(
        attempt=delivery.attempt,
        status_code=None,
        response_body=None,
        error=reason,
        started_at=now,
        duration_ms=0,
    )
    return delivery._replace(
        attempts=_with(delivery.attempts, attempt),
        status="failed",
        completed_at=now,
        next_attempt_at=None,
    )


def view(delivery: Delivery) -> View:
    """Return the delivery as the API shows it."""
    attempts = _attempts.decode(delivery.attempts)
    newest = attempts[-1] if attempts else None
    return View(
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


def _with(attempts: bytes, attempt: Attempt) -> bytes:
    """Return the JSON of a list of attempts with one more, the others not read."""
    encoded = _encoder.encode(attempt)
    return b"[%b]" % encoded if attempts == b"[]" else b"%b,%b]" % (attempts[:-1], encoded)
