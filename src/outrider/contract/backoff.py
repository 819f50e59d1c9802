"""Exponential backoff with full jitter, for attempts to connect."""

from collections.abc import Callable
from typing import Final

FIRST: Final = 2.0
LONGEST: Final = 60.0


class Backoff:
    """Random waits of 0 s up to a maximum that doubles from 2 s to 60 s.

    The whole wait is random (full jitter), so that the machines of a service that went down
    reconnect evenly over the interval and not all at once.

    Args:
        random: returns a number from 0 to 1.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Start again at 2 s, after a success."""
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        longest = min(LONGEST, FIRST * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return longest * self._random()
