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


Taken = tuple[bool, int, int, float]
"""Whether a hit fitted; then what the window holds: hits that count now, those of the window
before (which count less and less), and the seconds until this window becomes the one before.

A plain tuple, which is made in no time: two are made for each request.
"""


class _Counter:
    """The hits of one key: in the window that ends at `end`, and in the one before."""

    __slots__ = ("before", "end", "hits")

    def __init__(self) -> None:
        self.end = 0.0
        self.before = 0
        self.hits = 0

    def turn(self, now: float, expiry: int) -> float:
        """Begin the window of this moment; return the seconds that are left of it."""
        end = (now // expiry + 1) * expiry
        self.before = self.hits if self.end == end - expiry else 0
        self.end, self.hits = end, 0
        return end - now


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
        self._counters: OrderedDict[str, _Counter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counters)

    def take(self, key: str, limit: int, expiry: int, amount: int) -> Taken:
        """Count `amount` hits if the window has room for them; tell where it stands now."""
        now = self._clock()
        counter = self._counters.get(key) or self._new(key)
        left = counter.end - now
        if left <= 0.0 or left > expiry:  # it has ended, or the clock was set back
            left = counter.turn(now, expiry)
        self._counters.move_to_end(key)
        used = counter.hits
        if counter.before:
            used += int(counter.before * left / expiry)
        if used + amount > limit:
            return False, used, counter.before, left
        counter.hits += amount
        return True, used + amount, counter.before, left

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """Count `amount` hits if the window has room for them; tell whether it had."""
        return self.take(key, limit, expiry, amount)[0]

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return the count and the seconds left of the window before, and of this one."""
        *_, before, left = self.take(key, 0, expiry, 0)
        return before, (left if before else 0.0), self._counters[key].hits, left + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002
        """Forget a key."""
        self._counters.pop(key, None)

    def _new(self, key: str) -> _Counter:
        counter = self._counters[key] = _Counter()
        if len(self._counters) > self._maximum:
            self._counters.popitem(last=False)
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
