"""One delivery attempt: a signed POST, bounded in time and in response size."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from outrider import __version__
from outrider.contract import signatures
from outrider.service.webhooks.addresses import AddressPolicy
from outrider.service.webhooks.retry_policy import Outcome
from outrider.tracing import OFF, Tracing

if TYPE_CHECKING:
    from outrider.service.webhooks.http_client import HttpClient

LONGEST_RETRY_AFTER: Final = 3600.0

_USER_AGENT: Final = f"outrider/{__version__}"


def request_headers(*, event: str, delivery: str, number: int) -> dict[str, str]:
    """Return the headers of an attempt, without its signature."""
    return {
        "User-Agent": _USER_AGENT,
        "Content-Type": "application/json",
        signatures.EVENT_HEADER: event,
        signatures.DELIVERY_HEADER: delivery,
        signatures.ATTEMPT_HEADER: str(number),
    }


class Sender:
    """Posts deliveries.

    Args:
        timeout: seconds for a whole attempt, including the response body.
        clock: seconds since the epoch.
        tracing: begins the span of each attempt, which receivers get as `traceparent`.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        timeout: float,
        clock: Callable[[], float] = time.time,
        tracing: Tracing = OFF,
    ) -> None:
        self._policy = policy
        self._timeout = timeout
        self._clock = clock
        self._tracing = tracing
        self._client: HttpClient | None = None

    @property
    def timeout(self) -> float:
        """Seconds that an attempt takes at most."""
        return self._timeout

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.close()

    async def attempt(
        self, *, url: str, secrets: list[str], event: str, delivery: str, number: int, body: bytes
    ) -> Outcome:
        """Post the body once and return the outcome; never raises."""
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "outrider.event": event,
            "outrider.delivery.id": delivery,
            "outrider.delivery.attempt": number,
        }
        client = self._client or self._open()
        # A trace of its own: the event was stored since, perhaps hours ago by another node.
        with self._tracing.start("POST webhook", "client", None, attributes) as span:
            timestamp = int(self._clock() * 1000)
            headers = request_headers(event=event, delivery=delivery, number=number)
            headers[signatures.SIGNATURE_HEADER] = signatures.header(secrets, timestamp, body)
            if span.traceparent is not None:
                headers["traceparent"] = span.traceparent
                # Not the path: of some receivers it is a secret.
                span.set("server.address", urlsplit(url).hostname or "")
            start_time = time.perf_counter()
            status, text, retry_after, error = await client.post(url, body, headers)
            duration = time.perf_counter() - start_time
            if status is not None:
                span.set("http.response.status_code", status)
                if error is None and not 200 <= status < 300:
                    error = f"The receiver answered {status}"
            if error is not None:
                span.fail("no response" if status is None else str(status))
        return Outcome(
            status=status,
            response_body=text,
            error=error,
            started_at=timestamp,
            duration_ms=round(duration * 1000),
            retry_after=self._retry_after(retry_after),
        )

    def _open(self) -> "HttpClient":
        """Import and make the client; not at each attempt, where that would take 3 us."""
        from outrider.service.webhooks.http_client import HttpClient

        self._client = HttpClient(self._policy, self._timeout)
        return self._client

    def _retry_after(self, value: str | None) -> float:
        """Return the seconds that a `Retry-After` header asks for, at most an hour."""
        if value is None:
            return 0.0
        value = value.strip()
        if value.isascii() and value.isdigit():
            seconds = float(value[:9])
        else:
            try:
                date = parsedate_to_datetime(value)
                if date.tzinfo is None:
                    date = date.replace(tzinfo=UTC)
                seconds = (date - datetime.fromtimestamp(self._clock(), UTC)).total_seconds()
            except (ValueError, OverflowError):
                return 0.0
        return min(max(0.0, seconds), LONGEST_RETRY_AFTER)
