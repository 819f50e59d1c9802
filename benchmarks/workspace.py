"""How long the changes of a large repository take, compared with git by hand."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench, Sections
from benchmarks.processes import BenchmarkError
from benchmarks.report import Measure, Section, Target
from outrider.machine.workspace.workspaces import Workspaces

FILES: Final = 50_000
MODIFIED: Final = 160
UNTRACKED: Final = 40

_IN_DIRECTORY: Final = 100
_LINES: Final = 20
_STEP: Final = FILES // MODIFIED
_TARGET: Final = Target("at most", 2, of="ratio")
_ENVIRONMENT: Final = {
    "PATH": os.environ["PATH"],
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{role}_{part}": "bench@localhost"
       for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")},
}  # fmt: skip


def workspace(bench: Bench) -> Sections:
    """Measure the daemon's part of `GET …/diff`, and git's own commands for the same."""
    bench.progress(f"a repository of {FILES:,} files")
    directory = _repository(bench.stage.directory / "repository")
    runs = bench.in_turns(
        "diff", lambda: _timed(_changes, directory), lambda: _timed(_by_hand, directory)
    )
    measure = Measure("diff, beside git status and git diff", "s", float, _TARGET)
    title = f"Workspace: {FILES:,} files, {MODIFIED + UNTRACKED} changed"
    yield Section(title, [measure.of(runs)])


def _repository(directory: Path) -> Path:
    """Make a repository with changes; return its directory."""
    for number in range(FILES):
        file = directory / f"part{number // _IN_DIRECTORY}" / f"file{number}.py"
        if number % _IN_DIRECTORY == 0:
            file.parent.mkdir(parents=True)
        file.write_text(f"{number}\n" * _LINES)
    _git(directory, "init", "--quiet")
    _git(directory, "config", "maintenance.auto", "false")  # it would go on in the background
    _git(directory, "add", "--all")
    _git(directory, "commit", "--quiet", "--message", "all")
    for number in range(0, MODIFIED * _STEP, _STEP):
        (directory / f"part{number // _IN_DIRECTORY}/file{number}.py").write_text("changed\n")
    for number in range(UNTRACKED):
        (directory / f"part{number}" / "new.py").write_text("new\n" * _LINES)
    _git(directory, "status")  # the index knows the files from now on
    return directory


def _git(directory: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=directory, env=_ENVIRONMENT, check=True, stdout=subprocess.PIPE
    ).stdout


def _timed(work: Callable[[Path], None], directory: Path) -> float:
    began = time.perf_counter()
    work(directory)
    return time.perf_counter() - began


def _changes(directory: Path) -> None:
    found = asyncio.run(Workspaces(seconds=60).changes(str(directory), None))
    if len(found.files) < MODIFIED + UNTRACKED or found.truncated:
        raise BenchmarkError(f"{len(found.files)} files were found")


def _by_hand(directory: Path) -> None:
    _git(directory, "status", "--porcelain")
    _git(directory, "diff")
