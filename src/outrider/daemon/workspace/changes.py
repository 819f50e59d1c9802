"""The uncommitted and untracked changes in a directory, as a list of files and a patch.

Untracked files are added to the copy of the index, as empty files. One `git diff` of the working
tree then shows them as new, finds files that were renamed, and counts lines. It writes three parts,
of which the last is read as far as needed:

    :100644 100644 1f3a… 0000… M NUL path NUL …     --raw
    3 TAB 1 TAB path NUL …                          --numstat; `-` for binary files
    NUL diff --git …                                --patch
"""

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outrider.contract.commands import ChangedFile, Changes, ChangeStatus
from outrider.contract.errors import ApiError, bad_request, conflict
from outrider.daemon.workspace.decoding import beginning, decoded
from outrider.daemon.workspace.git import (
    GitError,
    SafeRepository,
    commit_id,
    copy_index,
    empty_tree_id,
)

MAX_FILES: Final = 2000
"""Files that are listed."""

MAX_PATCH: Final = 1024 * 1024
"""Bytes of a patch."""

START: Final = "start"
"""The `base` that names the commit at which a session began."""

_HEAD: Final = "HEAD"
_UNTRACKED_SHARE: Final = 0.6
"""The share of the time that finding untracked files may take. Without them the rest is shown."""

_MAX_ARGUMENTS: Final = 1024 * 1024
_CHECK_BYTES: Final = 256 * 1024
"""Output without a patch after which it is counted whether there are too many files."""

_SPECIAL_FILE: Final = "unsupported file type"
_MAX_AHEAD: Final = 100_000
_STATUSES: Final[dict[bytes, ChangeStatus]] = {b"A": "added", b"D": "deleted", b"R": "renamed"}
_DIFF: Final = (
    "diff", "-z", "--raw", "--numstat", "--patch", "--relative", "-M", "-l400", "-U3",
    "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", f"-O{os.devnull}",
    "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty",
    "--submodule=short",
)  # fmt: skip


@dataclass(frozen=True)
class ListedChange:
    """A file that differs."""

    path: bytes
    old_path: bytes | None
    status: ChangeStatus


@dataclass(frozen=True)
class _Untracked:
    """Untracked files; those that are `listed` only, such as other repositories, are not diffed."""

    diffed: dict[bytes, str]
    listed: list[bytes]
    is_complete: bool = True


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
    branch, head, commit = await asyncio.gather(
        git.query("symbolic-ref", "--quiet", _HEAD, may_fail=True),
        commit_id(git, _HEAD),
        commit_id(git, name if base != START else start or ""),
    )
    if not commit and base == START and start != "":
        raise _unknown_start(start)
    if not commit and name not in {_HEAD, START}:
        raise bad_request("`base` is not a commit, branch or tag of this repository", "base")
    compared = commit or await empty_tree_id(git)
    await copy_index(git)
    untracked, ahead = await asyncio.gather(_untracked(git, max_files), _ahead(git, commit, head))
    if untracked.diffed:
        await _add(git, untracked.diffed)
    try:
        files, patch, is_complete = await _diff(git, compared, untracked, max_files)
    except GitError as error:
        if _SPECIAL_FILE not in str(error):
            raise
        await _remove_special_files(git)
        files, patch, is_complete = await _diff(git, compared, untracked, max_files)
    files += [
        ChangedFile(path=decoded(path), status="untracked", additions=0, deletions=0, binary=False)
        for path in untracked.listed
    ]
    text, is_whole = beginning(patch, MAX_PATCH)
    return Changes(
        branch=decoded(branch).strip().removeprefix("refs/heads/") or None,
        base=name,
        ahead=ahead,
        files=sorted(files, key=lambda file: file.path)[:max_files],
        patch=text,
        truncated=not (is_complete and is_whole and untracked.is_complete)
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


async def _untracked(git: SafeRepository, max_files: int) -> _Untracked:
    loop = asyncio.get_running_loop()
    now = loop.time()
    try:
        listed = await git.run(
            "ls-files", "-z", "--others", "--exclude-standard",
            stop=lambda data: data.count(b"\0") > max_files,
            deadline=now + _UNTRACKED_SHARE * max(0.0, git.deadline - now),
        )  # fmt: skip
    except TimeoutError:
        return _Untracked({}, [], is_complete=False)
    names = listed.data.split(b"\0")[:-1]
    modes = await asyncio.to_thread(_modes, git.directory, names[:max_files])
    return _Untracked(
        {name: mode for name, mode in modes.items() if mode is not None},
        [name for name, mode in modes.items() if mode is None],
        is_complete=listed.is_complete and len(names) <= max_files,
    )


def _modes(directory: Path, names: Sequence[bytes]) -> dict[bytes, str | None]:
    """Return git's mode of each file; None for what git cannot read (or another repository)."""
    modes: dict[bytes, str | None] = {}
    for name in names:
        path = directory / os.fsdecode(name)
        with suppress(OSError):  # it has been removed in the meantime
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                modes[name] = "120000"
            elif stat.S_ISREG(mode) and os.access(path, os.R_OK):
                modes[name] = "100755" if mode & stat.S_IXUSR else "100644"
            else:
                modes[name] = None
    return modes


async def _add(git: SafeRepository, modes: dict[bytes, str]) -> None:
    """Add files to the copy of the index, without their contents."""
    nothing = (await git.run("hash-object", "--stdin")).data.strip()
    entries = b"".join(
        b"%b %b 0\t%b%b\0" % (mode.encode(), nothing, git.prefix, name)
        for name, mode in modes.items()
    )
    await git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=entries)


async def _remove_special_files(git: SafeRepository) -> None:
    """Remove tracked files that are named pipes and such now from the copy of the index.

    git cannot compare those, and shows nothing at all then. Now it shows them as deleted.
    """
    modified = (await git.run("ls-files", "-z", "--modified")).data.split(b"\0")[:-1]
    special = await asyncio.to_thread(lambda: list(_special(git.directory, modified)))
    names = b"".join(name + b"\0" for name in special)
    await git.run("update-index", "--force-remove", "-z", "--stdin", stdin=names)


def _special(directory: Path, names: Sequence[bytes]) -> Iterator[bytes]:
    for name in names:
        with suppress(OSError):  # it has been removed in the meantime
            mode = (directory / os.fsdecode(name)).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                yield name


async def _diff(
    git: SafeRepository, commit: str, untracked: _Untracked, max_files: int
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
        if status == "added" and change.path in untracked.diffed:
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
