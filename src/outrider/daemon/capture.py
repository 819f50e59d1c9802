"""A command's output, held in bounded memory: all of it while it is short, else both ends."""

import codecs
from typing import Final

MAX_OUTPUT: Final = 256 * 1024
"""Bytes of output that an answer holds; of a longer one, half from either end."""

_END: Final = MAX_OUTPUT // 2


class Capture:
    """Takes bytes as they come; gives text of at most `MAX_OUTPUT` bytes and a marker line."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total += len(data)
        room = _END - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room else data
        if len(self._tail) > 2 * _END:
            del self._tail[:-_END]

    def take(self) -> tuple[str, bool]:
        """Return the output and whether its middle was left out; begin again empty.

        Bytes that are not UTF-8 become U+FFFD.
        """
        head, tail, total = self._head, self._tail[-_END:], self._total
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        if total <= MAX_OUTPUT:
            return (head + tail).decode("utf-8", "replace"), False
        first = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        last = _from_character(tail).decode("utf-8", "replace")
        left_out = total - len(head) - len(tail)
        return f"{first}\n[outrider: {left_out} bytes left out here]\n{last}", True


def _from_character(data: bytearray) -> bytearray:
    """Return `data` without the rest of a character that the cut went through."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
