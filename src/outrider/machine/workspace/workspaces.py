"""Reads the directories of sessions: a few at a time, each within a few seconds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import structlog

from outrider.contract.commands import Changes, Directory, FileContents
from outrider.contract.errors import ApiError, ErrorCode, conflict
from outrider.machine.workspace.changes import MAX_FILES, read_changes
from outrider.machine.workspace.files import read_files
from outrider.machine.workspace.git import SafeRepository, bounded, commit_id, opened
from outrider.machine.workspace.ignored import ignores
from outrider.machine.workspace.repository import find_repository

_log = structlog.get_logger(__name__)

SECONDS: Final = 5.0
"""How long git may take for one request."""

_AT_ONCE: Final = 8
"""Sessions whose directories are read at the same time; others wait, within the time of their
command.
"""

_MAX_WAITING: Final = 16
"""Requests of one session that may wait: they are served one after the other."""


class Workspaces:
    """Reads the directories of sessions.

    Args:
        seconds: how long git may take for one request.
        max_files: the files of changes, and the entries of a directory, that are listed.
    """

    def __init__(self, seconds: float = SECONDS, max_files: int = MAX_FILES) -> None:
        self._seconds = seconds
        self._max_files = max_files
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def head(self, path: str) -> str | None:
        """Return the commit that is checked out in a directory.

        It is empty before the first commit, and None if the directory is in no repository, or in
        one that cannot be read; that is logged.
        """
        try:
            async with self._repository(path) as git:
                return await commit_id(git, "HEAD")
        except ApiError as error:
            if error.code != ErrorCode.NO_REPOSITORY:
                _log.warning("commit not read", path=path, error=error.message)
            return None

    async def changes(
        self,
        path: str,
        base: str | None,
        *,
        start: str | None = None,
        real_path: str | None = None,
    ) -> Changes:
        """Return the uncommitted and untracked changes in a directory, compared with `base`.

        Args:
            start: the commit that the base `start` names, as `head` returned it.
            real_path: where `path` led when the session was launched; None: it is not known.

        Raises:
            ApiError: 409, it is in no repository (`NO_REPOSITORY`), git cannot read it, it leads
                elsewhere by now, or `start` is not known; 400, `base` is not a commit; 504, git
                takes too long.
        """
        async with self._repository(path, real_path) as git:
            return await read_changes(git, base, self._max_files, start)

    async def files(
        self, path: str, inner: str | None, *, real_path: str | None = None
    ) -> Directory | FileContents:
        """Return a file or a directory inside the directory `path`, unless git ignores it.

        Raises:
            ApiError: 404, there is no such file, it is outside, or ignored; 409, git cannot read
                the repository, or `path` leads elsewhere by now; 504, git takes too long.
        """
        async with self._limited(path) as deadline:
            directory = await asyncio.to_thread(_existing, path, real_path)
            return await read_files(directory, inner or "", deadline, self._max_files)

    @asynccontextmanager
    async def _repository(
        self, path: str, real_path: str | None = None
    ) -> AsyncIterator[SafeRepository]:
        """Open the repository around a directory, unless it ignores that directory."""
        async with self._limited(path) as deadline:
            directory = await asyncio.to_thread(_existing, path, real_path)
            repository = await asyncio.to_thread(find_repository, directory)
            if repository is None:
                raise _no_repository(path)
            async with opened(repository, directory, deadline) as git:
                if await ignores(git, directory):
                    raise _no_repository(path)
                yield git

    @asynccontextmanager
    async def _limited(self, path: str) -> AsyncIterator[float]:
        """Wait for a place; yield the deadline, and translate what goes wrong.

        A session has one place, so that a repository on which git hangs holds up no other one.
        """
        if self._waiting[path] > _MAX_WAITING:
            raise ApiError(
                503, f"{_MAX_WAITING} requests wait for the directory {path}: try again later"
            )
        failure = f"The repository of {path} cannot be read"
        lock = self._locks.setdefault(path, asyncio.Lock())
        self._waiting[path] += 1
        try:
            async with lock, self._places, bounded(path, self._seconds, failure) as deadline:
                yield deadline
        finally:
            self._waiting[path] -= 1
            if not self._waiting[path]:
                del self._waiting[path]


def _no_repository(path: str) -> ApiError:
    return conflict(
        f"The session's directory {path} is in no git repository: there is nothing to compare with",
        ErrorCode.NO_REPOSITORY,
    )


def _existing(path: str, real_path: str | None) -> Path:
    """Return a directory free of links.

    Raises:
        ApiError: 409, it does not exist, or a link has taken its place.
    """
    try:
        directory = Path(path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise conflict(
            f"The session's directory {path} does not exist any more", ErrorCode.NO_REPOSITORY
        ) from error
    if not directory.is_dir():
        raise conflict(f"{path} is not a directory any more", ErrorCode.NO_REPOSITORY)
    if real_path is not None and directory != Path(real_path):
        raise conflict(
            f"The session's directory {path} leads to {directory} by now, and led to {real_path} "
            "when the session was launched: it is not read"
        )
    return directory
