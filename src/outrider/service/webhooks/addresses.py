"""The addresses that webhooks may use: they must not give access to internal hosts.

Link-local, multicast and cloud-metadata addresses are always refused, private and loopback
addresses unless the operator allows them. An IPv6 address that embeds an IPv4 address (mapped,
translated, compatible, 6to4, Teredo, NAT64, ISATAP) is classified by both.
"""

import asyncio
import ipaddress
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Literal

from cachetools import FIFOCache

from outrider.contract.errors import bad_request

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressClass = Literal["public", "private", "forbidden"]

_Key = tuple[str, int, socket.AddressFamily]
_Entries = list[tuple[Any, ...]]

_RESOLVE_SECONDS: Final = 5.0

RESOLVER_THREADS: Final = 32
"""Threads of each of the two pools."""

_PROMPT_SECONDS: Final = 1.0
_MAX_PROMPT: Final = 100_000

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

_EMBEDDING: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64, RFC 6052
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # translated, RFC 2765
    ipaddress.IPv6Network("::/96"),  # compatible, RFC 4291
)
"""Networks whose addresses end in an IPv4 address."""

_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Local-use NAT64 (RFC 8215): the position of the IPv4 address in it is not known."""

_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Bits 64 to 95 of an address that ends in an IPv4 address (RFC 5214)."""


class AddressRefused(OSError):
    """The host has no address that webhooks may be sent to."""


def classify(address: Address) -> AddressClass:
    """Return the class of an address: the strictest of its own and its embedded addresses'."""
    classes = {_own_class(each) for each in (address, *_embedded(address))}
    if "forbidden" in classes:
        return "forbidden"
    return "private" if "private" in classes else "public"


class AddressPolicy:
    """Decides which addresses webhooks may be sent to.

    Args:
        allow_private: whether private and loopback addresses are allowed.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self.resolver = HostResolver()

    def allows(self, text: str) -> bool:
        """Return whether a connection to this address is allowed; False for anything else."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        kind = classify(address)
        return kind == "public" or (kind == "private" and self._allow_private)

    async def check_url(self, text: str) -> str:
        """Return the URL of a new webhook in the form in which it will be requested.

        A host that cannot be resolved now is accepted: every attempt checks it again.

        Raises:
            ApiError: 400, it is not http(s), has credentials, or its host is not allowed.
        """
        from yarl import URL  # 2 MB with what it imports; needed only for new webhooks

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
                f"The host {host!r} has an address that webhooks must not be sent to "
                "(private, loopback, link-local, multicast or a cloud's metadata service)",
                "url",
            )
        return str(url.with_fragment(None))

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host; none if it cannot be resolved in time."""
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                return [text for _, text, _ in await self.resolver.addresses(host, port)]
        except (OSError, UnicodeError, TimeoutError):
            return []


class HostResolver:
    """The system's resolver on thread pools; concurrent look-ups of a host share one.

    A name server that does not answer blocks a thread of the system's resolver for many seconds.
    These threads serve nothing else, and a host occupies at most one of them, however many
    deliveries wait for it. Hosts whose last look-up succeeded within a second have a pool of their
    own, so that any number of names that cannot be resolved delays none of them.
    """

    def __init__(self) -> None:
        self._pools: dict[bool, ThreadPoolExecutor] = {}  # by whether they are for prompt hosts
        self._prompt: FIFOCache[str, None] = FIFOCache(_MAX_PROMPT)
        self._lookups: dict[_Key, asyncio.Future[tuple[_Entries, float]]] = {}

    async def addresses(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[socket.AddressFamily, str, int]]:
        """Return the family, text and port of each address of a host.

        Raises:
            OSError: the host has no address, or the look-up failed.
            UnicodeError: `host` is not a host name.
        """
        key = (host, port, family)
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = self._start(key)
            lookup.add_done_callback(partial(self._finished, key))
        # A caller that is cancelled leaves it to the others.
        entries, _ = await asyncio.shield(lookup)
        return [(entry[0], str(entry[4][0]), int(entry[4][1])) for entry in entries]

    def close(self) -> None:
        """Start no further look-ups, without waiting for running ones."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: _Key) -> asyncio.Future[tuple[_Entries, float]]:
        is_prompt = key[0] in self._prompt
        if is_prompt not in self._pools:
            self._pools[is_prompt] = ThreadPoolExecutor(
                RESOLVER_THREADS, thread_name_prefix="resolver"
            )
        return asyncio.get_running_loop().run_in_executor(self._pools[is_prompt], _look_up, *key)

    def _finished(self, key: _Key, lookup: asyncio.Future[tuple[_Entries, float]]) -> None:
        self._lookups.pop(key, None)
        # The exception is retrieved here: all callers may have been cancelled.
        if not lookup.cancelled() and lookup.exception() is None:
            _, seconds = lookup.result()
            if seconds < _PROMPT_SECONDS:
                self._prompt[key[0]] = None
                return
        self._prompt.pop(key[0], None)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> tuple[_Entries, float]:
    """Look a host up; return its entries, and the seconds that it took."""
    start = time.perf_counter()
    entries = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(entries), time.perf_counter() - start


def _own_class(address: Address) -> AddressClass:
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return "forbidden"
    if address == _BROADCAST or address in _LOCAL_NAT64:
        return "forbidden"
    if any(address in network for network in _EMBEDDING) and int(address) > 1:
        return "public"  # its embedded IPv4 address decides
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return "private"
    return "public" if address.is_global else "private"


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses embedded in an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    has_last = any(address in network for network in _EMBEDDING) and int(address) > 1
    if has_last or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [inner for inner in embedded if inner is not None]
