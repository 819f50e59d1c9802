"""Follow a file of lines that another program appends to."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

MAX_CHUNK: Final = 64 * 1024 * 1024


Record = TypeVar("Record")

_log = structlog.get_logger(__name__)


class Tail:
    """Gives each complete line of a file once; those without text only with `blank_lines`.

    A file that was replaced or has become shorter is read from its beginning again.
    """

    def __init__(self, path: Path, *, blank_lines: bool = False) -> None:
        self.path = path
        self._blank_lines = blank_lines
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._partial = b""

    def lines(self) -> Iterator[bytes]:
        """Return the lines that are new; one without its line break waits for that."""
        try:
            stream = self.path.open("rb")
        except OSError:
            return  # not yet there, or no longer
        with stream:
            state = os.fstat(stream.fileno())
            if self._file != (state.st_dev, state.st_ino) or state.st_size < self._offset:
                self._file, self._offset, self._partial = (state.st_dev, state.st_ino), 0, b""
            if state.st_size == self._offset:
                return
            stream.seek(self._offset)
            data = stream.read(MAX_CHUNK)
        self._offset += len(data)
        *complete, self._partial = (self._partial + data).split(b"\n")
        yield from (line for line in complete if self._blank_lines or line.strip())

    def records(self, decoder: msgspec.json.Decoder[Record]) -> Iterator[Record]:
        """Return the new lines as what they tell; one that is not readable is left out."""
        for line in self.lines():
            try:
                record = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError) as error:
                _log.warning(
                    "a line of a record was left out", file=self.path.name, error=str(error)
                )
                continue
            yield record
