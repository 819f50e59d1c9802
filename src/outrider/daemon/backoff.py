"""How long to wait before the next attempt to connect."""

from collections.abc import Callable
from typing import Final

FIRST: Final = 2.0
LONGEST: Final = 60.0


class Backoff:
    """Waits of any length up to a step, which doubles from 2 s to 60 s.

    Args:
        random: returns a number from 0 to 1. All of a wait is chance: so the machines of a
            service that is lost reconnect evenly over the whole step, not in a crowd.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Begin with a short step again."""
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait now."""
        step = min(LONGEST, FIRST * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return step * self._random()
