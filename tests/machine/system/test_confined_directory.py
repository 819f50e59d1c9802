"""Paths inside a directory stay there, also while its directories are swapped for links."""

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError


def contents(directory: ConfinedDirectory, path: str | Path) -> str:
    with os.fdopen(directory.open_file(str(path))) as file:
        return file.read()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "root" / "folder" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    return tmp_path / "root"


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"


def test_a_file_by_each_way_to_it(root: Path) -> None:
    (root / "absolute").symlink_to(root / "folder")
    (root / "relative").symlink_to("folder/file")
    (root.parent / "alias").symlink_to(root)
    for directory in (ConfinedDirectory(root), ConfinedDirectory(root.parent / "alias")):
        for path in (
            "folder/file", "./folder/../folder/file", "absolute/file", "relative",
            str(root / "folder" / "file"), str(root.parent / "alias" / "relative"),
        ):  # fmt: skip
            assert contents(directory, path) == "inside"


def test_the_whole_file_system() -> None:
    assert contents(ConfinedDirectory("/"), __file__) == Path(__file__).read_text()


@pytest.mark.parametrize(
    "path", ["..", "../outside/file", "link", "chain", "folder/up/outside/file", "/etc/passwd"]
)
def test_what_leads_outside(root: Path, outside: Path, path: str) -> None:
    (root / "link").symlink_to(outside / "file")
    (root / "chain").symlink_to("link")
    (root / "folder" / "up").symlink_to("../..")
    directory = ConfinedDirectory(root)
    for use in (
        directory.open_file,
        directory.open_directory,
        lambda p: directory.write_file(p, b"x"),
    ):
        with pytest.raises(PathOutsideError):
            use(path)
    assert (outside / "file").read_text() == "secret"


def test_a_namesake_of_the_directory_is_outside(root: Path) -> None:
    (root.parent / "rooted").write_text("secret")
    with pytest.raises(PathOutsideError):
        ConfinedDirectory(root).open_file(str(root.parent / "rooted"))


def test_what_is_no_file(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    directory = ConfinedDirectory(root)
    for path in ("pipe", "folder", ".", "", "missing", "loop", "folder/file/below", "x" * 300):
        with pytest.raises(OSError):  # noqa: PT011  # which one depends on the system
            directory.open_file(path)
    for path in ("nul\0", "\ud800"):
        with pytest.raises(ValueError):  # noqa: PT011
            directory.open_file(path)


def test_a_directory_s_names(root: Path) -> None:
    handle = ConfinedDirectory(root).open_directory("folder")
    try:
        with os.scandir(handle) as entries:
            assert [entry.name for entry in entries] == ["file"]
    finally:
        os.close(handle)


def test_nothing_that_is_opened_is_inherited_or_left_open(root: Path) -> None:
    before = psutil.Process().num_fds()
    directory = ConfinedDirectory(root)
    for path in ("folder/file", "missing/file", "../outside", "folder/file/below"):
        try:
            handle = directory.open_file(path)
        except (OSError, PathOutsideError):
            continue
        assert not os.get_inheritable(handle)
        os.close(handle)
    directory.write_file("new/file", b"x")
    assert psutil.Process().num_fds() == before


class TestHardLinks:
    """A file with several names."""

    @pytest.fixture
    def link(self, root: Path, outside: Path) -> Path:
        (root / "link").hardlink_to(outside / "file")
        return root / "link"

    def test_is_a_file_of_the_directory(self, root: Path, link: Path) -> None:
        assert contents(ConfinedDirectory(root), link) == "secret"

    def test_writing_leaves_the_other_names_alone(
        self, root: Path, outside: Path, link: Path
    ) -> None:
        link.chmod(0o640)
        ConfinedDirectory(root).write_file("link", b"new")
        assert (outside / "file").read_text() == "secret"
        assert link.read_text() == "new"
        assert stat.S_IMODE(link.stat().st_mode) == 0o640
        assert sorted(path.name for path in root.iterdir()) == ["folder", "link"]

    def test_a_file_with_one_name_stays_the_same_file(self, root: Path) -> None:
        file = root / "folder" / "file"
        before = file.stat().st_ino
        ConfinedDirectory(root).write_file("folder/file", b"new")
        assert (file.stat().st_ino, file.read_text()) == (before, "new")


ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="swaps by Linux's renameat2")


class TestRaces:
    """Directories that are swapped for links to the outside, between check and opening."""

    @pytest.mark.parametrize("swapped", ["", "folder"], ids=["the directory", "a directory in it"])
    def test_swapped_at_the_worst_moment(
        self, root: Path, outside: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The check has passed; what it has seen is not there any more."""
        directory, victim = ConfinedDirectory(root), root / swapped
        resolve = os.path.realpath
        (outside / "folder").mkdir()
        (outside / "folder" / "file").write_text("secret")

        def resolve_then_swap(path: Path) -> str:
            resolved = resolve(path)
            if not victim.is_symlink():
                victim.rename(root.parent / "aside")
                victim.symlink_to(outside)
            return resolved

        monkeypatch.setattr(os.path, "realpath", resolve_then_swap)
        path = f"{root}/folder/file"
        with pytest.raises((PathOutsideError, OSError)):
            directory.open_file(path)
        with pytest.raises((PathOutsideError, OSError)):
            directory.write_file(path, b"overwritten")
        with pytest.raises((PathOutsideError, OSError)):
            directory.write_file(f"{root}/folder/new", b"made")
        assert (outside / "file").read_text() == "secret"
        assert (outside / "folder" / "file").read_text() == "secret"
        assert not list(outside.rglob("new"))

    @ONLY_LINUX
    def test_reading_while_another_process_swaps(self, root: Path) -> None:
        directory = ConfinedDirectory(root)
        seen = outcomes(root, lambda: contents(directory, root / "folder" / "file"))
        assert seen.keys() <= {"inside", "outside", "failed"}
        assert seen["inside"]
        assert seen["outside"]

    @ONLY_LINUX
    def test_writing_while_another_process_swaps(self, root: Path, outside: Path) -> None:
        directory = ConfinedDirectory(root)

        def write() -> str:
            directory.write_file(str(root / "folder" / "file"), b"written")
            directory.write_file(str(root / "folder" / "new" / "file"), b"written")
            return "inside"

        seen = outcomes(root, write)
        assert seen["inside"]
        assert seen["outside"]
        assert [path.name for path in outside.iterdir()] == ["file"]
        assert (outside / "file").read_text() == "secret"


SWAP = """
import ctypes, os, sys
folder, link = (os.fsencode(path) for path in sys.argv[1:])
exchange = ctypes.CDLL(None, use_errno=True).renameat2
print("ready", flush=True)
while exchange(-100, folder, -100, link, 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
    pass
sys.exit(os.strerror(ctypes.get_errno()))
"""
"""A directory that is by turns itself and a link, and never missing."""


@contextmanager
def swapping(root: Path) -> Iterator[None]:
    """Have another process swap `folder` while the block runs."""
    link = root.parent / "link"
    link.symlink_to(root.parent / "outside")
    with subprocess.Popen(
        [sys.executable, "-c", SWAP, root / "folder", link], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def outcomes(root: Path, attempt: Callable[[], str]) -> Counter[str]:
    """Return how attempts ended while the directory was swapped: until each way was seen often."""
    seen: Counter[str] = Counter()
    with swapping(root):
        for _ in range(100_000):
            try:
                seen[attempt()] += 1
            except PathOutsideError:
                seen["outside"] += 1
            except OSError:
                seen["failed"] += 1
            if min(seen["inside"], seen["outside"]) >= 200:
                break
    return seen
