"""A load balancer as operators have one: connections go in turn to the nodes that are ready."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx

_CHECK_SECONDS: Final = 0.2


class Balancer:
    """Passes connections on, byte for byte."""

    def __init__(self) -> None:
        self.url = ""
        self._nodes: dict[str, bool] = {}
        self._turns = itertools.count()

    def add(self, url: str) -> None:
        """Take a node in; it gets connections once it is ready."""
        self._nodes[url] = False

    def remove(self, url: str) -> None:
        """Forget a node."""
        del self._nodes[url]

    def ready(self) -> list[str]:
        """Return the nodes that get connections."""
        return [url for url, is_ready in self._nodes.items() if is_ready]

    async def check(self) -> None:
        """Look which nodes are ready, until cancelled."""
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=2) as client:
            while True:
                for url in list(self._nodes):
                    is_ready = False
                    with suppress(httpx.HTTPError):
                        is_ready = (await client.get(f"{url}/readyz")).is_success
                    if url in self._nodes:
                        self._nodes[url] = is_ready
                await asyncio.sleep(_CHECK_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on to the node whose turn it is."""
        nodes = self.ready()
        if nodes:
            url = nodes[next(self._turns) % len(nodes)]
            with suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
                await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancer]:
    """Run a balancer without nodes."""
    balancer = Balancer()
    server = await asyncio.start_server(balancer.serve, "127.0.0.1")
    balancer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    checking = asyncio.create_task(balancer.check())
    try:
        yield balancer
    finally:
        checking.cancel()
        server.close()
        await asyncio.wait({checking})
