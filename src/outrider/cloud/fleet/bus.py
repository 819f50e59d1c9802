"""What the nodes of one service have between them: messages on channels, and a board.

The bus of a single node is in memory, and so is the one of several nodes in one process. The
one of many machines is in `redis_bus`. Both keep the same promises, and no others.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from outrider.contract.errors import OutriderError

Hear = Callable[[bytes], None]
"""Takes a message, on the event loop's thread; it must not wait."""


class BusDown(OutriderError):
    """The nodes cannot reach each other."""


class Bus(Protocol):
    """The way between nodes."""

    @property
    def is_shared(self) -> bool:
        """Whether there may be other nodes on it."""

    @property
    def is_up(self) -> bool:
        """Whether messages are heard at this moment."""

    async def listen(self, channel: str, hear: Hear) -> None:
        """Have the channel's messages heard; once this returns, none is missed.

        Does not raise: while the bus is down the channel is kept, and heard once it is back.
        """

    async def unlisten(self, channel: str, hear: Hear) -> None:
        """Have them heard no more, if it was `hear` that heard them."""

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all who listen; return how many they are.

        Messages on one channel are heard in the order in which they were sent, but for those
        that are larger than others. One may be heard twice.

        Raises:
            BusDown: it was perhaps not sent.
        """

    async def post(self, board: str, name: str, version: int, entry: bytes) -> None:
        """Write an entry on a board, unless it has one of that name of a later version.

        Raises:
            BusDown: it was perhaps not written.
        """

    async def withdraw(self, board: str, name: str, version: int) -> None:
        """Take an entry off a board, unless it is of a later version.

        Raises:
            BusDown: it was perhaps not taken off.
        """

    async def entry(self, board: str, name: str) -> bytes | None:
        """Return an entry of a board.

        Raises:
            BusDown: it cannot be read.
        """

    async def entries(self, board: str) -> Mapping[str, bytes]:
        """Return all the entries of a board, by name.

        Raises:
            BusDown: they cannot be read.
        """

    def on_change(self, down: Callable[[], None], up: Callable[[], Awaitable[None]]) -> None:
        """Have it told when messages may have been lost, and when they come again."""

    async def run(self) -> None:
        """Carry messages, until cancelled."""

    async def check(self) -> None:
        """Ask whether it works.

        Raises:
            BusDown: it does not.
        """

    async def close(self) -> None:
        """Let go of what it holds."""


class MemoryBus:
    """The bus of the nodes of one process, mostly a single one."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._channels: defaultdict[str, list[Hear]] = defaultdict(list)
        self._boards: defaultdict[str, dict[str, tuple[int, bytes]]] = defaultdict(dict)

    @property
    def is_shared(self) -> bool:
        """Whether there may be other nodes on it."""
        return self._is_shared

    @property
    def is_up(self) -> bool:
        """It always is."""
        return True

    async def listen(self, channel: str, hear: Hear) -> None:
        """Have the channel's messages heard."""
        self._channels[channel].append(hear)

    async def unlisten(self, channel: str, hear: Hear) -> None:
        """Have them heard no more."""
        hears = self._channels[channel]
        if hear in hears:
            hears.remove(hear)
        if not hears:
            del self._channels[channel]

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all who listen; return how many they are."""
        hears = list(self._channels.get(channel, ()))
        for hear in hears:
            hear(message)
        return len(hears)

    async def post(self, board: str, name: str, version: int, entry: bytes) -> None:
        """Write an entry on a board."""
        if self._boards[board].get(name, (0, b""))[0] <= version:
            self._boards[board][name] = (version, entry)

    async def withdraw(self, board: str, name: str, version: int) -> None:
        """Take an entry off a board."""
        if self._boards[board].get(name, (0, b""))[0] <= version:
            self._boards[board].pop(name, None)
        if not self._boards[board]:
            del self._boards[board]

    async def entry(self, board: str, name: str) -> bytes | None:
        """Return an entry of a board."""
        found = self._boards.get(board, {}).get(name)
        return None if found is None else found[1]

    async def entries(self, board: str) -> Mapping[str, bytes]:
        """Return all the entries of a board, by name."""
        return {name: entry for name, (_, entry) in self._boards.get(board, {}).items()}

    def on_change(self, down: Callable[[], None], up: Callable[[], Awaitable[None]]) -> None:
        """Nothing of it ever changes."""

    async def run(self) -> None:
        """Nothing is to be carried."""

    async def check(self) -> None:
        """It works for as long as the process does."""

    async def close(self) -> None:
        """It holds nothing."""
