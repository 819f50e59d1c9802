"""Open files inside one directory, safely while other processes rename and link its contents.

1. The path is resolved (symbolic links and `..`) and compared with the directory. This decides
   whether it is outside.
2. The resolved path is opened component by component from `/`, each component relative to the
   descriptor of the one before it, following no link.

If a component is replaced by a link between the two steps, step 2 fails, and both are repeated a
few times. So a path can never lead outside, whatever is swapped in between.

    resolve(path) ──> /srv/app/src/a.py ──> open("/") → "srv" → "app" → "src" → "a.py"
                  check                      each O_NOFOLLOW, by openat

`openat2(RESOLVE_BENEATH)` does the same in one call, but exists only on Linux, and containers may
forbid it; this works on every POSIX system. Where `O_PATH` is missing (macOS), the directories on
the way must be readable; on Linux the permission to enter them is enough.

Hard links: nothing shows which name of a file came first, and whoever could create the link could
also read the file, so reading is allowed. Writing to a file with several names replaces the file
under this name only; the other names keep the old contents.
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

_ATTEMPTS: Final = 3
"""How often a path is resolved whose directories change while it is opened."""

_CHANGED: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
"""Errors of opening a link without following it: a directory was replaced by a link."""

_TRAVERSE: Final = (
    getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Result = TypeVar("_Result")


class PathOutsideError(OutriderError):
    """The path leads out of the directory."""


class ConfinedDirectory:
    """Opens files inside one directory. Paths are absolute, or relative to the directory.

    Every method blocks, holds at most two descriptors, and may be called from any thread.

    Raises:
        PathOutsideError: the path is outside the directory (every method).
        ValueError: the path is not valid, such as one with a NUL character.
        OSError: the system refuses the operation.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.realpath(root))

    def open_file(self, path: str, *, is_resolved: bool = False) -> int:
        """Open a regular file for reading; the caller closes the returned descriptor.

        Args:
            is_resolved: `path` was absolute and free of links when the caller checked it. A link
                that has taken the place of a part of it is an error, and not followed.
        """
        return self._at(
            path,
            lambda directory, name: _open_regular(directory, name, os.O_RDONLY),
            is_resolved=is_resolved,
        )

    def open_directory(self, path: str, *, is_resolved: bool = False) -> int:
        """Open a directory for `os.scandir`, as `open_file` opens a file."""
        return self._at(
            path,
            lambda directory, name: os.open(name, _LIST, dir_fd=directory),
            is_resolved=is_resolved,
        )

    def read_link(self, path: str) -> str:
        """Return the text of a symbolic link; `path` is resolved as for `open_file`."""
        return self._at(
            path, lambda directory, name: os.readlink(name, dir_fd=directory), is_resolved=True
        )

    def write_file(self, path: str, data: bytes) -> None:
        """Write `data` to a regular file; it and its directories are created if missing."""
        self._at(path, lambda directory, name: _write(directory, name, data), create=True)

    def _at(
        self,
        path: str,
        use: Callable[[int, str], _Result],
        *,
        create: bool = False,
        is_resolved: bool = False,
    ) -> _Result:
        """Call `use` with the descriptor of a path's parent directory and the name in it."""
        for attempt in range(1, _ATTEMPTS + 1):
            names = self._names(path, is_resolved=is_resolved)
            try:
                directory = self._walk(names[:-1], create=create)
                try:
                    return use(directory, names[-1] if names else ".")
                finally:
                    os.close(directory)
            except OSError as error:
                if error.errno not in _CHANGED or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _names(self, path: str, *, is_resolved: bool) -> tuple[str, ...]:
        """Return the components of a resolved path, relative to the directory."""
        resolved = Path(path) if is_resolved else Path(os.path.realpath(self.root / path))
        if not resolved.is_relative_to(self.root) or ".." in resolved.parts:
            raise PathOutsideError(f"{path} is not inside the directory {self.root}")
        return resolved.relative_to(self.root).parts

    def _walk(self, names: Sequence[str], *, create: bool) -> int:
        """Return the descriptor of a directory, reached from `/` without following a link."""
        directory = os.open("/", _TRAVERSE)
        ancestors = self.root.parts[1:]
        for depth, name in enumerate((*ancestors, *names)):
            try:
                child = _enter(directory, name, create=create and depth >= len(ancestors))
            finally:
                os.close(directory)
            directory = child
        return directory


def _enter(directory: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _TRAVERSE, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, _TRAVERSE, dir_fd=directory)


def _open_regular(directory: int, name: str, flags: int) -> int:
    """Open a regular file. `O_NONBLOCK` keeps a named pipe without a writer from blocking."""
    handle = os.open(name, flags | _FILE, 0o666, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
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
    """Replace a file that has other names (hard links) by a new file, atomically."""
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
