"""The files that an agent reads and writes through its client: only those of its directory."""

import os
import stat
from pathlib import Path
from typing import Final

from acp import RequestError

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of the largest file that is read or written."""


class OutsideError(RequestError):
    """A path that leads out of the session's directory."""

    def __init__(self, path: str, root: Path) -> None:
        super().__init__(
            -32602,
            f"{path} is not inside the session's directory {root}: it was not touched",
            {"path": path},
        )
        self.path = path


class Files:
    """The files inside one directory."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).resolve()

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return a text file's contents: `limit` lines from `line` (1 is the first) on.

        Raises:
            OutsideError: it is not in the directory, symbolic links followed.
            RequestError: there is none, it is no text, or too large.
        """
        inside = self._inside(path)
        try:
            with os.fdopen(_open(inside, os.O_RDONLY), "rb") as file:
                data = file.read(MAX_FILE + 1)
        except OSError as error:
            raise _failed(path, error) from error
        if len(data) > MAX_FILE:
            raise RequestError(-32602, f"{path} has more than {MAX_FILE} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(-32602, f"{path} is not a UTF-8 text file") from error
        if line is None and limit is None:
            return text
        first = max((line or 1) - 1, 0)
        lines = text.splitlines(keepends=True)
        return "".join(lines[first : None if limit is None else first + limit])

    def write(self, path: str, content: str) -> None:
        """Put `content` into a file, which is made, with its folders, where it is not there.

        Raises: as `read` does.
        """
        inside = self._inside(path)
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_FILE:
            raise RequestError(-32602, f"{path} would have more than {MAX_FILE} bytes")
        try:
            inside.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(_open(inside, os.O_WRONLY | os.O_CREAT), "wb") as file:
                file.truncate()
                file.write(data)
        except OSError as error:
            raise _failed(path, error) from error

    def _inside(self, path: str) -> Path:
        if not path.startswith("/") or "\0" in path:
            raise RequestError(-32602, f"{path!r} is not an absolute path")
        try:
            resolved = Path(path).resolve()
        except (OSError, RuntimeError) as error:
            raise RequestError(-32602, f"{path!r} cannot be used: {error}") from error
        if not resolved.is_relative_to(self._root):
            raise OutsideError(path, self._root)
        return resolved


def _open(path: Path, flags: int) -> int:
    """Open a regular file, and not what has taken its place since the path was checked."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "it is not a regular file")
    return handle


def _failed(path: str, error: OSError) -> RequestError:
    if isinstance(error, FileNotFoundError):
        return RequestError.resource_not_found(path)
    return RequestError(-32603, f"{path}: {error.strerror or error}")
