"""Follow a file of lines that another program appends to."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
import structlog

MAX_CHUNK: Final = 4 * 1024 * 1024
"""Bytes that are read at a time."""

MAX_LINE: Final = 128 * 1024 * 1024
"""Bytes of a line that is kept; a message of 12 MiB may take six times as many."""

MAX_STATE: Final = 1024 * 1024
"""Bytes of a small file that are read."""

Record = TypeVar("Record")

_log = structlog.get_logger(__name__)


class Tail:
    """Gives each complete line of a file once; those without text only with `blank_lines`.

    A file that was replaced or has become shorter is read from its beginning again.

    Args:
        leave_out: called with the length of a line that is too long, in place of the line.

    Attributes:
        behind: whether the file had more than was read the last time.
    """

    def __init__(
        self,
        path: Path,
        leave_out: Callable[[int], None] | None = None,
        *,
        blank_lines: bool = False,
    ) -> None:
        self.path = path
        self.behind = False
        self._leave_out = leave_out
        self._blank_lines = blank_lines
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._start_line()

    def lines(self) -> Iterator[bytes]:
        """Return the lines that are new; one without its line break waits for that."""
        first, *others = self._read().split(b"\n")
        self._extend_line(first)
        lines = []
        for other in others:
            lines.append((b"".join(self._line), self._length))
            self._start_line()
            self._extend_line(other)
        for line, length in lines:
            if length > MAX_LINE:
                _log.warning("record line skipped", file=self.path.name, bytes=length)
                if self._leave_out is not None:
                    self._leave_out(length)
            elif self._blank_lines or line.strip():
                yield line

    def records(self, decoder: msgspec.json.Decoder[Record]) -> Iterator[Record]:
        """Return the new lines as what they tell; one that is not readable is left out."""
        left_out, why = 0, ""
        for line in self.lines():
            try:
                record = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                left_out, why = left_out + 1, str(error)
                continue
            yield record
        if left_out:
            _log.warning("record lines skipped", file=self.path.name, count=left_out, error=why)

    def _read(self) -> bytes:
        """Return the next bytes of the file."""
        self.behind = False
        try:
            stream = open_file(self.path)
        except OSError:
            return b""  # not yet there, or no longer
        with stream:
            state = os.fstat(stream.fileno())
            if self._file != (state.st_dev, state.st_ino) or state.st_size < self._offset:
                self._file, self._offset = (state.st_dev, state.st_ino), 0
                self._start_line()
            if state.st_size == self._offset:
                return b""
            stream.seek(self._offset)
            data = stream.read(MAX_CHUNK)
        self._offset += len(data)
        self.behind = len(data) == MAX_CHUNK
        return data

    def _start_line(self) -> None:
        self._line: list[bytes] = []
        self._length = 0

    def _extend_line(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > MAX_LINE:
            self._line.clear()
        elif part:
            self._line.append(part)


def open_file(path: Path) -> BinaryIO:
    """Open a file that another program writes.

    Raises:
        OSError: it cannot be opened, or is not a regular file: a pipe would hold everything up.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(file, "rb")


def read_small_file(path: Path) -> bytes:
    """Return the beginning of a file that another program writes. Raises as `open_file` does."""
    with open_file(path) as stream:
        return stream.read(MAX_STATE)
