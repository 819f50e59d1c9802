"""Git worktrees for sessions: created for a branch, checked for changes, removed.

    repository/            the main working tree; `.git/worktrees/topic` belongs to the new one
    repository.worktrees/  or the directory of the setting
        topic/             the worktree of the branch `topic`; its file `.git` is written last

`git worktree` would run hooks and filters that the repository names. So the files that it writes
(see gitrepository-layout(5)) are written here, and the branch is checked out with
`SafeRepository.work`, which runs nothing of the repository. Without its file `.git`, a worktree
that was not finished because the machine agent was killed is only a directory: the next one for
the branch gets another name.
"""

import asyncio
import os
import re
import shutil
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from outrider.contract.commands import NewWorktree
from outrider.contract.errors import ApiError, bad_request, conflict
from outrider.machine.workspace.decoding import decoded
from outrider.machine.workspace.git import (
    GitError,
    SafeRepository,
    bounded,
    commit_id,
    empty_tree_id,
    opened,
)
from outrider.machine.workspace.ignored import ignores
from outrider.machine.workspace.index import copy_index
from outrider.machine.workspace.repository import (
    Repository,
    RepositoryRefusedError,
    find_repository,
)

SECONDS: Final = 30.0
"""How long creating, checking or removing a worktree may take."""

_BRANCH: Final = "worktree.branch"
_BASE: Final = "worktree.base"
_SIBLING: Final = ".worktrees"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME: Final = 80
_MAX_TRIES: Final = 100
_UNFINISHED: Final = (
    "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply",
)  # fmt: skip

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OpenedWorktree:
    """A worktree that is ready for a session.

    Attributes:
        top: its directory.
        directory: the session's directory: this one, or the one inside it that was requested.
        is_new: whether it was created for this session.
        new_branch_at: the commit at which its branch was created; None if the branch existed.
    """

    branch: str
    top: Path
    directory: Path
    is_new: bool = False
    new_branch_at: str | None = None


class Worktrees:
    """Creates, checks and removes worktrees. The caller calls one method at a time.

    Args:
        folder: where worktrees are created; None: beside each repository.
        seconds: how long each method may take.
    """

    def __init__(self, folder: Path | None = None, seconds: float = SECONDS) -> None:
        self._folder = folder
        self._seconds = seconds

    async def open(self, path: str, request: NewWorktree) -> OpenedWorktree:
        """Return the worktree of a branch, which is created if it does not exist.

        Args:
            path: an existing directory of the repository.

        Raises:
            ApiError: 400, `path` is in no repository, or the branch or its base cannot be used;
                409, the branch is checked out in the main working tree, or git fails; 504, git
                takes too long. Nothing is left of a worktree that was not finished.
        """
        async with AsyncExitStack() as undo, self._bounded(path) as deadline:
            directory = await asyncio.to_thread(Path(path).resolve)
            repository = await asyncio.to_thread(find_repository, directory)
            if repository is None:
                raise _no_repository(path)
            async with opened(repository, directory, deadline) as git:
                if await ignores(git, directory):
                    raise _no_repository(path)
                made = await self._find_or_create(git, request)
                # Whatever fails from here on, and a caller that goes away, undoes what was created.
                undo.push_async_callback(self.discard, made)
                inner = made.top / directory.relative_to(repository.top)
                if not await asyncio.to_thread(_is_inside, inner, made.top):
                    raise bad_request(
                        f"The branch {request.branch!r} has no directory "
                        f"{str(inner.relative_to(made.top))!r}",
                        "dir",
                    )
            undo.pop_all()
            return replace(made, directory=inner)

    async def discard(self, worktree: OpenedWorktree) -> None:
        """Remove a worktree that was created for a launch that failed, and its new branch.

        Does nothing for one that existed before. Failures are logged.
        """
        if not worktree.is_new:
            return
        try:
            async with self._bounded(str(worktree.top)) as deadline:
                repository = await asyncio.to_thread(_linked, worktree.top)
                # The branch first: the repository is reached through the worktree.
                if worktree.new_branch_at is not None:
                    async with opened(repository, worktree.top, deadline) as git:
                        await git.update_ref("-d", _ref(worktree.branch), worktree.new_branch_at)
                await asyncio.to_thread(_delete, repository)
        except ApiError as error:
            _log.error("worktree left", path=str(worktree.top), error=error.message)

    async def changes(self, path: str) -> str | None:
        """Return what would be lost if a worktree was removed, as a phrase; None: nothing.

        Raises:
            ApiError: 409, it is locked, or no worktree any more, or git fails; 504, git takes too
                long.
        """
        async with self._bounded(path) as deadline:
            if not await asyncio.to_thread(os.path.lexists, path):
                return None
            repository = await asyncio.to_thread(_linked, Path(path))
            if await asyncio.to_thread(os.path.lexists, repository.git_dir / "locked"):
                raise conflict(f"The worktree {path} is locked: run `git worktree unlock` there")
            async with opened(repository, repository.top, deadline) as git:
                return await _unsaved_work(git)

    async def remove(self, path: str) -> None:
        """Remove a worktree with everything in it; the branch stays.

        Raises:
            ApiError: 409, it cannot be removed; 504, it takes too long, and goes on.
        """
        async with self._bounded(path) as deadline:
            if await asyncio.to_thread(os.path.lexists, path):
                repository = await asyncio.to_thread(_linked, Path(path))
                # A thread cannot be cancelled: it goes on deleting after the 504.
                async with asyncio.timeout_at(deadline):
                    await asyncio.to_thread(_delete, repository)

    async def _find_or_create(self, git: SafeRepository, request: NewWorktree) -> OpenedWorktree:
        branch = request.branch
        if not await _is_branch_name(git, branch):
            raise bad_request(f"{branch!r} is not a valid name of a branch", _BRANCH)
        base = await commit_id(git, request.base or "HEAD")
        if request.base is not None and not base:
            raise bad_request("`base` is not a commit, branch or tag of this repository", _BASE)
        exists, place = await _find_branch(git, branch)
        if place is not None:
            top = await asyncio.to_thread(_checked_place, git.repository, branch, place)
            return OpenedWorktree(branch, top, top)
        commit = await commit_id(git, _ref(branch)) if exists else base
        if not commit:
            raise bad_request("The repository has no commit yet: make one first", "dir")
        parent = self._parent(git.repository)
        top = await asyncio.to_thread(_new_directory, parent, branch)
        try:
            await _check_out(git, top, commit)
            await _register(git, top, branch, None if exists else commit)
        except BaseException:
            await asyncio.to_thread(_delete_directory, top)
            raise
        return OpenedWorktree(branch, top, top, True, None if exists else commit)

    def _parent(self, repository: Repository) -> Path:
        """Return the directory in which the worktrees of a repository are created."""
        common = repository.common_dir
        if common.name != ".git" and ".git" in common.parts:
            raise bad_request("A submodule cannot have worktrees: give another `dir`", "dir")
        main = common.parent if common.name == ".git" else common.with_suffix("")
        if self._folder is not None:
            return self._folder.resolve() / main.name
        return main.with_name(main.name + _SIBLING)

    def _bounded(self, path: str) -> AbstractAsyncContextManager[float]:
        return bounded(path, self._seconds, f"A git worktree of {path} cannot be used")


def _no_repository(path: str) -> ApiError:
    return bad_request(
        f"The directory {path!r} is in no git repository: `worktree` needs one", "dir"
    )


def _ref(branch: str) -> str:
    return f"refs/heads/{branch}"


async def _is_branch_name(git: SafeRepository, name: str) -> bool:
    """Return whether git takes this as a branch, and for itself: `@{-1}` is an earlier one."""
    found = await git.query("check-ref-format", "--branch", name, may_fail=True)
    return found == os.fsencode(name) + b"\n"


async def _find_branch(git: SafeRepository, branch: str) -> tuple[bool, Path | None]:
    """Return whether a branch exists, and the working tree that has checked it out."""
    listed = await git.query(
        "for-each-ref", "--format=%(refname)%00%(worktreepath)%00", _ref(branch)
    )
    fields = listed.split(b"\0")
    for ref, place in zip(fields[::2], fields[1::2], strict=False):
        if ref.removeprefix(b"\n") == os.fsencode(_ref(branch)):
            path = Path(os.fsdecode(place))
            is_bare = path == git.repository.common_dir
            return True, path if place and not is_bare else None
    return False, None


def _checked_place(repository: Repository, branch: str, place: Path) -> Path:
    """Return the existing worktree of a branch, free of links.

    Raises:
        ApiError: 409, it is the main working tree, or gone.
        RepositoryRefusedError: it is no worktree of this repository.
    """
    top = Path(os.path.realpath(place))
    if not os.path.lexists(top / ".git"):
        raise conflict(
            f"The branch {branch!r} is checked out in {place}, which is no longer there: run "
            "`git worktree prune` in the repository"
        )
    found = find_repository(top)
    if found is None or (found.top, found.common_dir) != (top, repository.common_dir):
        raise RepositoryRefusedError(f"{place} is not a worktree of this repository")
    if found.git_dir == found.common_dir:
        raise conflict(
            f"The branch {branch!r} is checked out in {place} itself: choose another branch, or "
            "launch without `worktree`"
        )
    return top


def _linked(top: Path) -> Repository:
    """Return the repository of a worktree that is not the main working tree.

    Raises:
        ApiError: 409, it is no worktree any more.
    """
    found = find_repository(top) if os.path.realpath(top) == str(top) else None
    if found is None or found.top != top or found.git_dir == found.common_dir:
        raise conflict(f"{top} is not a git worktree any more")
    return found


def _is_inside(directory: Path, top: Path) -> bool:
    """Return whether a directory exists, and not through a link that leads outside."""
    return directory.is_dir() and Path(os.path.realpath(directory)).is_relative_to(top)


# Creating


def _new_directory(parent: Path, name: str) -> Path:
    """Create a directory with a name like this one that nothing has yet."""
    if parent.is_symlink():
        raise RepositoryRefusedError(f"{parent} is a link, which may lead elsewhere")
    parent.mkdir(parents=True, exist_ok=True)
    safe = _UNSAFE.sub("-", name)[:_MAX_NAME].strip("-.") or "worktree"
    for number in range(1, _MAX_TRIES):
        place = parent / (safe if number == 1 else f"{safe}-{number}")
        with suppress(FileExistsError):
            place.mkdir()
            return place
    raise conflict(f"{parent} has too many directories like {safe!r}: remove some")


async def _check_out(git: SafeRepository, top: Path, commit: str) -> None:
    """Write the files of a commit into an empty directory, and their index."""
    await asyncio.to_thread((git.private / "index").unlink, missing_ok=True)
    # git checks out into the new directory only: its index is private, and starts without entries,
    # so that no file of the main working tree counts as checked out already.
    tree = replace(git, repository=replace(git.repository, top=top), directory=top)
    await tree.run("read-tree", "--reset", "-u", commit)


async def _register(git: SafeRepository, top: Path, branch: str, new_at: str | None) -> None:
    """Make a directory a worktree of the repository.

    Args:
        new_at: the commit at which the branch is created; None: it exists.
    """
    common = git.repository.common_dir
    if new_at is not None:
        await asyncio.to_thread(_check_ref_directories, common, _ref(branch))
        try:
            await git.update_ref(_ref(branch), new_at, "0" * len(new_at))
        except GitError as error:
            raise bad_request(
                f"The branch {branch!r} cannot be created: {error}", _BRANCH
            ) from error
    try:
        # The branch exists by now. Killed here, the machine agent leaves a branch without a
        # worktree, which the next request for it checks out; the other order would leave a worktree
        # that git calls broken.
        await asyncio.to_thread(_write_pointers, common, top, branch, git.private / "index")
    except BaseException:
        if new_at is not None:
            await git.update_ref("-d", _ref(branch), new_at)
        raise


def _check_ref_directories(common: Path, ref: str) -> None:
    """Refuse directories of a branch that are links: a file would be written elsewhere."""
    for directory in Path(ref).parents:
        if (common / directory).is_symlink():
            raise RepositoryRefusedError(f"{common / directory} is a link")


def _write_pointers(common: Path, top: Path, branch: str, index: Path) -> None:
    own = _new_directory(common / "worktrees", top.name)
    try:
        (own / "locked").write_text("initializing\n")  # `git worktree prune` leaves it alone
        shutil.copy2(index, own / "index")
        (own / "HEAD").write_text(f"ref: {_ref(branch)}\n")
        (own / "commondir").write_text("../..\n")
        (own / "gitdir").write_bytes(os.fsencode(top / ".git") + b"\n")
        # Last: from here on the directory is a worktree. "x", because whoever works beside us may
        # have made a repository of it meanwhile.
        with (top / ".git").open("xb") as pointer:
            pointer.write(b"gitdir: " + os.fsencode(own) + b"\n")
        (own / "locked").unlink()
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


# Removing


async def _unsaved_work(git: SafeRepository) -> str | None:
    """Return what of a worktree is neither committed to a branch nor ignored; None: nothing."""
    own = git.repository.git_dir
    for name in _UNFINISHED:
        if await asyncio.to_thread(os.path.lexists, own / name):
            return "a merge, rebase or bisection in progress"
    commit = await commit_id(git, "HEAD")
    branch = await git.query("symbolic-ref", "--quiet", "HEAD", may_fail=True)
    if not branch and not await git.query("for-each-ref", "--count=1", f"--contains={commit}"):
        return "commits that are on no branch"
    if not commit:
        commit = await empty_tree_id(git)
    await copy_index(git)
    staged = await git.run("ls-files", "--stage", "-z")
    if await asyncio.to_thread(_has_submodule, git.repository, staged.data):
        return "submodules"
    for what, arguments in (
        ("staged changes", (*_NAMES, "--cached", commit, "--")),
        ("changes", (*_NAMES, "--")),
        ("untracked files", ("ls-files", "-z", "--others", "--exclude-standard", "--directory",
                             "--no-empty-directory")),
    ):  # fmt: skip
        found = await git.run(*arguments, stop=lambda data: b"\0" in data)
        if found.data:
            name = decoded(found.data.partition(b"\0")[0])
            return f"{what} that are not committed, such as {name!r}"
    return None


_NAMES: Final = (
    "diff", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv",
    "--ignore-submodules=dirty",
)  # fmt: skip


def _has_submodule(repository: Repository, staged: bytes) -> bool:
    """Return whether a submodule is checked out: its commits may be here only."""
    for entry in staged.split(b"\0"):
        mode, _, name = entry.partition(b"\t")
        if mode.startswith(b"160000 "):
            place = repository.top / os.fsdecode(name)
            if place.is_dir() and any(place.iterdir()):
                return True
    return False


def _delete(repository: Repository) -> None:
    """Delete a worktree, and what the repository has of it."""
    # The files first: what is left by a kill in between is a record without a directory, which
    # `git worktree prune` removes. A directory without its record would be taken for work.
    _delete_directory(repository.top)
    shutil.rmtree(repository.git_dir)
    with suppress(OSError):  # it has others
        repository.git_dir.parent.rmdir()


def _delete_directory(top: Path) -> None:
    shutil.rmtree(top)
    if top.parent.name.endswith(_SIBLING):
        with suppress(OSError):  # it has others
            top.parent.rmdir()
