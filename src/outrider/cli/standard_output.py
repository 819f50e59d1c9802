"""Standard output that ends the command with a sentence if it cannot be written."""

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _StandardOutput(io.FileIO):
    """Ends the command at the first write that fails, as on a full disk.

    That the reader of a pipe has ended is an error, as for any file.
    """

    _has_failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of the data; after a failure drop it: nothing can be written any more."""
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            self._has_failed = True

            from outrider.cli.running import fail  # loads what most commands do not need

            fail(f"Standard output cannot be written: {error.strerror}")


@contextmanager
def guarded_output() -> Iterator[None]:
    """Within this, a standard output that cannot be written ends the command with exit code 1."""
    given = sys.stdout
    if not isinstance(given, io.TextIOWrapper):  # it is closed
        yield
        return
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(given.fileno(), "wb", closefd=False)),
        encoding=given.encoding,
        errors=given.errors,
        line_buffering=given.line_buffering,
        write_through=given.write_through,
    )
    try:
        yield
    finally:
        with suppress(BrokenPipeError):  # whoever read the output has enough
            sys.stdout.flush()
