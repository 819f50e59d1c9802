"""Finds the git repository around a directory, and refuses one that leads elsewhere.

git itself would follow a `.git` file, a `commondir` or a link to any other repository of this user,
and `diff` would then show that one's contents. A repository is accepted only if its files are

- in the directory `.git` of its working tree,
- or in `worktrees/…` of another repository, which names this working tree in turn,
- or in `modules/…` of the repository around it (a submodule).

git also refuses repositories of other users, who could replace files while git reads them. Because
the location is given to git, it does not check that; `foreign_paths` does.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outrider.contract.errors import OutriderError
from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError

_MAX_POINTER: Final = 16 * 1024
_MAX_ENTRIES: Final = 100_000
_OWN: Final = (
    "HEAD", "commondir", "config", "config.worktree", "index", "info", "info/attributes",
    "info/exclude", "logs", "logs/HEAD", "modules", "objects", "objects/info", "objects/pack",
    "packed-refs", "refs", "shallow", "worktrees",
)  # fmt: skip
"""What may only be a file or a directory: a link may lead into another repository, and git waits
for the other end of a named pipe."""

_OWN_TREES: Final = ("refs",)
_OWN_LISTS: Final = ("objects", "objects/pack")
"""Directories in which nothing may be a link: with all that is in them, or only directly."""

_BORROWING: Final = ("objects/info/alternates", "objects/info/http-alternates")


class RepositoryRefusedError(OutriderError):
    """The repository cannot be read safely. The text says why."""


@dataclass(frozen=True)
class Repository:
    """A repository and one of its working trees; all paths are free of links.

    Attributes:
        top: the working tree.
        git_dir: what belongs to this working tree only, such as its index.
        common_dir: what all working trees share; the same as `git_dir` but in a linked one.
    """

    top: Path
    git_dir: Path
    common_dir: Path

    def foreign_paths(self) -> list[Path]:
        """Return those of its places that belong to another user."""
        ours = os.geteuid()
        places = (self.top, self.top / ".git", self.git_dir, self.common_dir)
        return [place for place in places if place.lstat().st_uid != ours]


def find_repository(directory: Path) -> Repository | None:
    """Return the innermost repository around a directory; None if there is none.

    Blocks. `directory` is free of links.

    Raises:
        RepositoryRefusedError: it leads elsewhere.
        OSError: it cannot be read.
    """
    for top in (directory, *directory.parents):
        pointer = top / ".git"
        try:
            mode = pointer.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISREG(mode):
            found = _linked(top)
        elif not stat.S_ISDIR(mode):
            raise RepositoryRefusedError(f"{pointer} is neither a directory nor a file")
        elif not os.path.lexists(pointer / "HEAD"):
            continue  # an empty `.git` is no repository for git either
        else:
            found = Repository(top, pointer, pointer)
        check_own_files(found)
        return found
    return None


def _linked(top: Path) -> Repository:
    """Return the repository of a `.git` file: of a linked working tree, or of a submodule."""
    text = _pointer(top, ".git").partition("gitdir: ")[2]
    git_dir = Path(os.path.realpath(top / text))
    shared = git_dir.parent.parent
    if git_dir.parent.name == "worktrees":
        if os.path.realpath(git_dir / _pointer(git_dir, "gitdir")) == str(top / ".git"):
            return Repository(top, git_dir, shared)
    else:
        around = find_repository(top.parent)
        if around is not None and git_dir.is_relative_to(around.common_dir / "modules"):
            return Repository(top, git_dir, git_dir)
    raise RepositoryRefusedError(
        f"{top / '.git'} leads to {git_dir}, which is not a repository of this directory"
    )


def _pointer(directory: Path, name: str) -> str:
    """Return the path in a small file."""
    try:
        with os.fdopen(ConfinedDirectory(directory).open_file(name), "rb") as file:
            return os.fsdecode(file.read(_MAX_POINTER).rstrip(b"\r\n"))
    except (PathOutsideError, ValueError, OSError) as error:
        raise RepositoryRefusedError(f"{directory / name} cannot be read: {error}") from error


def check_own_files(found: Repository) -> None:
    """Refuse a repository with files that lead into another one, or that git would wait for.

    Blocks.

    Raises:
        RepositoryRefusedError: it has such files.
    """
    if os.path.lexists(found.common_dir / "commondir"):
        raise RepositoryRefusedError(f"{found.common_dir / 'commondir'} leads elsewhere")
    for directory in {found.git_dir, found.common_dir}:
        for place in (directory / name for name in _OWN):
            _check_own(place)
        for name in _OWN_TREES:
            _check_entries(directory / name, is_deep=True)
        for name in _OWN_LISTS:
            _check_entries(directory / name, is_deep=False)
    for place in (found.common_dir / name for name in _BORROWING):
        if os.path.lexists(place):
            raise RepositoryRefusedError(
                f"{place} leads to the objects of another repository, which are not read: run "
                "`git repack -a -d` and remove that file"
            )


def _check_own(place: Path) -> None:
    try:
        mode = place.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise RepositoryRefusedError(f"{place} is a link, which may lead elsewhere")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RepositoryRefusedError(f"{place} is neither a file nor a directory")


def _check_entries(top: Path, *, is_deep: bool) -> None:
    """Check that a directory has no links in it."""
    waiting, count = [top], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_symlink():
                        raise RepositoryRefusedError(
                            f"{entry.path} is a link, which may lead elsewhere"
                        )
                    if is_deep and entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        if count > _MAX_ENTRIES:
            raise RepositoryRefusedError(f"{top} has too many files: run `git gc` there")
