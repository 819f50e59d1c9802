"""Bytes of files and of git as text for JSON."""


def decoded(data: bytes) -> str:
    """Return text with U+FFFD in place of what is not UTF-8."""
    return data.decode("utf-8", "replace")


def beginning(data: bytes, most: int) -> tuple[str, bool]:
    """Return at most `most` bytes of UTF-8, cut between characters, and whether that is all."""
    encoded = data[: most + 4].decode("utf-8", "replace").encode()
    if len(data) <= most and len(encoded) <= most:
        return encoded.decode(), True
    return encoded[:most].decode("utf-8", "ignore"), False
