"""Copies the files that have changed in a working tree, for git to compare the copies.

git opens a file by its name. It would follow a link that has just taken the place of a directory,
read files of any size, and fail at a named pipe. So it only lists the names of what has changed;
the files are opened here, by `ConfinedDirectory`, and git reads the copies.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError

MAX_FILE: Final = 32 * 1024 * 1024
"""Bytes of a file whose contents are compared; larger ones count as binary."""

MAX_TOTAL: Final = 128 * 1024 * 1024
"""Bytes that are read of all files together."""

LINK: Final = "120000"
SUBMODULE: Final = "160000"
_FILE: Final = "100644"
_EXECUTABLE: Final = "100755"
_CHUNK: Final = 1024 * 1024


@dataclass(frozen=True)
class Candidate:
    """A file that may have changed.

    Attributes:
        path: relative to the directory.
        mode: its mode in the index, None if it is untracked.
        object_id: its contents in the index; None if there are none to compare with.
    """

    path: bytes
    mode: str | None = None
    object_id: str | None = None


@dataclass
class Staged:
    """What has changed.

    Attributes:
        copied: the modes of the files that were copied, also in part, by their paths.
        removed: tracked files that are not there any more.
        unreadable: untracked files that cannot be read, such as other repositories.
        is_complete: false if there are more.
    """

    copied: dict[bytes, str] = field(default_factory=dict)
    removed: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    is_complete: bool = True


class Stage:
    """Copies files of one directory into another, each opened without following a link.

    A link is copied as a file with its text. In place of a file that is too large there is a short
    binary one.

    Args:
        trusts_modes: whether the file system says which files are executable.
        has_links: whether the file system has symbolic links; without, files stand for them.
    """

    def __init__(
        self, source: Path, target: Path, *, trusts_modes: bool = True, has_links: bool = True
    ) -> None:
        self._source = ConfinedDirectory(source)
        self._target = ConfinedDirectory(target)
        self._trusts_modes = trusts_modes
        self._has_links = has_links
        self._left = MAX_TOTAL

    def copy(self, candidates: Iterable[Candidate], most: int, seconds: float) -> Staged:
        """Copy those candidates that have changed. Blocks.

        Args:
            most: changed files after which it ends.
            seconds: after which it ends.
        """
        end = time.monotonic() + seconds
        staged = Staged()
        for candidate in candidates:
            if len(staged.copied) + len(staged.removed) > most or time.monotonic() > end:
                staged.is_complete = False
                break
            try:
                self._copy(candidate, staged)
            # A tracked file that cannot be read has changed as far as anybody can see; an untracked
            # one is only listed.
            except PermissionError:
                if candidate.mode is None:
                    staged.unreadable.append(candidate.path)
                else:
                    self._write(candidate, candidate.mode, _stub(candidate, -1), staged)
            except (OSError, PathOutsideError, ValueError):
                if candidate.mode is not None:
                    staged.removed.append(candidate.path)
                # git lists another repository as a directory. A file that is gone again is no
                # change.
                elif candidate.path.endswith(b"/") or self._is_there(candidate):
                    staged.unreadable.append(candidate.path)
        return staged

    def _copy(self, candidate: Candidate, staged: Staged) -> None:
        path = self._path(candidate)
        try:
            handle = self._source.open_file(path, is_resolved=True)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            text = os.fsencode(self._source.read_link(path))
            self._write_changed(candidate, LINK, text, staged)
            return
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            mode = self._mode(candidate, status.st_mode)
            size = status.st_size
            if size > self._left:
                staged.is_complete = False
            elif size <= MAX_FILE:
                # It may have grown since `fstat`: read no more than was allowed for.
                data = file.read(min(MAX_FILE, self._left))
                self._left -= len(data)
                self._write_changed(candidate, mode, data, staged)
                return
            elif candidate.object_id is not None and mode == candidate.mode:
                self._left -= size
                digest = _digest(candidate.object_id, size)
                while size > 0 and (data := file.read(min(_CHUNK, size))):
                    digest.update(data)
                    size -= len(data)
                if digest.hexdigest() == candidate.object_id:
                    return
        self._write(candidate, mode, _stub(candidate, status.st_size), staged)

    def _mode(self, candidate: Candidate, mode: int) -> str:
        if not self._has_links and candidate.mode == LINK:
            return LINK
        if not self._trusts_modes:
            return candidate.mode if candidate.mode in {_FILE, _EXECUTABLE} else _FILE
        return _EXECUTABLE if mode & stat.S_IXUSR else _FILE

    def _write_changed(self, candidate: Candidate, mode: str, data: bytes, staged: Staged) -> None:
        if candidate.object_id is not None and candidate.mode == mode:
            digest = _digest(candidate.object_id, len(data))
            digest.update(data)
            if digest.hexdigest() == candidate.object_id:
                return
        self._write(candidate, mode, data, staged)

    def _write(self, candidate: Candidate, mode: str, data: bytes, staged: Staged) -> None:
        self._target.write_file(os.fsdecode(candidate.path), data)
        staged.copied[candidate.path] = mode

    def _path(self, candidate: Candidate) -> str:
        return str(self._source.root / os.fsdecode(candidate.path))

    def _is_there(self, candidate: Candidate) -> bool:
        try:
            os.close(self._source.open_directory(self._path(candidate), is_resolved=True))
        except (OSError, PathOutsideError, ValueError):
            return False
        return True


def _stub(candidate: Candidate, size: int) -> bytes:
    """Return what stands for a file that is not copied: git takes it for binary."""
    return b"\0%d %b" % (size, candidate.path)


def _digest(object_id: str, size: int) -> "hashlib._Hash":
    """Begin the object id of a file."""
    kind = "sha256" if len(object_id) == 64 else "sha1"
    return hashlib.new(kind, b"blob %d\0" % size, usedforsecurity=False)
