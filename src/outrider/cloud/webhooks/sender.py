"""One attempt to deliver: a signed POST, bounded in time and in what is read of the answer."""

import io
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

import aiohttp

from outrider import __version__
from outrider.cloud.webhooks.guard import Guard, GuardedResolver
from outrider.contract import signatures

KEPT_BYTES: Final = 16 * 1024
"""What is read and kept of an answer's body."""

LONGEST_RETRY_AFTER: Final = 3600.0

_LARGE_BYTES: Final = 64 * 1024

GONE: Final = 410
"""The status by which a receiver says that it wants no more deliveries, ever."""


class Outcome(NamedTuple):
    """What came of an attempt. Without a status there was no answer: `error` says why."""

    status: int | None
    response_body: str | None
    error: str | None
    started_at: int
    duration_ms: int
    retry_after: float

    @property
    def ended_at(self) -> int:
        """When it was over, epoch milliseconds."""
        return self.started_at + self.duration_ms

    @property
    def delivered(self) -> bool:
        """Whether the receiver took it: a 2xx in time."""
        return self.error is None and self.status is not None and 200 <= self.status < 300


class Sender:
    """Posts deliveries.

    Args:
        timeout: seconds for an attempt in all, the answer's body included.
        clock: seconds since the epoch.
    """

    def __init__(
        self, guard: Guard, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._guard = guard
        self._timeout = timeout
        self._clock = clock
        self._open_session: aiohttp.ClientSession | None = None

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open_session is None:
            self._open_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    resolver=GuardedResolver(self._guard),
                    use_dns_cache=False,
                    socket_factory=self._guard.socket,
                    keepalive_timeout=15,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                headers={
                    "User-Agent": f"outrider/{__version__}",
                    "Content-Type": "application/json",
                    "Accept-Encoding": "identity",
                },
            )
        return self._open_session

    async def close(self) -> None:
        """Close every connection."""
        if self._open_session is not None:
            await self._open_session.close()

    async def attempt(
        self, *, url: str, secrets: list[str], event: str, delivery: str, number: int, body: bytes
    ) -> Outcome:
        """Post the body once and return what came of it; raises nothing."""
        timestamp = int(self._clock() * 1000)
        headers = {
            signatures.SIGNATURE_HEADER: signatures.header(secrets, timestamp, body),
            signatures.EVENT_HEADER: event,
            signatures.DELIVERY_HEADER: delivery,
            signatures.ATTEMPT_HEADER: str(number),
        }
        # A large body goes out in pieces, so that the loop is not held up.
        data = io.BytesIO(body) if len(body) > _LARGE_BYTES else aiohttp.BytesPayload(body)
        began = time.perf_counter()
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
            error = f"The receiver could not be reached: {_reason(failure)}"
        return Outcome(
            status=status,
            response_body=text,
            error=error,
            started_at=timestamp,
            duration_ms=round((time.perf_counter() - began) * 1000),
            retry_after=retry_after,
        )

    def _retry_after(self, value: str | None) -> float:
        """Return the seconds that a `Retry-After` header asks for, an hour at the most."""
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


def _reason(failure: Exception) -> str:
    """Return what went wrong, without the words that aiohttp wraps it in."""
    if isinstance(failure, aiohttp.ClientConnectorError):
        failure = failure.os_error
        return failure.strerror or str(failure)
    return str(failure) or type(failure).__name__


async def _read(response: aiohttp.ClientResponse) -> str:
    """Return the first `KEPT_BYTES` of the body; the rest is not read, however it is packed."""
    data = bytearray()
    while len(data) < KEPT_BYTES:
        part = await response.content.read(KEPT_BYTES - len(data))
        if not part:
            break
        data += part
    if not response.content.at_eof():
        response.close()  # the rest stays where it is
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=47 if encoding == "gzip" else 15)
        try:
            data = bytearray(unpack.decompress(bytes(data), KEPT_BYTES))
        except zlib.error:
            return f"({len(data)} bytes that are not {encoding})"
    return data.decode("utf-8", "replace").replace("\0", "�")
