"""The read end of a pipe on the event loop."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from typing import Final

_CHUNK: Final = 64 * 1024


class PipeReader:
    """A pipe whose bytes go to `sink` as they come.

    Attributes:
        write_end: the file descriptor to give to a child; close it here with `handed_over`.
        ended: set once every writer has closed it.
    """

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def handed_over(self) -> None:
        """Close the write end on this side: the child has its own now."""
        os.close(self.write_end)
        self.write_end = -1

    def drain(self) -> None:
        """Take what is in the pipe now: all that has been written by processes that ended."""
        for _ in range(1 + self._capacity() // _CHUNK):
            if self._read_end < 0 or self.ended.is_set() or not self._read():
                return

    def close(self) -> None:
        """Stop reading. A process that still writes gets SIGPIPE."""
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
        if self.write_end >= 0:
            self.handed_over()

    def _read(self) -> bool:
        """Take one chunk; return whether there may be more."""
        try:
            data = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._sink(data)
            return True
        self._loop.remove_reader(self._read_end)
        self.ended.set()
        return False

    def _capacity(self) -> int:
        get_size = getattr(fcntl, "F_GETPIPE_SZ", None)
        return _CHUNK if get_size is None else fcntl.fcntl(self._read_end, get_size)
