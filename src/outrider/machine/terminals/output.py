"""What commands print, in bounded memory, and how they end."""

import codecs
from dataclasses import dataclass
from typing import Final

MAX_OUTPUT: Final = 256 * 1024
"""Bytes of output in a reply; of a longer output, half from the start and half from the end."""

_HALF_OUTPUT: Final = MAX_OUTPUT // 2


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    `cwd` is the directory a one-shot command began in; for a named terminal, the directory that
    its shell is in now.
    """

    exit_code: int
    output: str
    truncated: bool
    cwd: str


class OutputCapture:
    """Collects output in bounded memory: the first and the last `MAX_OUTPUT / 2` bytes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self._total += len(data)
        room = _HALF_OUTPUT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room else data
        if len(self._tail) > 2 * _HALF_OUTPUT:
            del self._tail[:-_HALF_OUTPUT]

    def take(self) -> tuple[str, bool]:
        """Return the output and whether its middle is missing; then start again, empty.

        A marker line stands for the missing middle. Bytes that are not UTF-8 become U+FFFD.
        """
        head, tail, total = self._head, self._tail[-_HALF_OUTPUT:], self._total
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        if total <= MAX_OUTPUT:
            return (head + tail).decode("utf-8", "replace"), False
        first = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        last = _skip_partial_character(tail).decode("utf-8", "replace")
        left_out = total - len(head) - len(tail)
        return f"{first}\n[outrider: {left_out} bytes left out here]\n{last}", True


def _skip_partial_character(data: bytearray) -> bytearray:
    """Return `data` without the continuation bytes of a character that was cut in two."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
