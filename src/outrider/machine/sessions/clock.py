"""The time, as sessions and agents get it."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the time in epoch milliseconds."""


def epoch_millis() -> int:
    """Return the time now in epoch milliseconds."""
    return time.time_ns() // 1_000_000
