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
from outrider.daemon.confined_directory import ConfinedDirectory, PathOutsideError

_MAX_POINTER: Final = 16 * 1024
_UNLINKED: Final = (
    "HEAD", "commondir", "config", "config.worktree", "index", "info", "objects", "objects/info",
    "objects/pack", "packed-refs", "refs", "refs/heads", "refs/remotes", "refs/tags", "worktrees",
)  # fmt: skip
"""What may not be a link, because it may lead into another repository."""


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
        _check_links(found)
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


def _check_links(found: Repository) -> None:
    if os.path.lexists(found.common_dir / "commondir"):
        raise RepositoryRefusedError(f"{found.common_dir / 'commondir'} leads elsewhere")
    for directory in {found.git_dir, found.common_dir}:
        for place in (directory / name for name in _UNLINKED):
            if place.is_symlink():
                raise RepositoryRefusedError(f"{place} is a link, which may lead elsewhere")
