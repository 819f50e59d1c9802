"""Checks the directories that requests name."""

import os
from pathlib import Path

from outrider.contract.errors import bad_request


def expanded(text: str, field: str) -> Path:
    """Return a path with `~` and `~user` expanded.

    Raises:
        ApiError: 400, it is not absolute, or there is no such user; the error names `field`.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise bad_request(f"`{field}` cannot be used: {error}", field) from error
    if not path.is_absolute():
        raise bad_request(
            f"`{field}` must be an absolute path or begin with ~, not {text!r}", field
        )
    return path


def directory(text: str, field: str) -> str:
    """Return the directory that a request names, checked.

    Raises:
        ApiError: 400, there is no such directory, it may not be entered, or its name is not UTF-8.
    """
    path = expanded(text, field)
    try:
        found = path.is_dir()
    except (OSError, ValueError) as error:  # a name that is too long, NUL
        raise bad_request(f"`{field}` cannot be used: {error}", field) from error
    if not found:
        raise bad_request(f"The directory {text!r} does not exist on this machine", field)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:  # a HOME
        raise bad_request(
            f"The name of the directory {os.fsencode(path)!r} is not UTF-8, and JSON cannot have "
            f"it: name another one in `{field}`",
            field,
        ) from error
    if not os.access(path, os.X_OK):
        raise bad_request(f"The machine agent may not enter the directory {text!r}", field)
    return str(path)
