"""A file or a directory inside the directory of a session, as far as git does not ignore it.

The path is resolved once, checked, and then opened by `ConfinedDirectory` without following a
link. Each repository on the way is asked about its part of the path, from the innermost to the
outermost: what a submodule ignores is ignored, and so is a repository inside an ignored directory.
"""

import asyncio
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from outrider.contract.commands import Directory, FileContents, FileEntry
from outrider.contract.errors import ApiError, not_found
from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError
from outrider.machine.workspace.decoding import beginning, decoded
from outrider.machine.workspace.git import opened
from outrider.machine.workspace.ignored import ignored_names, ignores
from outrider.machine.workspace.repository import find_repository

MAX_TEXT: Final = 512 * 1024
"""Bytes of a file's text."""

_MAX_SCANNED: Final = 20_000
"""Entries of a directory that are read at all, in no order."""

_GIT: Final = ".git"
_Kind = Literal["file", "dir", "link"]
_Entries = dict[bytes, tuple[_Kind, int]]


async def read_files(
    directory: Path, inner: str, deadline: float, max_entries: int
) -> Directory | FileContents:
    """Return the file or directory `inner` of `directory`, which is free of links.

    Raises:
        ApiError: 404, there is no such file, it is outside, or ignored.
        GitError: git failed.
        TimeoutError: it takes longer than the deadline.
    """
    root = ConfinedDirectory(directory)
    path = await asyncio.to_thread(_resolved, root, inner)
    if await _is_ignored(directory, path, deadline):
        raise _missing(inner)
    try:
        found = await asyncio.to_thread(_read, root, path)
    except (PathOutsideError, ValueError, OSError) as error:
        raise _missing(inner) from error
    shown_path = decoded(os.fsencode(path.relative_to(directory)))
    name = "" if shown_path == "." else shown_path
    if isinstance(found, tuple):
        data, size = found
        is_binary = b"\0" in data
        text, is_whole = beginning(data, MAX_TEXT)
        return FileContents(
            path=name,
            size=size,
            text=None if is_binary else text,
            truncated=not is_binary and not (is_whole and size <= MAX_TEXT),
            binary=is_binary,
        )
    entries = await _visible(directory, path, found, deadline)
    return Directory(
        path=name,
        entries=[
            FileEntry(name=decoded(entry), type=kind, size=size)
            for entry, (kind, size) in sorted(entries.items())[:max_entries]
        ],
        truncated=len(entries) > max_entries or len(found) >= _MAX_SCANNED,
    )


def _missing(inner: str) -> ApiError:
    return not_found(
        f"The session's directory has no file or directory {inner!r}; what git ignores and what "
        "is outside is not shown"
    )


def _resolved(root: ConfinedDirectory, inner: str) -> Path:
    """Return the path free of links.

    Raises:
        ApiError: 404, it is outside, or inside a `.git`.
    """
    try:
        path = Path(os.path.realpath(root.root / inner))
    except (OSError, ValueError) as error:
        raise _missing(inner) from error
    if not path.is_relative_to(root.root):
        raise _missing(inner)
    # In any case: on the file systems of macOS and Windows `.GIT` is the same directory.
    if any(part.lower() == _GIT for part in path.relative_to(root.root).parts):
        raise _missing(inner)
    return path


def _read(root: ConfinedDirectory, path: Path) -> tuple[bytes, int] | _Entries:
    """Return the beginning of a file and its size, or the entries of a directory."""
    try:
        handle = root.open_directory(str(path), is_resolved=True)
    except NotADirectoryError:
        with os.fdopen(root.open_file(str(path), is_resolved=True), "rb") as file:
            # Four bytes more: `beginning` must see whether a character is cut in two.
            return file.read(MAX_TEXT + 4), os.fstat(file.fileno()).st_size
    try:
        with os.scandir(handle) as entries:
            return dict(_entries(islice(entries, _MAX_SCANNED)))
    finally:
        os.close(handle)


def _entries(entries: Iterator["os.DirEntry[str]"]) -> Iterator[tuple[bytes, tuple[_Kind, int]]]:
    """Return each entry but special files and `.git`."""
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it has been removed in the meantime
        if entry.name.lower() == _GIT:
            continue
        name = os.fsencode(entry.name)
        if stat.S_ISLNK(status.st_mode):
            yield name, ("link", 0)
        elif stat.S_ISDIR(status.st_mode):
            yield name, ("dir", 0)
        elif stat.S_ISREG(status.st_mode):
            yield name, ("file", status.st_size)


async def _is_ignored(directory: Path, path: Path, deadline: float) -> bool:
    """Return whether a repository between `directory` and `path` ignores its part of the path."""
    # Innermost first: a repository inside another one decides about what is in it.
    place = path
    while place != directory:
        repository = await asyncio.to_thread(find_repository, place.parent)
        if repository is None:
            return False
        top = repository.top if repository.top.is_relative_to(directory) else directory
        async with opened(repository, top, deadline) as git:
            if await ignores(git, directory):
                return False
            if await ignored_names(git, [os.fsencode(place.relative_to(top))]):
                return True
        place = top
    return False


async def _visible(root: Path, directory: Path, entries: _Entries, deadline: float) -> _Entries:
    """Return the entries of a directory that git does not ignore."""
    repository = await asyncio.to_thread(find_repository, directory)
    if repository is None or not entries:
        return entries
    async with opened(repository, directory, deadline) as git:
        if await ignores(git, root):
            return entries
        ignored = await ignored_names(git, list(entries))
    return {name: entry for name, entry in entries.items() if name not in ignored}
