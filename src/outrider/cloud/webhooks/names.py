"""Looks host names up, apart from the rest of the service and once for all who ask at a time.

A name server that does not answer keeps a thread of the system's resolver for many seconds.
These threads are nobody else's, and a name has one of them at the most, however many
deliveries wait for it.
"""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

THREADS: Final = 64

_Key = tuple[str, int, socket.AddressFamily]
_Found = list[tuple[Any, ...]]


class Names:
    """The system's resolver, on threads of its own."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[_Key, asyncio.Future[_Found]] = {}

    async def addresses(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[socket.AddressFamily, str, int]]:
        """Return the family and the text of each address of a host, and the port to go to.

        Raises:
            OSError: the host has none, or nobody could say.
            UnicodeError: it is no name.
        """
        key = (host, port, family)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = self._ask(key)
            asked.add_done_callback(partial(self._answered, key))
        found = await asyncio.shield(asked)
        return [(one[0], str(one[4][0]), int(one[4][1])) for one in found]

    def close(self) -> None:
        """Begin no more look-ups."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, key: _Key) -> asyncio.Future[_Found]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook names")
        host, port, family = key
        look_up = partial(
            socket.getaddrinfo,
            host,
            port,
            family=family,
            type=socket.SOCK_STREAM,
            flags=socket.AI_ADDRCONFIG,
        )
        return asyncio.get_running_loop().run_in_executor(self._pool, look_up)

    def _answered(self, key: _Key, asked: asyncio.Future[_Found]) -> None:
        self._asked.pop(key, None)
        if not asked.cancelled():
            asked.exception()  # seen, though all who asked may have gone
