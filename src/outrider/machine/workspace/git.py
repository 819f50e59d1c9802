"""Runs git's programs on a repository that may be hostile.

Three kinds of programs:

- `ask` reads refs and the configuration, in the repository's own git directory. git starts no
  program for that, whatever the configuration says.
- `work` reads or writes the working tree or an index, where git would start filters, hooks and
  `core.fsmonitor`. It runs in a private git directory:

      private/config        our own settings, and harmless ones of the repository (`_COPIED`)
      private/info/exclude  copied
      private/index         copied on demand, and checked (`index`); GIT_INDEX_FILE
      private/objects       new objects; it borrows the repository's own, and no others
      the repository's own working tree (GIT_WORK_TREE), or copies of files (`staging`)

  A list of what is taken over, and not of what is switched off: a program that a later git may
  learn to start is not started either, and nothing depends on the configuration staying as it was
  checked.

- `update_ref` writes a branch, for which git would start hooks. It runs in another private git
  directory, whose `refs` and `packed-refs` are links to those of the repository.

None reads the configuration of the user or the system, except for the keys in `_COPIED_FROM_USER`.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Final

import structlog

from outrider.contract.errors import ApiError, OutriderError, conflict
from outrider.machine.system import child
from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError
from outrider.machine.workspace.repository import (
    Repository,
    RepositoryRefusedError,
    check_own_files,
)

_log = structlog.get_logger(__name__)

MAX_OUTPUT: Final = 32 * 1024 * 1024
"""Bytes of output that are read of a program."""

_CHUNK: Final = 64 * 1024
_MAX_STDERR: Final = 400
_MAX_COPIED: Final = 1024 * 1024
_MAX_MEMORY: Final = 1024 * 1024 * 1024
"""Bytes of memory that a program may allocate, besides the files that it maps (on Linux): an index
or an object may claim any size."""

# Not `prlimit` of the started program: it may have allocated it by then.
_LIMITED: Final = (
    "/bin/sh", "-c", 'ulimit -d "$0" 2>/dev/null; exec "$@"', str(_MAX_MEMORY // 1024),
)  # fmt: skip

_COPIED: Final = frozenset(
    {
        "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
        "core.autocrlf", "core.eol", "core.trustctime", "core.checkstat", "core.sparsecheckout",
        "core.sparsecheckoutcone", "extensions.objectformat",
    }
)  # fmt: skip
_COPIED_FROM_USER: Final = frozenset({"core.autocrlf", "core.eol"})
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""The values that are taken over: booleans and words."""

_SETTINGS: Final = {
    "core.commitGraph": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.multiPackIndex": "false",
    "core.pager": "cat",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.quotePath": "false",
    "core.sshCommand": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "core.attributesFile": os.devnull,
    # Larger files count as binary: git reads both sides of a text file into memory.
    "core.bigFileThreshold": "32m",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
}


class GitError(OutriderError):
    """git has failed; the text is what it said."""


@dataclass(frozen=True)
class Output:
    """What a program wrote.

    Attributes:
        is_complete: false if it was stopped before its end, because `stop` said so.
    """

    data: bytes
    is_complete: bool = True


def _never(_: bytearray) -> bool:
    return False


@dataclass
class SafeRepository:
    """A repository, and how to run git on it. Made by `opened`.

    Args:
        directory: where programs run; paths in their output are relative to it.
        deadline: event loop time at which every program is killed.
        settings: what no configuration can change.
        config: what is taken over of the repository's and the user's configuration.
    """

    repository: Repository
    directory: Path
    private: Path
    deadline: float
    settings: dict[str, str] = field(default_factory=lambda: dict(_SETTINGS))
    config: dict[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> bytes:
        """The directory's path inside the working tree, with a slash at its end."""
        inner = os.fsencode(self.directory.relative_to(self.repository.top))
        return b"" if inner == b"." else inner + b"/"

    async def query(self, *arguments: str, may_fail: bool = False, user: bool = False) -> bytes:
        """Run a program that only reads refs or the configuration.

        Args:
            may_fail: return nothing if it fails, instead of raising.
            user: read the configuration of the user and the system, and not the repository's.

        Raises:
            GitError: it failed.
            TimeoutError: it takes longer than the deadline.
        """
        environment = self._environment()
        if user:
            for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"):
                del environment[name]
            environment |= {n: os.environ[n] for n in _USER if n in os.environ}
            environment["GIT_DIR"] = str(self.private)
        else:
            environment["GIT_DIR"] = str(self.repository.git_dir)
            environment["GIT_COMMON_DIR"] = str(self.repository.common_dir)
            environment["GIT_WORK_TREE"] = str(self.repository.top)
        try:
            return (await self._run(arguments, environment)).data
        except GitError:
            if may_fail:
                return b""
            raise

    async def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        statuses: Sequence[int] = (0,),
        stop: Callable[[bytearray], bool] = _never,
        deadline: float | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> Output:
        """Run a program on the working tree, in the private git directory.

        Args:
            statuses: exit statuses of success.
            stop: called with all output so far; true ends the program.
            max_output: bytes of output after which the program is ended.

        Raises:
            GitError: it failed.
            TimeoutError: it takes longer than the deadline.
        """
        environment = self._environment()
        environment["GIT_DIR"] = environment["GIT_COMMON_DIR"] = str(self.private)
        environment["GIT_WORK_TREE"] = str(self.repository.top)
        environment["GIT_INDEX_FILE"] = str(self.private / "index")
        return await self._run(
            arguments,
            environment,
            stdin=stdin,
            statuses=statuses,
            stop=stop,
            deadline=deadline,
            max_output=max_output,
        )

    async def update_ref(self, *arguments: str) -> None:
        """Run `git update-ref` with these arguments on the repository's refs.

        Raises:
            GitError: it failed, or the refs are not stored as files.
            TimeoutError: it takes longer than the deadline.
        """
        common = self.repository.common_dir
        place = await asyncio.to_thread(_link_refs, self.private, common)
        environment = self._environment()
        environment["GIT_DIR"] = environment["GIT_COMMON_DIR"] = str(place)
        await self._run(["update-ref", *arguments], environment)

    async def _run(
        self,
        arguments: Sequence[str | bytes],
        environment: dict[str, str],
        *,
        stdin: bytes = b"",
        statuses: Sequence[int] = (0,),
        stop: Callable[[bytearray], bool] = _never,
        deadline: float | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> Output:
        # Files, not pipes: git would wait for somebody to read its warnings while its output is
        # read here, and for its input to be written.
        with _temporary(stdin) as given, _temporary() as errors:
            process = await child.start(
                [*_LIMITED, "git", *(os.fsdecode(argument) for argument in arguments)],
                cwd=str(self.directory),
                env=environment,
                stdin=given,
                stdout=PIPE,
                stderr=errors,
                limit=_CHUNK,
            )
            assert process.stdout is not None
            data, ended = bytearray(), False
            try:
                async with asyncio.timeout_at(deadline or self.deadline):
                    while chunk := await process.stdout.read(_CHUNK):
                        data += chunk
                        # Not an error: the caller has as much as it shows.
                        if stop(data) or len(data) > max_output:
                            return Output(bytes(data), is_complete=False)
                    status = await process.wait()
                    ended = True
            finally:
                if not ended:
                    # git may have started others (`git diff` a pager, an unpacking child): all of
                    # them end.
                    await process.group.kill()
                process.close()
            if status not in statuses:
                message = os.pread(errors, _MAX_STDERR, 0).decode("utf-8", "replace").strip()
                raise GitError(f"git {os.fsdecode(arguments[0])} failed ({status}): {message}")
            return Output(bytes(data))

    def _environment(self) -> dict[str, str]:
        environment = _ENVIRONMENT | {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.private),
            "GIT_OBJECT_DIRECTORY": str(self.private / "objects"),
            "GIT_CONFIG_COUNT": str(len(self.settings)),
        }
        for number, (name, value) in enumerate(self.settings.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = name
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment


_USER: Final = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")


@asynccontextmanager
async def bounded(path: str, seconds: float, failure: str) -> AsyncIterator[float]:
    """Yield the deadline of what git does in a directory, and translate what goes wrong.

    Args:
        failure: the beginning of the error's sentence.

    Raises:
        ApiError: 409, git fails or the repository is refused; 504, git takes too long.
    """
    try:
        yield asyncio.get_running_loop().time() + seconds
    except TimeoutError as error:
        raise ApiError(504, f"git did not finish within {seconds:g} s in {path}") from error
    except (GitError, RepositoryRefusedError, OSError) as error:
        _log.warning("git failed", path=path, error=str(error))
        raise conflict(f"{failure}: {error}") from error


@asynccontextmanager
async def opened(
    repository: Repository, directory: Path, deadline: float
) -> AsyncIterator[SafeRepository]:
    """Open a repository for `directory`, which is inside its working tree.

    Raises:
        ApiError: 409, git is not installed, or the repository belongs to another user.
        GitError: git cannot read it.
        RepositoryRefusedError: it leads elsewhere by now; raised at the end.
        TimeoutError: not before the deadline.
    """
    if shutil.which("git") is None:
        raise conflict("git is not installed on this machine, on the daemon's PATH")
    private = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="outrider-git-"))
    try:
        await asyncio.to_thread(_prepare, private, repository)
        git = SafeRepository(repository, directory, private, deadline)
        user = list(_entries(await git.query("config", "--list", "-z", user=True)))
        # As git does it itself (`safe.directory`): the owner of a repository could otherwise choose
        # what is read as this user.
        if foreign := await asyncio.to_thread(repository.foreign_paths):
            _check_trusted(repository, foreign[0], user)
        _configure(git, user, list(_entries(await git.query("config", "--list", "-z"))))
        yield git
        # git may have followed a link that was made after the first check: show nothing then.
        await asyncio.to_thread(check_own_files, repository)
    finally:
        await asyncio.to_thread(shutil.rmtree, private, ignore_errors=True)


async def commit_id(git: SafeRepository, name: str) -> str:
    """Return the id of a commit; empty if there is no such commit."""
    found = await git.query(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", may_fail=True
    )
    return found.decode("ascii", "replace").strip()


async def empty_tree_id(git: SafeRepository) -> str:
    """Return the id of a tree without files: what to compare with before the first commit."""
    return (await git.run("hash-object", "-t", "tree", "--stdin")).data.decode().strip()


def _prepare(private: Path, repository: Repository) -> None:
    """Make a git directory without a commit."""
    (private / "refs").mkdir()
    (private / "info").mkdir()
    (private / "HEAD").write_text("ref: refs/heads/none\n")
    (private / "config").touch()
    (private / "objects" / "info").mkdir(parents=True)
    objects = os.fsencode(repository.common_dir / "objects")
    (private / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
    for name in ("exclude", "attributes"):
        try:
            handle = ConfinedDirectory(repository.common_dir).open_file(f"info/{name}")
        except (PathOutsideError, OSError):
            continue
        with os.fdopen(handle, "rb") as file:
            (private / "info" / name).write_bytes(file.read(_MAX_COPIED))


def _link_refs(private: Path, common: Path) -> Path:
    """Make a git directory with the refs of another one, if it does not exist yet."""
    place = private / "with-refs"
    if os.path.lexists(common / "reftable"):
        raise GitError("its branches are stored in a reftable, which is not supported")
    if not place.exists():
        place.mkdir()
        shutil.copyfile(private / "HEAD", place / "HEAD")
        shutil.copyfile(private / "config", place / "config")
        for name in ("refs", "packed-refs"):
            (place / name).symlink_to(common / name)
    return place


def _entries(listed: bytes) -> Iterator[tuple[str, str]]:
    """Return the keys and values of `git config --list -z`; a key alone is true."""
    for entry in listed.split(b"\0")[:-1]:
        name, separator, value = os.fsdecode(entry).partition("\n")
        yield name, value if separator else "true"


def _configure(
    git: SafeRepository, user: list[tuple[str, str]], own: list[tuple[str, str]]
) -> None:
    """Write the private configuration."""
    config = {name: value for name, value in user if name in _COPIED_FROM_USER}
    config |= {name: value for name, value in own if name in _COPIED}
    config = {name: value for name, value in config.items() if _PLAIN.fullmatch(value)}
    config["core.repositoryformatversion"] = "1" if "extensions.objectformat" in config else "0"
    config["core.bare"] = "false"
    git.config.update(config)
    lines = [f"[{section}]\n\t{key} = {value}\n" for (section, key), value in _split(config)]
    (git.private / "config").write_text("".join(lines))
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    excludes = dict(user).get("core.excludesfile") or directory / "git" / "ignore"
    with suppress(RuntimeError):  # there is no home directory
        git.settings["core.excludesFile"] = str(Path(excludes).expanduser())


def _split(settings: dict[str, str]) -> Iterator[tuple[list[str], str]]:
    return ((name.split("."), value) for name, value in settings.items())


def _check_trusted(repository: Repository, foreign: Path, user: list[tuple[str, str]]) -> None:
    """Refuse a repository of another user unless the git configuration of this user trusts it.

    Raises:
        ApiError: 409.
    """
    trusted: list[str] = []
    for name, value in user:
        if name == "safe.directory":
            trusted = [*trusted, value] if value else []
    if "*" in trusted or str(repository.top) in trusted:
        return
    raise ApiError(
        409,
        f"{foreign} belongs to another user, whose repository git does not trust: on the machine, "
        f"run `git config --global --add safe.directory {repository.top}` if you do",
    )


@contextmanager
def _temporary(data: bytes = b"") -> Iterator[int]:
    """Open a nameless file with `data`: programs read it and write to it without a deadlock."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        yield file.fileno()
