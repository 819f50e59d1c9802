"""The counters behind the rate limits of a single node: bounded, however many knock.

A storage for the `limits` library. Its own in memory looks through every counter at every
hit to drop the old ones, and keeps as many as there are callers; this one keeps a fixed
number and drops the one that was not used for the longest time.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from limits.aio.storage import Storage
from limits.aio.storage.base import SlidingWindowCounterSupport

MAX_COUNTERS: Final = 100_000
"""Callers that are counted at a time, of each kind of limit: about 25 MB."""


Window = tuple[int, float, int, float]
"""The count and the seconds left of the window before, and of this one."""


class WindowStorage(Storage, SlidingWindowCounterSupport):
    """Sliding windows in memory: for each key, the counts of this window and the one before.

    Args:
        clock: seconds since the epoch.
    """

    STORAGE_SCHEME = ["outrider+memory"]  # the library's own form

    def __init__(self, maximum: int = MAX_COUNTERS, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._maximum = maximum
        self._clock = clock
        self._counters: OrderedDict[str, list[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def take(self, key: str, limit: int, expiry: int, amount: int) -> tuple[bool, Window]:
        """Count `amount` hits if the window has room; tell whether it had, and the window now."""
        now = self._clock()
        window = now // expiry
        counter = self._counters.get(key)
        if counter is None or counter[0] != window:
            counter = self._turned(key, int(window))
        self._counters.move_to_end(key)
        left = (window + 1) * expiry - now
        before, hits = counter[1], counter[2]
        fits = (int(before * left / expiry) if before else 0) + hits + amount <= limit
        if fits:
            counter[2] = hits = hits + amount
        return fits, (before, (left if before else 0.0), hits, left + expiry)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """Count `amount` hits if the window has room for them; tell whether it had."""
        return self.take(key, limit, expiry, amount)[0]

    async def get_sliding_window(self, key: str, expiry: int) -> Window:
        """Return the window now."""
        return self.take(key, 0, expiry, 0)[1]

    async def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002
        """Forget a key."""
        self._counters.pop(key, None)

    def _turned(self, key: str, window: int) -> list[int]:
        """Return the counter `[window, before, now]` of a window that has begun for its key."""
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = [window, 0, 0]
            if len(self._counters) > self._maximum:
                self._counters.popitem(last=False)
        else:
            counter[1] = counter[2] if counter[0] == window - 1 else 0
            counter[0], counter[2] = window, 0
        return counter

    # What the library asks of every storage, for its other strategies.

    @property
    def base_exceptions(self) -> type[Exception]:
        """The errors of this storage: none."""
        return ValueError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Not for this storage: it has sliding windows only."""
        raise NotImplementedError

    async def get(self, key: str) -> int:
        """Not for this storage: it has sliding windows only."""
        raise NotImplementedError

    async def get_expiry(self, key: str) -> float:
        """Not for this storage: it has sliding windows only."""
        raise NotImplementedError

    async def check(self) -> bool:
        """Tell that the storage works."""
        return True

    async def reset(self) -> int | None:
        """Forget every key; return how many there were."""
        count = len(self._counters)
        self._counters.clear()
        return count

    async def clear(self, key: str) -> None:
        """Forget a key."""
        self._counters.pop(key, None)
