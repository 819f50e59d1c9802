"""Redis subscriptions: one connection, or one to each server of a Redis Cluster."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from redis.asyncio.client import PubSub

_MAX_WAITING: Final = 10_000

Message = dict[str, Any]


class Subscription:
    """Receives the messages of sharded channels.

    If one of its connections is lost, `next` raises; close the subscription and create another.

    Args:
        server_of: returns the name of the server that holds a channel.
        connect: returns a new connection to a server, by its name.
        at_once: how many channels one command may name; 1 on a cluster, where all channels of a
            command must be in one slot.
    """

    def __init__(
        self,
        server_of: Callable[[str], str],
        connect: Callable[[str], PubSub],
        at_once: int,
    ) -> None:
        self._at_once = at_once
        self._server_of = server_of
        self._connect = connect
        self._connections: dict[str, PubSub] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._messages: asyncio.Queue[Message | BaseException] = asyncio.Queue(_MAX_WAITING)

    async def subscribe(self, channels: Iterable[str]) -> None:
        """Subscribe to channels; a message `ssubscribe` confirms each."""
        servers: dict[str, list[str]] = {}
        for channel in channels:
            servers.setdefault(self._server_of(channel), []).append(channel)
        for server, server_channels in servers.items():
            connection = self._connections.get(server)
            is_new = connection is None
            if connection is None:
                connection = self._connections[server] = self._connect(server)
            for start in range(0, len(server_channels), self._at_once):
                await connection.ssubscribe(*server_channels[start : start + self._at_once])
            if is_new:
                reader = asyncio.create_task(self._read(connection), name="read Redis")
                self._readers.append(reader)

    async def unsubscribe(self, channel: str) -> None:
        """Unsubscribe from a channel; a message `sunsubscribe` confirms it."""
        connection = self._connections.get(self._server_of(channel))
        if connection is not None:
            await connection.sunsubscribe(channel)

    async def next(self, within: float) -> Message | None:
        """Return the next message; None if none arrives within so many seconds.

        Raises:
            RedisError, OSError: a connection is lost.
        """
        if self._messages.empty():
            try:
                async with asyncio.timeout(within):
                    message = await self._messages.get()
            except TimeoutError:
                return None
        else:
            message = self._messages.get_nowait()
        if isinstance(message, BaseException):
            raise message
        return message

    async def close(self) -> None:
        """Close the connections."""
        for reader in self._readers:
            reader.cancel()
        if self._readers:
            await asyncio.wait(self._readers, timeout=2)
        for connection in self._connections.values():
            with suppress(Exception):  # a connection may already be broken
                await connection.aclose()  # type: ignore[no-untyped-call]

    async def _read(self, connection: PubSub) -> None:
        try:
            while True:
                message = await connection.get_message(timeout=None)
                if message is not None:
                    await self._messages.put(message)
        except Exception as error:  # noqa: BLE001  # `next` raises it to the consumer
            await self._messages.put(error)
