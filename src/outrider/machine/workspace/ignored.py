"""What git ignores."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from outrider.machine.workspace.git import SafeRepository
from outrider.machine.workspace.index import copy_index

_FOUND_NOTHING: Final = 1
"""The exit status of `git check-ignore` for names of which none is excluded."""

_MAX_ARGUMENTS: Final = 200
_HERE: Final = b"./"
"""Before each name for `git check-ignore`, to which a colon would begin a pattern."""


async def ignored_names(git: SafeRepository, names: Sequence[bytes]) -> set[bytes]:
    """Return those paths that a rule excludes and that have no tracked file in them.

    The rules come first, without the index: with it, git would compare each name with each entry.
    """
    excluded = await git.run(
        "check-ignore", "--no-index", "-z", "--stdin",
        stdin=b"".join(_HERE + name + b"\0" for name in names),
        statuses=(0, _FOUND_NOTHING),
    )  # fmt: skip
    ignored = {name.removeprefix(_HERE) for name in excluded.data.split(b"\0")[:-1]}
    if not ignored:
        return ignored
    await copy_index(git)
    few = sorted(ignored) if len(ignored) <= _MAX_ARGUMENTS else []
    listed = await git.run("--literal-pathspecs", "ls-files", "-z", "--", *few)
    for path in listed.data.split(b"\0")[:-1]:
        parts = path.split(b"/")
        ignored.difference_update(b"/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return ignored


async def ignores(git: SafeRepository, directory: Path) -> bool:
    """Return whether the repository ignores a whole directory, as one of a home directory may.

    A session there is treated as if there was no repository.
    """
    top = git.repository.top
    if directory == top or not directory.is_relative_to(top):
        return False
    whole = replace(git, directory=top)
    return bool(await ignored_names(whole, [os.fsencode(directory.relative_to(top))]))
