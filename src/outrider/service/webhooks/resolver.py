"""The address policy inside aiohttp: checked when a host is resolved and a socket created.

The host is resolved once for each connection, and the connection goes to an address that was
checked, so that a name which changes its address in between (DNS rebinding) gains nothing.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType

from outrider.service.webhooks.addresses import AddressPolicy, AddressRefused


class PolicyResolver(AbstractResolver):
    """Resolves a host and returns only the addresses that the policy allows."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host.

        Raises:
            AddressRefused: it has none.
            OSError: it cannot be resolved.
        """
        addresses = await self._policy.resolver.addresses(host, port, family)
        allowed = [address for address in addresses if self._policy.allows(address[1])]
        if not allowed:
            raise AddressRefused(f"The host {host} has no address that webhooks may be sent to")
        return [
            ResolveResult(
                hostname=host,
                host=text,
                port=to,
                family=kind,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, text, to in allowed
        ]

    def make_socket(self, info: AddrInfoType) -> socket.socket:
        """Return a socket for an address that aiohttp is about to connect to.

        This is the last check, on the address that the socket connects to: a URL with a
        literal address is never resolved.

        Raises:
            AddressRefused: the policy does not allow it.
        """
        family, kind, protocol, _, address = info
        if not self._policy.allows(str(address[0])):
            raise AddressRefused(f"Webhooks must not be sent to the address {address[0]}")
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)  # the standard library's own signature
        return connection

    async def close(self) -> None:
        """Start no further look-ups."""
        self._policy.resolver.close()
