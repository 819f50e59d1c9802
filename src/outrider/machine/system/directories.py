"""Validation of the directories that requests name, and of those of earlier sessions."""

import os
from pathlib import Path

from outrider.contract.errors import bad_request


def expanded(text: str, field: str) -> Path:
    """Return a path with `~` and `~user` expanded.

    Raises:
        ApiError: 400, the path is not absolute or the user does not exist; it names `field`.
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
    """Return the path of an existing directory that the machine agent may enter.

    Raises:
        ApiError: 400, the directory does not exist, may not be entered, or is not UTF-8.
    """
    path = expanded(text, field)
    try:
        found = path.is_dir()
    except (OSError, ValueError) as error:  # the name is too long or contains NUL
        raise bad_request(f"`{field}` cannot be used: {error}", field) from error
    if not found:
        raise bad_request(
            f"The directory {text!r} does not exist on this machine: create it, or choose another "
            f"one in `{field}`",
            field,
        )
    try:
        str(path).encode()
    except UnicodeEncodeError as error:  # from $HOME, after ~ was expanded
        raise bad_request(
            f"The name of the directory {os.fsencode(path)!r} is not UTF-8, which JSON cannot "
            f"represent: choose another one in `{field}`",
            field,
        ) from error
    if not os.access(path, os.X_OK):
        raise bad_request(f"The machine agent may not enter the directory {text!r}", field)
    return str(path)


def why_unusable(path: str, real_path: str | None) -> str | None:
    """Return why the directory of an earlier session must not be used; None if it may.

    Args:
        real_path: where `path` led when the session was launched; None: it is not known.
    """
    if not Path(path).is_dir():
        return f"The directory {path} is no longer there"
    found = os.path.realpath(path)
    if real_path not in {None, found}:
        return f"The directory {path} leads to another one, {found}"
    return None
