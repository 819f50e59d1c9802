"""A clock that the test sets."""


class Clock:
    """Seconds since the epoch, which pass when the test says so."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
