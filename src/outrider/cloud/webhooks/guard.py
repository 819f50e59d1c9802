"""Where a webhook may point: addresses that a stranger must not reach through this service.

Link-local, multicast and cloud-metadata addresses are always refused, private and loopback
ones unless the operator allows them. An IPv6 address that carries an IPv4 one (mapped,
translated, compatible, 6to4, Teredo, NAT64, ISATAP) is judged by both.
"""

import asyncio
import ipaddress
import socket
from typing import Final, Literal

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from yarl import URL

from outrider.cloud.webhooks.names import Names
from outrider.contract.errors import bad_request

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Judgement = Literal["public", "private", "forbidden"]

_RESOLVE_SECONDS: Final = 5.0

_METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # AWS containers
        "fd00:ec2::254",  # AWS over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
    )
)
_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")

_CARRYING: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # translated, RFC 2765
    ipaddress.IPv6Network("::/96"),  # compatible, RFC 4291
)
"""Networks whose addresses end in an IPv4 one."""

_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""A network's own translation (RFC 8215): where it puts the IPv4 address, nobody can tell."""

_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The beginning of the last 64 bits of an address that ends in an IPv4 one (RFC 5214)."""


class AddressRefused(OSError):
    """The host has no address that a webhook may go to."""


def judge(address: Address) -> Judgement:
    """Return what an address is, to a webhook."""
    judgements = {_judge_one(one) for one in (address, *_carried(address))}
    if "forbidden" in judgements:
        return "forbidden"
    return "private" if "private" in judgements else "public"


class Guard:
    """Says which addresses are allowed.

    Args:
        allow_private: whether private and loopback addresses are.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self.names = Names()

    def allows(self, text: str) -> bool:
        """Tell whether a connection may go to this address."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        judgement = judge(address)
        return judgement == "public" or (judgement == "private" and self._allow_private)

    async def check_url(self, text: str) -> str:
        """Return the URL of a new webhook as it will be called.

        A host that does not resolve now is let pass: it is checked again at every attempt.

        Raises:
            ApiError: 400, it is not http(s), has credentials, or leads where it must not.
        """
        if not text.isprintable() or " " in text:
            raise bad_request("The URL must not have spaces or control characters in it", "url")
        try:
            url = URL(text)
            host, port = url.host, url.port
        except ValueError as error:
            raise bad_request(f"{text!r} is not a URL ({error})", "url") from error
        if url.scheme not in ("http", "https") or not host or not port:
            raise bad_request("The URL must begin with http:// or https:// and a host", "url")
        if url.user is not None or url.password is not None:
            raise bad_request(
                "The URL must not have a user or password in it: deliveries are signed instead",
                "url",
            )
        addresses = await self._addresses(host, port)
        if addresses and not any(map(self.allows, addresses)):
            raise bad_request(
                f"The host {host!r} has an address that webhooks may not go to "
                "(private, loopback, link-local, multicast or a cloud's metadata service)",
                "url",
            )
        return str(url.with_fragment(None))

    def socket(self, info: AddrInfoType) -> socket.socket:
        """Return a socket for an address that aiohttp is about to connect to.

        Raises:
            AddressRefused: it may not go there. The last check, on what is really connected to.
        """
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise AddressRefused(f"Webhooks may not go to the address {address[0]}")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)  # the standard library's own signature
        return made

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, none where it does not resolve in time."""
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                return [text for _, text, _ in await self.names.addresses(host, port)]
        except (OSError, UnicodeError, TimeoutError):
            return []


class GuardedResolver(AbstractResolver):
    """Resolves a host once for each connection, and lets only allowed addresses through."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host.

        Raises:
            AddressRefused: it has none.
            OSError: it does not resolve.
        """
        found = await self._guard.names.addresses(host, port, family)
        allowed = [one for one in found if self._guard.allows(one[1])]
        if not allowed:
            raise AddressRefused(f"The host {host} has no address that webhooks may go to")
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

    async def close(self) -> None:
        """Begin no more look-ups."""
        self._guard.names.close()


def _judge_one(address: Address) -> Judgement:
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return "forbidden"
    if address == _BROADCAST or address in _LOCAL_NAT64:
        return "forbidden"
    if any(address in network for network in _CARRYING) and int(address) > 1:
        return "public"  # to be judged by the IPv4 address in it
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return "private"
    return "public" if address.is_global else "private"


def _carried(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses inside an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    has_last = any(address in network for network in _CARRYING) and int(address) > 1
    if has_last or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in carried if one is not None]
