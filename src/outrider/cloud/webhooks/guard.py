"""Where a webhook may point: addresses that a stranger must not reach through this service.

Link-local, multicast and cloud-metadata addresses are always refused, private and loopback
ones unless the operator allows them. An IPv6 address that carries an IPv4 one (mapped, 6to4,
Teredo, NAT64) is judged by both.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, Final, Literal

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from aiohttp.resolver import ThreadedResolver
from yarl import URL

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
_NAT64: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


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
        addresses = await _addresses(host, port)
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


class GuardedResolver(AbstractResolver):
    """Resolves a host once for each connection, and lets only allowed addresses through."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host.

        Raises:
            AddressRefused: it has none.
        """
        found = await self._resolver.resolve(host, port, family)
        allowed = [result for result in found if self._guard.allows(result["host"])]
        if not allowed:
            raise AddressRefused(f"The host {host} has no address that webhooks may go to")
        return allowed

    async def close(self) -> None:
        """Nothing is held open."""
        await self._resolver.close()


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, none where it does not resolve in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found: Iterable[Any] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []
    return [str(info[4][0]) for info in found]


def _judge_one(address: Address) -> Judgement:
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return "forbidden"
    if address == ipaddress.IPv4Address("255.255.255.255"):
        return "forbidden"
    if isinstance(address, ipaddress.IPv6Address) and (
        address.is_site_local or any(address in network for network in _NAT64)
    ):
        # The translated address itself is judged by the IPv4 one that it carries.
        return "private" if address.is_site_local else "public"
    return "public" if address.is_global else "private"


def _carried(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses inside an IPv6 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in (*_NAT64, _COMPATIBLE)) and int(address) > 1:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in carried if one is not None]
