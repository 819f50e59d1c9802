"""The newest bytes of an output, in bounded memory."""


class OutputTail:
    """Keeps the last `limit` bytes; `total` is the number of all bytes added."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self.total += len(data)
        self._data += data
        if len(self._data) > 2 * self.limit:
            del self._data[: len(self._data) - self.limit]

    @property
    def truncated(self) -> bool:
        """Whether the beginning has been dropped."""
        return self.total > self.limit

    def text(self) -> str:
        """Return what is kept as text; a partial character at its start is left out.

        Bytes that are no UTF-8 become U+FFFD.
        """
        tail = self._data[-self.limit :] if self.limit else bytearray()
        start = 0
        while self.truncated and start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
            start += 1
        return tail[start:].decode("utf-8", "replace")
