"""The files in the directory of a session: what is listed and read, and what does not exist."""

import os
import socket
from pathlib import Path

import pytest

from outrider.contract.commands import Directory, FileContents
from outrider.contract.errors import ApiError
from outrider.machine.workspace.files import MAX_TEXT
from outrider.machine.workspace.workspaces import Workspaces
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.waiting import TIMEOUT


async def read(workspaces: Workspaces, path: Path, inner: str) -> FileContents:
    found = await workspaces.files(str(path), inner)
    assert isinstance(found, FileContents)
    return found


async def listed(workspaces: Workspaces, path: Path, inner: str | None = None) -> Directory:
    found = await workspaces.files(str(path), inner)
    assert isinstance(found, Directory)
    return found


async def names(workspaces: Workspaces, path: Path, inner: str | None = None) -> list[str]:
    return [entry.name for entry in (await listed(workspaces, path, inner)).entries]


async def status(workspaces: Workspaces, path: Path, inner: str) -> int:
    with pytest.raises(ApiError) as error:
        await workspaces.files(str(path), inner)
    return error.value.status


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    return tmp_path / "outside"


class TestDirectories:
    async def test_entries(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.write("inner/file", "x")
        repo.write("-o", "xy")
        (repo.path / "link").symlink_to("inner/file")
        for inner in (None, "", ".", "inner/.."):
            found = await listed(workspaces, repo.path, inner)
            assert (found.path, found.truncated) == ("", False)
            assert [(entry.name, entry.type, entry.size) for entry in found.entries] == [
                ("-o", "file", 2),
                ("inner", "dir", 0),
                ("link", "link", 0),
                ("text", "file", 8),
            ]
        assert await names(workspaces, repo.path, "inner") == ["file"]
        assert (await listed(workspaces, repo.path, "inner/")).path == "inner"

    async def test_special_files_are_left_out(self, repo: Repo, workspaces: Workspaces) -> None:
        os.mkfifo(repo.path / "fifo")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(repo.path / "socket"))
            assert await names(workspaces, repo.path) == ["text"]
        for name in ("fifo", "socket"):
            assert await status(workspaces, repo.path, name) == 404

    async def test_a_name_that_is_not_utf_8(self, repo: Repo, workspaces: Workspaces) -> None:
        (repo.path / os.fsdecode(b"caf\xe9")).write_text("x")
        repo.write(":(exclude)x", "x")
        repo.write("a\nb", "x")
        assert await names(workspaces, repo.path) == [
            ":(exclude)x", "a\nb", "caf\N{REPLACEMENT CHARACTER}", "text",
        ]  # fmt: skip
        for name in (":(exclude)x", "a\nb"):
            assert (await read(workspaces, repo.path, name)).text == "x"

    async def test_a_directory_of_many(self, repo: Repo) -> None:
        for number in range(12):
            repo.write(f"many/{number:05}", "")
        found = await listed(Workspaces(TIMEOUT, max_files=10), repo.path, "many")
        assert (len(found.entries), found.truncated) == (10, True)
        assert found.entries[0].name == "00000"


class TestContents:
    async def test_a_file(self, repo: Repo, workspaces: Workspaces) -> None:
        found = await read(workspaces, repo.path, "text")
        assert (found.path, found.size, found.text) == ("text", 8, "one\ntwo\n")
        assert (found.truncated, found.binary) == (False, False)

    async def test_an_absolute_path(self, repo: Repo, workspaces: Workspaces) -> None:
        found = await read(workspaces, repo.path, str(repo.path / "text"))
        assert (found.path, found.text) == ("text", "one\ntwo\n")

    async def test_a_long_one_is_cut_between_characters(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.write("whole", "x" * MAX_TEXT)
        repo.write("long", "x" + "€" * MAX_TEXT)
        found = await read(workspaces, repo.path, "whole")
        assert (len(found.text or ""), found.truncated) == (MAX_TEXT, False)
        found = await read(workspaces, repo.path, "long")
        assert found.text == "x" + "€" * ((MAX_TEXT - 1) // 3)
        assert (found.size, found.truncated) == (1 + 3 * MAX_TEXT, True)

    async def test_a_binary_file_is_not_sent(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.write("image", b"\x89PNG\0")
        found = await read(workspaces, repo.path, "image")
        assert (found.size, found.text, found.binary, found.truncated) == (5, None, True, False)

    async def test_text_that_is_not_utf_8(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.write("latin", b"caf\xe9")
        assert (await read(workspaces, repo.path, "latin")).text == "caf\N{REPLACEMENT CHARACTER}"


class TestWhatDoesNotExist:
    @pytest.mark.parametrize(
        "inner",
        ["gone", "text/x", "..", "../outside/file", "/etc/passwd", "file link", "dir link/file",
         "dir link", "inner/up/outside/file", "~", "x" * 4096, "a\0b"],
    )  # fmt: skip
    async def test_outside(
        self, repo: Repo, workspaces: Workspaces, outside: Path, inner: str
    ) -> None:
        (repo.path / "file link").symlink_to(outside / "file")
        (repo.path / "dir link").symlink_to(outside)
        (repo.path / "inner").mkdir()
        (repo.path / "inner" / "up").symlink_to("../..")
        assert await status(workspaces, repo.path, inner) == 404

    @pytest.mark.parametrize("inner", [".git", ".git/config", "inner/.GIT", "link/config"])
    async def test_what_belongs_to_git(
        self, repo: Repo, workspaces: Workspaces, inner: str
    ) -> None:
        repo.write("inner/.GIT", "x")
        (repo.path / "link").symlink_to(".git")
        assert await status(workspaces, repo.path, inner) == 404

    async def test_what_is_ignored(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.commit(**{".gitignore": "*.key\nbuild/\nkept/\n"})
        for name in ("a.key", "build/x", "kept/tracked", "kept/other", "[a].key", ":x.key"):
            repo.write(name, "x")
        repo.git("add", "--force", "kept/tracked")
        (repo.path / "link").symlink_to("a.key")
        assert await names(workspaces, repo.path) == [".gitignore", "kept", "link", "text"]
        assert await names(workspaces, repo.path, "kept") == ["tracked"]
        assert (await read(workspaces, repo.path, "kept/tracked")).text == "x"
        for inner in ("a.key", "build", "build/x", "kept/other", "link", "[a].key", ":x.key"):
            assert await status(workspaces, repo.path, inner) == 404

    async def test_what_an_inner_or_an_outer_repository_ignores(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.commit(**{".gitignore": "vendor/\n"})
        for place in ("vendor/lib", "lib"):
            inner = repository(repo.path / place)
            inner.commit(**{".gitignore": ".env\n", "file": "x"})
            inner.write(".env", "TOKEN=x")
        assert await names(workspaces, repo.path) == [".gitignore", "lib", "text"]
        assert await names(workspaces, repo.path, "lib") == [".gitignore", "file"]
        for path in ("lib/.env", "vendor/lib/file", "vendor/lib", "vendor"):
            assert await status(workspaces, repo.path, path) == 404


class TestPlaces:
    async def test_no_repository(self, workspaces: Workspaces, outside: Path) -> None:
        assert await names(workspaces, outside) == ["file"]
        assert (await read(workspaces, outside, "file")).text == "secret"

    async def test_a_directory_inside_a_repository(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.commit(**{".gitignore": "*.log\n", "inner/file": "x"})
        repo.write("inner/a.log", "x")
        assert await names(workspaces, repo.path / "inner") == ["file"]
        assert await status(workspaces, repo.path / "inner", "../text") == 404
        assert await status(workspaces, repo.path / "inner", "a.log") == 404

    async def test_a_directory_that_the_repository_around_it_ignores(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.commit(**{".gitignore": "*\n"})
        repo.write("project/deep/file", "x")
        assert await names(workspaces, repo.path / "project") == ["deep"]
        assert await names(workspaces, repo.path / "project", "deep") == ["file"]
        assert (await read(workspaces, repo.path / "project", "deep/file")).text == "x"

    async def test_through_a_link_to_the_directory(
        self, repo: Repo, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        (tmp_path / "alias").symlink_to(repo.path)
        assert (await read(workspaces, tmp_path / "alias", "text")).text == "one\ntwo\n"

    async def test_a_directory_that_is_gone(self, workspaces: Workspaces, tmp_path: Path) -> None:
        assert await status(workspaces, tmp_path / "gone", "x") == 409
