"""One delivery attempt: a signed POST, bounded in time and in response size.

aiohttp and the resolver are imported at the first attempt: they take 11 MB and 0.25 s, and many
services have no webhooks.
"""

import io
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from outrider import __version__
from outrider.cloud.webhooks.addresses import AddressPolicy
from outrider.cloud.webhooks.retry_policy import Outcome
from outrider.contract import signatures
from outrider.tracing import OFF, Tracing

if TYPE_CHECKING:
    import aiohttp

KEPT_BYTES: Final = 16 * 1024
"""What is read and kept of a response body."""

LONGEST_RETRY_AFTER: Final = 3600.0

_LARGE_BYTES: Final = 64 * 1024


def request_headers(*, event: str, delivery: str, number: int) -> dict[str, str]:
    """Return the headers of an attempt, without its signature."""
    return {
        "User-Agent": f"outrider/{__version__}",
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
        self._open_session: aiohttp.ClientSession | None = None

    @property
    def _session(self) -> "aiohttp.ClientSession":
        if self._open_session is None:
            import aiohttp

            from outrider.cloud.webhooks.resolver import PolicyResolver
            from outrider.cloud.webhooks.response import BoundedResponse

            resolver = PolicyResolver(self._policy)
            self._open_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    resolver=resolver,
                    use_dns_cache=False,
                    socket_factory=resolver.make_socket,
                    keepalive_timeout=15,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                response_class=BoundedResponse,
                headers={"Accept-Encoding": "identity"},
            )
        return self._open_session

    async def close(self) -> None:
        """Close every connection."""
        if self._open_session is not None:
            await self._open_session.close()

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
        # A trace of its own: the event was stored since, perhaps hours ago by another node.
        with self._tracing.start("POST webhook", "client", None, attributes) as span:
            headers = request_headers(event=event, delivery=delivery, number=number)
            if span.traceparent is not None:
                headers["traceparent"] = span.traceparent
                # Not the path: of some receivers it is a secret.
                span.set("server.address", urlsplit(url).hostname or "")
            outcome = await self._post(url, secrets, headers, body)
            if outcome.status is not None:
                span.set("http.response.status_code", outcome.status)
            if not outcome.delivered:
                span.fail("no response" if outcome.status is None else str(outcome.status))
        return outcome

    async def _post(
        self, url: str, secrets: list[str], headers: dict[str, str], body: bytes
    ) -> Outcome:
        import aiohttp

        from outrider.cloud.webhooks.response import failure_reason

        timestamp = int(self._clock() * 1000)
        headers[signatures.SIGNATURE_HEADER] = signatures.header(secrets, timestamp, body)
        # A large body is sent in pieces, so that it does not block the event loop.
        data = io.BytesIO(body) if len(body) > _LARGE_BYTES else aiohttp.BytesPayload(body)
        start_time = time.perf_counter()
        status, text, error, retry_after = None, None, None, 0.0
        try:
            async with self._session.post(
                url, data=data, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
                retry_after = self._retry_after(response.headers.get("Retry-After"))
                text = await _read(response)
            if not 200 <= status < 300:
                error = f"The receiver answered {status}"
        except TimeoutError:
            error = f"The receiver did not answer in full within {self._timeout:g} seconds"
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = f"The receiver could not be reached: {failure_reason(failure)}"
        return Outcome(
            status=status,
            response_body=text,
            error=error,
            started_at=timestamp,
            duration_ms=round((time.perf_counter() - start_time) * 1000),
            retry_after=retry_after,
        )

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


async def _read(response: "aiohttp.ClientResponse") -> str:
    """Return the first `KEPT_BYTES` of the body, decompressed; the rest is not read."""
    data = bytearray()
    while len(data) < KEPT_BYTES:
        part = await response.content.read(KEPT_BYTES - len(data))
        if not part:
            break
        data += part
    if not response.content.at_eof():
        response.close()  # do not read the rest
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=47 if encoding == "gzip" else 15)
        try:
            data = bytearray(unpack.decompress(bytes(data), KEPT_BYTES))
        except zlib.error:
            return f"({len(data)} bytes that are not {encoding})"
    return data.decode("utf-8", "replace").replace("\0", "�")
