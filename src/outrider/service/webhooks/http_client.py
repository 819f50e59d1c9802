"""The HTTP client of deliveries, and the error text of an attempt without a response.

Imported at the first attempt: aiohttp and the resolver take 11 MB and 0.25 s, and many services
have no webhooks.
"""

import ssl
import zlib
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import aiohttp

from outrider.service.webhooks.addresses import AddressPolicy, AddressRefused
from outrider.service.webhooks.resolver import PolicyResolver

KEPT_BYTES: Final = 16 * 1024
"""What is read and kept of a response body."""


MAX_INTERIM: Final = 20
"""Interim responses (1xx) before the final one."""


class Answer(NamedTuple):
    """The answer to a request. Without a status there was none, and `error` says why."""

    status: int | None = None
    body: str | None = None
    retry_after: str | None = None
    error: str | None = None


class HttpClient:
    """Posts requests to receivers, at the addresses that the policy allows.

    Args:
        timeout: seconds for a whole request, including the response body.
    """

    def __init__(self, policy: AddressPolicy, timeout: float) -> None:
        resolver = PolicyResolver(policy)
        self._timeout = timeout
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                resolver=resolver,
                use_dns_cache=False,
                socket_factory=resolver.make_socket,
                keepalive_timeout=15,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=timeout),
            response_class=BoundedResponse,
            headers={"Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Post a body once; never raises."""
        status, retry_after = None, None
        try:
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status, retry_after = response.status, response.headers.get("Retry-After")
                return Answer(status, await _read(response), retry_after)
        except TimeoutError:
            error = f"The receiver did not answer in full within {self._timeout:g} seconds"
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = f"The receiver could not be reached: {failure_reason(failure)}"
        return Answer(status, None, retry_after, error)


class TooManyInterim(aiohttp.ClientError):
    """The receiver sends one interim response after the other, and no final one."""


class BoundedResponse(aiohttp.ClientResponse):
    """A response that may follow at most `MAX_INTERIM` interim ones.

    aiohttp takes any number of them, as fast as they come: a receiver that sends nothing else
    would keep the event loop busy for the whole attempt.
    """

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Read the head of the response.

        Raises:
            TooManyInterim: no final response came.
        """
        protocol = connection.protocol
        assert protocol is not None, "a response is read from an open connection"
        read, count = protocol.read, 0

        def read_counted() -> Coroutine[Any, Any, Any]:
            nonlocal count
            count += 1
            if count > MAX_INTERIM + 1:  # `start` reads until a message is not an interim one
                raise TooManyInterim
            return read()

        # aiohttp's loop over interim responses has no hook; it reads by this method alone.
        protocol.read = read_counted  # type: ignore[method-assign]
        try:
            return await super().start(connection)
        finally:
            del protocol.read


def failure_reason(failure: Exception) -> str:
    """Return what went wrong, for the owner of the webhook.

    Never the text of an exception of aiohttp's: it quotes what the peer sent. If the peer is not a
    receiver of webhooks, that would reveal its name and version to somebody who cannot reach it.
    """
    match failure:
        case AddressRefused():
            return str(failure)
        case aiohttp.ClientConnectorCertificateError(certificate_error=error):
            why = getattr(error, "verify_message", "")  # OpenSSL's own words
            return f"its certificate is not valid: {why}" if why else "its certificate is not valid"
        case aiohttp.ClientSSLError():
            return "it does not speak TLS, or none that this service accepts"
        case aiohttp.ClientConnectorError():
            return failure_reason(failure.os_error)
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case TooManyInterim():
            return f"it sent over {MAX_INTERIM} interim responses (1xx)"
        case aiohttp.ClientPayloadError():
            return "its answer broke off"
        case aiohttp.ClientResponseError():
            return "what it answered is not HTTP"
        case OSError() if failure.strerror and not isinstance(failure, ssl.SSLError):
            return failure.strerror
    return "the connection failed"


async def _read(response: aiohttp.ClientResponse) -> str:
    """Return the first `KEPT_BYTES` of the body, decompressed; the rest is not read."""
    data, content = bytearray(), response.content
    while len(data) < KEPT_BYTES and not content.at_eof():
        data += await content.read(KEPT_BYTES - len(data))
    if not content.at_eof():
        response.close()  # do not read the rest
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("gzip", "deflate"):
        unpack = zlib.decompressobj(wbits=47 if encoding == "gzip" else 15)
        try:
            data = bytearray(unpack.decompress(data, KEPT_BYTES))
        except zlib.error:
            return f"({len(data)} bytes that are not {encoding})"
    return data.decode("utf-8", "replace").replace("\0", "�")
