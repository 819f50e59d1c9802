"""The client's address, as the rate limits and the audit trail use it.

uvicorn's `ProxyHeadersMiddleware` is not used: it accepts a forwarded value that is not an address
as the client's address, and as a coroutine its frame would stay with every idle WebSocket.
"""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from starlette.types import Scope

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED: Final = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
"""Headers of requests that came through a proxy."""


class Addresses:
    """Finds the client's address; trusts `X-Forwarded-For` only from trusted proxies.

    Args:
        limit_loopback: whether the limits by address hold for loopback addresses too.
    """

    def __init__(self, trusted: Sequence[Network], *, limit_loopback: bool = True) -> None:
        self._trusted = tuple(trusted)
        self._limit_loopback = limit_loopback

    def client(self, scope: Scope) -> str:
        """Return the address of the client that made the request.

        Behind trusted proxies it is the last address in `X-Forwarded-For` that is not a trusted
        proxy. The client can forge every entry before it.
        """
        peer = _canonical((scope.get("client") or ("", 0))[0])
        if not self._trusted or not self._trusts(peer):
            return peer
        forwarded = [
            part.strip()
            for name, value in scope["headers"]
            if name == b"x-forwarded-for"
            for part in value.decode("latin-1").split(",")
        ]
        for hop in reversed(forwarded):
            if _parsed(hop) is None:
                break
            peer = _canonical(hop)
            if not self._trusts(peer):
                break
        return peer

    def counted_as(self, address: str) -> str | None:
        """Return the rate limit key of an address; None if its requests are not limited."""
        if not self._limit_loopback and is_loopback(address):
            return None
        return network_of(address)

    def is_https(self, scope: Scope) -> bool:
        """Return whether the client uses https, also behind a trusted proxy that terminates TLS."""
        if self._trusted and self._trusts((scope.get("client") or ("", 0))[0]):
            for name, value in scope["headers"]:
                if name == b"x-forwarded-proto":
                    return bool(value.strip().lower() == b"https")
        return bool(scope.get("scheme") == "https")

    def is_direct_from_here(self, scope: Scope) -> bool:
        """Return whether a request was made on this machine and came through no proxy.

        A proxy on this machine has a loopback address, whoever its client is.
        """
        is_forwarded = any(name in _FORWARDED for name, _ in scope["headers"])
        return not is_forwarded and is_loopback(self.client(scope))

    def _trusts(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(
            parsed.version == network.version and parsed in network for network in self._trusted
        )


@lru_cache(maxsize=10_000)
def network_of(address: str) -> str:
    """Return the network that limits count an address as: IPv4 itself, IPv6 its /64."""
    parsed = _parsed(address)
    if parsed is None:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return str(parsed)


@lru_cache(maxsize=10_000)
def _canonical(address: str) -> str:
    """Return an address in canonical form: no brackets or zone, mapped IPv4 as IPv4."""
    parsed = _parsed(address)
    return address if parsed is None else str(parsed)


@lru_cache(maxsize=10_000)
def is_loopback(address: str) -> bool:
    """Return whether an address is this machine's own."""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    # A socket that listens on IPv6 reports IPv4 clients as ::ffff:a.b.c.d.
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed
