"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """Return a number of things: "1 key", "2 keys"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
