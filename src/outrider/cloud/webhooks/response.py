"""The response of a receiver, and the error text of an attempt without a response.

Imported at the first attempt, with aiohttp: see `sender`.
"""

import ssl
from typing import Any, Final

import aiohttp

from outrider.cloud.webhooks.addresses import AddressRefused

MAX_INTERIM: Final = 20
"""Interim responses (1xx) before the final one."""


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

        async def read_counted() -> Any:
            nonlocal count
            message, payload = await read()
            if 100 <= message.code < 200:
                count += 1
                if count > MAX_INTERIM:
                    raise TooManyInterim
            return message, payload

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
