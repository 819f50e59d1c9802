"""Reads a repository's index from a private copy whose names were checked.

git trusts the names in an index: it never writes one with `..`, so it does not look for them when
it reads one. An index that somebody else wrote may name `../secret` or `/etc/passwd`, and git
would show that file as changed. So the index is copied, the names in the copy are checked, and git
reads only the copy: it does not change any more.
"""

import asyncio
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from outrider.contract.errors import conflict
from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError
from outrider.machine.workspace.decoding import decoded
from outrider.machine.workspace.git import SafeRepository
from outrider.machine.workspace.repository import RepositoryRefusedError

_MAX_INDEX: Final = 256 * 1024 * 1024
"""Bytes of an index, with the parts that it shares with others: about two million files."""

_MAX_SHARED: Final = 2
"""Shared parts that are copied, the newest ones. git uses one; it deletes others after two weeks.
"""

_MAX_NAMES: Final = 256 * 1024 * 1024

# What git never adds to an index (`verify_path`): `..`, empty parts, and every spelling of `.git`
# on the file systems of Windows (`git~1`, `.git .`) and macOS (with characters that it ignores).
_IGNORABLE: Final = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
_FORBIDDEN: Final = re.compile(
    rb"[/\0](?:\.{0,2}|(?:\.git|git~1)[. ]*(?:[:\\][^/\0]*)?|I\.IgIiItI)(?=[/\0])".replace(
        b"I", _IGNORABLE
    ),
    re.IGNORECASE,
)


async def copy_index(git: SafeRepository) -> None:
    """Copy the repository's index to the private git directory; without one, there is none.

    Raises:
        ApiError: 409, it is too large, or cannot be read.
        GitError: git cannot read it.
        RepositoryRefusedError: it has a name that leads elsewhere.
        TimeoutError: it takes longer than the deadline.
    """
    await asyncio.to_thread(_copy, git.repository.git_dir, git.private)
    listed = await replace(git, directory=git.repository.top).run(
        "ls-files", "-z", max_output=_MAX_NAMES
    )
    if not listed.is_complete:
        raise conflict("The repository's index names too many files")
    if (name := await asyncio.to_thread(_forbidden_name, listed.data)) is not None:
        raise RepositoryRefusedError(
            f"its index has the name {decoded(name)!r}, which leads out of the working tree or "
            "into `.git`: git does not write such an index"
        )


def _copy(git_dir: Path, private: Path) -> None:
    left = _MAX_INDEX
    for name in ("index", *_shared_parts(git_dir)):
        try:
            with (
                os.fdopen(ConfinedDirectory(git_dir).open_file(name), "rb") as source,
                (private / name).open("wb") as copy,
            ):
                status = os.fstat(source.fileno())
                # By the size of what was opened: the name may lead to another file by now.
                left -= status.st_size
                if left < 0:
                    raise conflict("The repository's index is larger than 256 MiB")
                shutil.copyfileobj(source, copy, 1024 * 1024)
            # git compares the contents of files that are as new as the index ("racy git").
            os.utime(private / name, ns=(status.st_atime_ns, status.st_mtime_ns))
        except FileNotFoundError:
            continue
        except (PathOutsideError, OSError) as error:
            raise conflict(f"The repository's index cannot be read: {error}") from error


def _shared_parts(git_dir: Path) -> list[str]:
    """Return the names of the newest parts of split indexes."""
    with os.scandir(git_dir) as entries:
        parts = [
            (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
            for entry in entries
            if entry.name.startswith("sharedindex.")
        ]
    return [name for _, name in sorted(parts, reverse=True)[:_MAX_SHARED]]


def _forbidden_name(names: bytes) -> bytes | None:
    """Return the first of NUL-terminated names that git would not add to an index."""
    found = _FORBIDDEN.search(b"\0" + names)
    if found is None:
        return None
    begin = names.rfind(b"\0", 0, max(found.start() - 1, 0)) + 1 if found.start() else 0
    return names[begin : names.index(b"\0", found.end() - 1)]
