"""How long to wait before the next attempt to connect."""

from collections.abc import Callable
from typing import Final

FIRST: Final = 1.0
LONGEST: Final = 60.0


class Backoff:
    """Waits that double from about 1 s to about 60 s, each with chance in it.

    Args:
        random: returns a number from 0 to 1. Chance keeps the machines of a service that
            comes back from knocking all at once.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Begin with a short wait again."""
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait now: between half the step and the whole of it."""
        step = min(LONGEST, 2 * FIRST * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return step * (1 + self._random()) / 2
