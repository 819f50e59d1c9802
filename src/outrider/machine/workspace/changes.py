"""The uncommitted and untracked changes in a directory, as a list of files and a patch.

    git diff-files, ls-files ─ names ─▶ Stage ─ copies ─▶ git update-index ─▶ git diff --cached

git lists what may have changed by the names and the times of files. Those files are copied to a
private directory (`staging`), and added from there to the private copy of the index, which `git
diff` compares with the commit. It shows untracked files as new, finds files that were renamed, and
counts lines. It writes three parts, of which the last is read as far as needed:

    :100644 100644 1f3a… 0000… M NUL path NUL …     --raw
    3 TAB 1 TAB path NUL …                          --numstat; `-` for binary files
    NUL diff --git …                                --patch
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from outrider.contract.commands import ChangedFile, Changes, ChangeStatus
from outrider.contract.errors import ApiError, bad_request, conflict
from outrider.machine.workspace.decoding import beginning, decoded
from outrider.machine.workspace.git import (
    GitError,
    SafeRepository,
    commit_id,
    empty_tree_id,
)
from outrider.machine.workspace.index import copy_index
from outrider.machine.workspace.repository import (
    Repository,
    RepositoryRefusedError,
    find_repository,
)
from outrider.machine.workspace.staging import SUBMODULE, Candidate, Stage, Staged

MAX_FILES: Final = 2000
"""Files that are listed."""

MAX_PATCH: Final = 1024 * 1024
"""Bytes of a patch."""

START: Final = "start"
"""The `base` that names the commit at which a session began."""

_HEAD: Final = "HEAD"
_UNTRACKED_SHARE: Final = 0.6
"""The share of the time that finding untracked files may take. Without them the rest is shown."""

_STAGE_SHARE: Final = 0.6
"""The share of the time left that copying files may take. Without the others the rest is shown."""

_MAX_SUBMODULES: Final = 100
_MAX_ARGUMENTS: Final = 1024 * 1024
_CHECK_BYTES: Final = 256 * 1024
"""Output without a patch after which it is counted whether there are too many files."""

_FALSE: Final = frozenset({"false", "no", "off", "0"})
_MAX_AHEAD: Final = 100_000
_STATUSES: Final[dict[bytes, ChangeStatus]] = {b"A": "added", b"D": "deleted", b"R": "renamed"}
_NO_SUBMODULE_STATUS: Final = ("--ignore-submodules=dirty",)
_COPIES_SETTINGS: Final = {
    "core.compression": "0",
    # The copies have the modes of the index entries, and links are files with their text.
    "core.fileMode": "false",
    "core.fsync": "none",
    "core.symlinks": "false",
}
_DIFF: Final = (
    "diff", "--cached", "-z", "--raw", "--numstat", "--patch", "--relative", "-M", "-l400", "-U3",
    "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", f"-O{os.devnull}",
    "--no-color", "--no-ext-diff", "--no-textconv", *_NO_SUBMODULE_STATUS,
    "--submodule=short",
)  # fmt: skip


@dataclass(frozen=True)
class ListedChange:
    """A file that differs."""

    path: bytes
    old_path: bytes | None
    status: ChangeStatus


async def read_changes(
    git: SafeRepository,
    base: str | None,
    max_files: int = MAX_FILES,
    start: str | None = None,
) -> Changes:
    """Compare the working tree in `git.directory` with a commit.

    Args:
        start: the commit that `START` names; empty: there was none yet; None: it is not known.

    Raises:
        ApiError: 400, `base` is not a commit; 409, `START` is not known, or gone.
        GitError: git failed.
        TimeoutError: it takes longer than the deadline.
    """
    name = base or _HEAD
    # Read before the files: a commit that is made meanwhile shows as a change, and not as none.
    branch, head = await asyncio.gather(
        git.query("symbolic-ref", "--quiet", _HEAD, may_fail=True), commit_id(git, _HEAD)
    )
    commit = head if name == _HEAD else await commit_id(git, start or "" if base == START else name)
    if not commit and base == START and start != "":
        raise _unknown_start(start)
    if not commit and name not in {_HEAD, START}:
        raise bad_request("`base` is not a commit, branch or tag of this repository", "base")
    compared = commit or await empty_tree_id(git)
    await copy_index(git)
    candidates, is_listed = await _candidates(git, max_files)
    stage_time = _STAGE_SHARE * (git.deadline - asyncio.get_running_loop().time())
    # From here on git reads no file of the working tree by its name: only copies.
    copies = await _copies(git)
    (staged, submodules), ahead = await asyncio.gather(
        _stage(git, copies, candidates, max_files, stage_time), _ahead(git, commit, head)
    )
    await _add(copies, git.prefix, staged, submodules)
    untracked = {candidate.path for candidate in candidates if candidate.mode is None}
    files, patch, is_complete = await _diff(copies, compared, untracked, max_files)
    files += [
        ChangedFile(path=decoded(path), status="untracked", additions=0, deletions=0, binary=False)
        for path in staged.unreadable
    ]
    text, is_whole = beginning(patch, MAX_PATCH)
    return Changes(
        branch=decoded(branch).strip().removeprefix("refs/heads/") or None,
        base=name,
        ahead=ahead,
        files=sorted(files, key=lambda file: file.path)[:max_files],
        patch=text,
        truncated=not (is_complete and is_whole and is_listed and staged.is_complete)
        or len(files) > max_files,
    )


def _unknown_start(start: str | None) -> ApiError:
    reason = (
        "is not known: an older machine agent launched it, or its directory was in no git "
        "repository that could be read"
        if start is None
        else f"({start[:12]}) is no longer in the repository of its directory"
    )
    return conflict(
        f"The commit at which this session began {reason}. Give another `base`, such as a branch"
    )


async def _ahead(git: SafeRepository, base: str, head: str) -> int:
    """Return how many commits HEAD has that the base does not have; an empty one has none."""
    if not head or head == base:
        return 0
    commits = f"{base}..{head}" if base else head
    counted = await git.query("rev-list", "--count", f"--max-count={_MAX_AHEAD}", commits)
    return int(counted)


async def _candidates(git: SafeRepository, max_files: int) -> tuple[list[Candidate], bool]:
    """Return what may differ from the index, tracked files first, and whether that is all."""
    modified, (untracked, is_complete) = await asyncio.gather(
        git.run("diff-files", "-z", "--raw", "--relative", "--abbrev=64", *_NO_SUBMODULE_STATUS),
        _untracked(git, max_files),
    )
    tracked = _tracked(modified.data)
    return [*tracked, *map(Candidate, untracked)], is_complete and modified.is_complete


def _tracked(output: bytes) -> list[Candidate]:
    """Return the files of `diff-files --raw`; the output may be cut anywhere."""
    found: dict[bytes, Candidate] = {}
    fields = iter(output.split(b"\0")[:-1])
    for field, path in zip(fields, fields, strict=False):
        mode, _, object_id, _, status = field.removeprefix(b":").decode("ascii").split(" ")
        is_merged = path not in found and status != "U"
        found[path] = Candidate(path, mode, object_id if is_merged else None)
    return list(found.values())


async def _untracked(git: SafeRepository, max_files: int) -> tuple[list[bytes], bool]:
    loop = asyncio.get_running_loop()
    now = loop.time()
    try:
        listed = await git.run(
            "ls-files", "-z", "--others", "--exclude-standard",
            stop=lambda data: data.count(b"\0") > max_files,
            deadline=now + _UNTRACKED_SHARE * max(0.0, git.deadline - now),
        )  # fmt: skip
    except TimeoutError:
        return [], False
    names = listed.data.split(b"\0")[:-1]
    return names[:max_files], listed.is_complete and len(names) <= max_files


async def _copies(git: SafeRepository) -> SafeRepository:
    """Return the repository with an empty private directory in place of its working tree."""
    top = git.private / "copies"
    directory = top / git.directory.relative_to(git.repository.top)
    await asyncio.to_thread(directory.mkdir, parents=True)
    return replace(
        git,
        repository=replace(git.repository, top=top),
        directory=directory,
        settings=git.settings | _COPIES_SETTINGS,
    )


async def _stage(
    git: SafeRepository,
    copies: SafeRepository,
    candidates: Sequence[Candidate],
    max_files: int,
    seconds: float,
) -> tuple[Staged, dict[bytes, str]]:
    """Copy what has changed; return it, and the commits of submodules."""
    stage = Stage(
        git.directory,
        copies.directory,
        trusts_modes=git.config.get("core.filemode") not in _FALSE,
        has_links=git.config.get("core.symlinks") not in _FALSE,
    )
    # A submodule is a directory, of which `Stage` copies nothing: what differs is its commit.
    modules = {
        candidate.path
        for candidate in candidates
        if candidate.mode == SUBMODULE and _is_directory(git.directory, candidate.path)
    }
    files = [candidate for candidate in candidates if candidate.path not in modules]
    async with asyncio.timeout_at(git.deadline):
        staged = await asyncio.to_thread(stage.copy, files, max_files, seconds)
    submodules = {}
    for path in sorted(modules)[:_MAX_SUBMODULES]:
        commit = await _commit_of_submodule(git, path)
        if commit is not None:
            submodules[path] = commit
    return staged, submodules


def _is_directory(directory: Path, name: bytes) -> bool:
    path = directory / os.fsdecode(name)
    return path.is_dir() and not path.is_symlink()


async def _commit_of_submodule(git: SafeRepository, path: bytes) -> str | None:
    """Return the commit of a submodule; None if it is shown as it is in the index."""
    top = git.directory / os.fsdecode(path)
    try:
        found = await asyncio.to_thread(_repository_at, top)
    except (RepositoryRefusedError, OSError):
        return None
    if found is None:
        return None
    submodule = replace(git, repository=found, directory=top)
    commit = await submodule.query("rev-parse", "--verify", "--quiet", _HEAD, may_fail=True)
    return commit.decode("ascii", "replace").strip() or None


def _repository_at(top: Path) -> Repository | None:
    found = find_repository(top) if os.path.realpath(top) == str(top) else None
    return None if found is None or found.top != top else found


async def _add(
    copies: SafeRepository, prefix: bytes, staged: Staged, submodules: dict[bytes, str]
) -> None:
    """Add what has changed to the copy of the index."""
    kind = copies.config.get("extensions.objectformat", "sha1")
    # Entries with the id of an empty file and no times: git reads each copy to compare it.
    nothing = hashlib.new(kind, b"blob 0\0", usedforsecurity=False).hexdigest().encode()
    changed = [(b"0", nothing, path) for path in staged.removed]
    changed += [(mode.encode(), nothing, path) for path, mode in staged.copied.items()]
    changed += [(SUBMODULE.encode(), head.encode(), path) for path, head in submodules.items()]
    if not changed:
        return
    entries = b"".join(
        b"%b %b\t%b%b\0" % (mode, object_id, prefix, path) for mode, object_id, path in changed
    )
    await copies.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=entries)
    if not staged.copied:
        return
    names = b"".join(path + b"\0" for path in staged.copied)
    try:
        await copies.run("update-index", "-z", "--stdin", stdin=names)
    except GitError:
        # One file that is not in the encoding which an attribute claims ends it.
        await asyncio.to_thread(_ignore_encodings, copies.private)
        await copies.run("update-index", "-z", "--stdin", stdin=names)


def _ignore_encodings(private: Path) -> None:
    with (private / "info" / "attributes").open("ab") as attributes:
        attributes.write(b"\n* -working-tree-encoding\n")


async def _diff(
    git: SafeRepository, commit: str, untracked: set[bytes], max_files: int
) -> tuple[list[ChangedFile], bytes, bool]:
    """Return the changed files, the beginning of the patch, and whether these are all files.

    If there are too many, git is ended before it has read them all, and started again for the
    first ones only.
    """
    output = await git.run(*_DIFF, commit, "--", stop=lambda data: _is_enough(data, max_files))
    if not output.data:
        return [], b"", True
    header, separator, patch = output.data.partition(b"\0\0")
    changes = list(listed_changes(header + b"\0" if separator else output.data))
    is_complete = len(changes) <= max_files
    if not separator and not output.is_complete:
        first = changes[:max_files]
        output = await git.run(
            "--literal-pathspecs", *_DIFF, commit, "--", *_paths(first), stop=_has_patch
        )
        header, separator, patch = output.data.partition(b"\0\0")
        changes, is_complete = list(listed_changes(header + b"\0")), False
        if not separator:
            raise GitError("git diff failed: the names of the files are too long")
    counts = _counts(header + b"\0")
    files = []
    for change in changes[:max_files]:
        added, deleted = counts.get(change.path, (b"0", b"0"))
        is_binary = added == b"-"
        status = change.status
        if status == "added" and change.path in untracked:
            status = "untracked"
        files.append(
            ChangedFile(
                path=decoded(change.path),
                old_path=None if change.old_path is None else decoded(change.old_path),
                status=status,
                additions=0 if is_binary else int(added),
                deletions=0 if is_binary else int(deleted),
                binary=is_binary,
            )
        )
    return files, patch, is_complete


def _is_enough(data: bytearray, max_files: int) -> bool:
    """Return whether the patch is as long as shown, or there are too many files before it."""
    if b"\0\0" in data:
        return _has_patch(data)
    is_due = len(data) // _CHECK_BYTES != max(0, len(data) - 64 * 1024) // _CHECK_BYTES
    return is_due and sum(1 for _ in listed_changes(bytes(data))) > max_files


def _has_patch(data: bytearray) -> bool:
    """Return whether the patch is there, or as much of it as is shown."""
    begin = data.find(b"\0\0")
    return begin >= 0 and len(data) - begin > MAX_PATCH + 4


def listed_changes(output: bytes) -> Iterator[ListedChange]:
    """Return the changes of the `--raw` part; the output may be cut anywhere."""
    fields = iter(output.split(b"\0")[:-1])
    for field in fields:
        if not field.startswith(b":"):
            return  # the `--numstat` part
        status = field[field.rindex(b" ") + 1 :][:1]
        path, old_path = next(fields, None), None
        if status == b"R":
            old_path, path = path, next(fields, None)
        if path is None:
            return  # the end is missing
        yield ListedChange(path, old_path, _STATUSES.get(status, "modified"))


def _counts(header: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Return the added and deleted lines of each file from the `--numstat` part."""
    counts = {}
    fields = iter(header.split(b"\0")[:-1])
    for field in fields:
        if field.startswith(b":"):
            is_rename = field[field.rindex(b" ") + 1 :].startswith(b"R")
            for _ in range(1 + is_rename):
                next(fields, None)
            continue
        added, deleted, path = field.split(b"\t", 2)
        if not path:
            next(fields, None)
            path = next(fields, b"")
        counts[path] = (added, deleted)
    return counts


def _paths(changes: Sequence[ListedChange]) -> Iterator[bytes]:
    """Return the paths of changes, as many as fit into the arguments of a program."""
    size = 0
    for change in changes:
        for path in (change.old_path, change.path):
            if path is not None:
                size += len(path) + 9
                if size > _MAX_ARGUMENTS:
                    return
                yield path
