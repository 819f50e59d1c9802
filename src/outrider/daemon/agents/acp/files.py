"""The files that an agent reads and writes through its client: only those of its directory."""

import os
from typing import Final

from acp import RequestError

from outrider.daemon import beneath
from outrider.daemon.beneath import Beneath

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of the largest file that is read or written."""


class OutsideError(RequestError):
    """A path that leads out of the session's directory."""

    def __init__(self, path: str, root: str) -> None:
        super().__init__(
            -32602,
            f"{path} is not inside the session's directory {root}: it was not touched",
            {"path": path},
        )
        self.path = path


class Files:
    """The files inside one directory."""

    def __init__(self, root: str) -> None:
        self._beneath = Beneath(root)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return a text file's contents: `limit` lines from `line` (1 is the first) on.

        Raises:
            OutsideError: it is not in the directory, symbolic links followed.
            RequestError: there is none, it is no text, or too large.
        """
        _check_absolute(path)
        try:
            with os.fdopen(self._beneath.open_file(path), "rb") as file:
                data = file.read(MAX_FILE + 1)
        except (beneath.OutsideError, OSError, ValueError) as error:
            raise self._refused(path, error) from error
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
        _check_absolute(path)
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_FILE:
            raise RequestError(-32602, f"{path} would have more than {MAX_FILE} bytes")
        try:
            self._beneath.write_file(path, data)
        except (beneath.OutsideError, OSError, ValueError) as error:
            raise self._refused(path, error) from error

    def _refused(self, path: str, error: Exception) -> RequestError:
        if isinstance(error, beneath.OutsideError):
            return OutsideError(path, str(self._beneath.root))
        if isinstance(error, FileNotFoundError):
            return RequestError.resource_not_found(path)
        if isinstance(error, OSError):
            return RequestError(-32603, f"{path}: {error.strerror or error}")
        return RequestError(-32602, f"{path!r} cannot be used: {error}")


def _check_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise RequestError(-32602, f"{path!r} is not an absolute path")
