"""Open paths beneath a directory, safely while others rename and link what is there.

A path is resolved first, links and `..` followed, and checked: that decides what is outside. The
result is then opened name by name from the file system's root, each name in the directory that
was opened before it, and no link is followed any more. So whatever is swapped in between cannot
lead outside; the path is resolved again then, a few times.

    resolve(path) ──> /srv/app/src/a.py ──> open("/") → "srv" → "app" → "src" → "a.py"
                  check                      each O_NOFOLLOW, by openat

`openat2(RESOLVE_BENEATH)` would do the same in one call, but exists on Linux alone, and containers
may forbid it. This way works on every POSIX system. Where `O_PATH` is missing (macOS), the
directories on the way must be readable; on Linux the right to enter them is enough.

A hard link is a file of the directory like any other: nothing tells which of its names came first,
and whoever could make the link could read the file. Reading one is allowed. Writing to a file
with several names gives it new contents under this name alone: the others keep the old.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from outrider.contract.errors import OutriderError

_TRIES: Final = 3
"""How often a path is resolved whose directories change while it is opened."""

_CHANGED: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
"""What opening says of a link: also of one that has taken a directory's place."""

_THROUGH: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Result = TypeVar("_Result")


class OutsideError(OutriderError):
    """A path that leads out of the directory."""


class Beneath:
    """What is beneath one directory. Paths are absolute, or relative to it.

    Every method blocks, holds two descriptors at most, and may be called in any thread.
    All raise `OutsideError` for a path outside, `ValueError` for a text that is no path, and
    `OSError` for what the system refuses.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.realpath(root))

    def open_file(self, path: str) -> int:
        """Return a descriptor to read a regular file from; it is the caller's to close."""
        return self._at(path, lambda directory, name: _open_regular(directory, name, os.O_RDONLY))

    def open_directory(self, path: str) -> int:
        """Return a descriptor of a directory, for `os.scandir`; it is the caller's to close."""
        return self._at(path, lambda directory, name: os.open(name, _LIST, dir_fd=directory))

    def write_file(self, path: str, data: bytes) -> None:
        """Put `data` into a regular file, which is made, with its directories, if it is missing."""
        self._at(path, lambda directory, name: _write(directory, name, data), create=True)

    def _at(
        self, path: str, use: Callable[[int, str], _Result], *, create: bool = False
    ) -> _Result:
        """Call `use` with a descriptor of the directory that a path is in, and its name there."""
        for attempt in range(1, _TRIES + 1):
            names = self._names(path)
            try:
                directory = self._walk(names[:-1], create=create)
                try:
                    return use(directory, names[-1] if names else ".")
                finally:
                    os.close(directory)
            except OSError as error:
                if error.errno not in _CHANGED or attempt == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _names(self, path: str) -> tuple[str, ...]:
        """Return the names from the root to a path, links followed."""
        resolved = Path(os.path.realpath(self.root / path))
        if not resolved.is_relative_to(self.root):
            raise OutsideError(f"{path} is not inside the directory {self.root}")
        return resolved.relative_to(self.root).parts

    def _walk(self, names: Sequence[str], *, create: bool) -> int:
        directory = os.open("/", _THROUGH)
        above = self.root.parts[1:]
        for depth, name in enumerate((*above, *names)):
            try:
                below = _enter(directory, name, create=create and depth >= len(above))
            finally:
                os.close(directory)
            directory = below
        return directory


def _enter(directory: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _THROUGH, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, _THROUGH, dir_fd=directory)


def _open_regular(directory: int, name: str, flags: int) -> int:
    """Open a file without waiting for a pipe's other end."""
    handle = os.open(name, flags | _FILE, 0o666, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def _write(directory: int, name: str, data: bytes) -> None:
    with os.fdopen(_open_regular(directory, name, os.O_WRONLY | os.O_CREAT), "wb") as file:
        status = os.fstat(file.fileno())
        if status.st_nlink == 1:
            file.truncate()
            file.write(data)
            return
    _replace(directory, name, data, stat.S_IMODE(status.st_mode) & 0o777)


def _replace(directory: int, name: str, data: bytes, mode: int) -> None:
    """Put a new file in the place of one that has other names."""
    new = f".outrider-{secrets.token_hex(8)}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(new, dir_fd=directory)
        raise
