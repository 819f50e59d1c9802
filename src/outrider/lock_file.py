"""An exclusive lock on a file, held for as long as a process runs."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileLockedError(Exception):
    """Another process holds the lock; `holder` is its process id as text, or "unknown"."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"The lock is held by process {holder}")
        self.holder = holder


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock on the file for the block; the file is created if needed and then stays.

    The system releases the lock when the process ends, however it ends. Children do not inherit the
    descriptor, so that none of them keeps the lock.

    Raises:
        FileLockedError: another process holds the lock.
        OSError: the file cannot be written.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileLockedError(_holder(handle)) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def lock_holder(path: Path) -> str | None:
    """Return the process id of the lock's holder as text, or "unknown"; None if nobody holds it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(handle)
    finally:
        os.close(handle)
    return None


def _holder(handle: int) -> str:
    return os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
