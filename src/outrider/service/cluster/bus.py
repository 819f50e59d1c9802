"""Communication between the nodes of a service: messages on channels, and directories of entries.

`Bus` serves a single node, or several nodes in one process; `redis_bus.RedisBus` keeps the same
promises for nodes on many machines.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping

from outrider.contract.errors import OutriderError

MessageHandler = Callable[[bytes], None]
"""Receives a message, on the event loop's thread; it must neither block nor raise."""


class BusDown(OutriderError):
    """The nodes cannot reach each other at the moment.

    Attributes:
        may_be_sent: whether the message may have reached another node.
    """

    def __init__(self, message: str, *, may_be_sent: bool = True) -> None:
        super().__init__(message)
        self.may_be_sent = may_be_sent


class Bus:
    """The connection between the nodes of one process, usually a single one.

    Args:
        is_shared: whether other nodes may be connected to it.
    """

    is_up = True
    """Whether messages are received at this moment."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._channels: defaultdict[str, list[MessageHandler]] = defaultdict(list)
        self._directories: defaultdict[str, dict[str, tuple[int, bytes]]] = defaultdict(dict)

    async def subscribe(self, channel: str, handler: MessageHandler) -> None:
        """Call `handler` with each message of the channel; after the return none is missed.

        Does not raise: while the bus is down the subscription is kept, and renewed once it is up.
        """
        self._channels[channel].append(handler)

    async def unsubscribe(self, channel: str, handler: MessageHandler) -> None:
        """Stop calling `handler` with the channel's messages, if it is subscribed."""
        handlers = self._channels[channel]
        if handler in handlers:
            handlers.remove(handler)
        if not handlers:
            del self._channels[channel]

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all subscribers; return their number.

        Messages of one channel are received in the order in which they were sent one after another,
        except that a large one may be late. A message may be received twice.

        Raises:
            BusDown: the message may not have been sent.
        """
        handlers = list(self._channels.get(channel, ()))
        for handler in handlers:
            handler(message)
        return len(handlers)

    async def put(self, directory: str, name: str, version: int, entry: bytes) -> None:
        """Write an entry of a directory, unless the stored one has a later version.

        Raises:
            BusDown: the entry may not have been written.
        """
        if self._directories[directory].get(name, (0, b""))[0] <= version:
            self._directories[directory][name] = (version, entry)

    async def remove(self, directory: str, name: str, version: int) -> None:
        """Remove an entry from a directory, unless it has a later version.

        Raises:
            BusDown: the entry may not have been removed.
        """
        if self._directories[directory].get(name, (0, b""))[0] <= version:
            self._directories[directory].pop(name, None)

    async def get(self, directory: str, name: str) -> bytes | None:
        """Return an entry of a directory, None if there is none.

        Raises:
            BusDown: it cannot be read.
        """
        return (await self.items(directory)).get(name)

    async def items(self, directory: str) -> Mapping[str, bytes]:
        """Return all entries of a directory, by name.

        Raises:
            BusDown: they cannot be read.
        """
        return {name: entry for name, (_, entry) in self._directories[directory].items()}

    async def run(self) -> None:
        """Receive messages and keep the connection, until cancelled."""

    async def check(self) -> None:
        """Check the connection.

        Raises:
            BusDown: it does not work.
        """

    async def close(self) -> None:
        """Close the connection."""
