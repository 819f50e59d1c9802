"""What differs in the directory of a session: its files, their lines, the patch."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from outrider.contract.errors import ApiError
from outrider.machine.workspace.changes import MAX_PATCH, listed_changes
from outrider.machine.workspace.workspaces import Workspaces
from tests.machine.workspace.conftest import by_path
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.waiting import TIMEOUT


async def refused(workspaces: Workspaces, path: Path, base: str | None = None) -> ApiError:
    with pytest.raises(ApiError) as error:
        await workspaces.changes(str(path), base)
    return error.value


class TestFiles:
    async def test_nothing(self, repo: Repo, workspaces: Workspaces) -> None:
        changes = await workspaces.changes(str(repo.path), None)
        assert (changes.branch, changes.base, changes.ahead) == ("main", "HEAD", 0)
        assert (changes.files, changes.patch, changes.truncated) == ([], "", False)

    async def test_each_kind_of_change(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.commit(
            gone="1\n2\n3\n", moved="".join(f"{n}\n" for n in range(20)), mode="x\n", kind="y\n"
        )
        repo.write("text", "one\nzwei\ndrei\n")
        repo.write("staged", "a\nb\n")
        repo.git("add", "staged")
        repo.write("deep/er/untracked", "no line break")
        repo.write("empty", "")
        (repo.path / "gone").unlink()
        (repo.path / "moved").rename(repo.path / "is here")
        (repo.path / "mode").chmod(0o755)
        (repo.path / "kind").unlink()
        (repo.path / "kind").symlink_to("text")
        changes = await workspaces.changes(str(repo.path), None)
        assert [
            (file.path, file.status, file.additions, file.deletions) for file in changes.files
        ] == [
            ("deep/er/untracked", "untracked", 1, 0),
            ("empty", "untracked", 0, 0),
            ("gone", "deleted", 0, 3),
            ("is here", "renamed", 0, 0),
            ("kind", "modified", 1, 1),
            ("mode", "modified", 0, 0),
            ("staged", "added", 2, 0),
            ("text", "modified", 2, 1),
        ]
        assert by_path(changes)["is here"].old_path == "moved"
        assert "old mode 100644\nnew mode 100755" in changes.patch
        assert not changes.truncated

    async def test_the_patch_makes_the_same_of_another_copy(
        self, repo: Repo, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        repo.git("clone", "--quiet", ".", str(tmp_path / "copy"))
        repo.write("text", "one\nzwei\n")
        repo.write("a name\nof two lines", "new\n")
        repo.write("empty", "")
        patch = (await workspaces.changes(str(repo.path), None)).patch
        (tmp_path / "patch").write_text(patch)
        Repo(tmp_path / "copy").git("apply", str(tmp_path / "patch"))
        for name in ("text", "a name\nof two lines", "empty"):
            assert (tmp_path / "copy" / name).read_bytes() == (repo.path / name).read_bytes()

    async def test_binary_files_are_named_and_not_sent(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.write("tracked", b"\0SECRET" * 10)
        repo.commit()
        repo.write("tracked", b"\0SECRET" * 20)
        repo.write("untracked", b"SECRET\0")
        changes = await workspaces.changes(str(repo.path), None)
        assert [(file.path, file.binary, file.additions) for file in changes.files] == [
            ("tracked", True, 0),
            ("untracked", True, 0),
        ]
        assert "SECRET" not in changes.patch

    async def test_names_of_all_kinds(self, repo: Repo, workspaces: Workspaces) -> None:
        names = ["-o", "--output=x", ":(exclude)text", ":!text", "a\nb", 'q"q', "ä €", "*", "a b "]
        for name in names:
            repo.write(name, "x\n")
        (repo.path / os.fsdecode(b"caf\xe9")).write_text("not UTF-8\n")
        repo.write("\x1b[31m", "x\n")
        changes = await workspaces.changes(str(repo.path), None)
        assert set(by_path(changes)) == {*names, "caf\N{REPLACEMENT CHARACTER}", "\x1b[31m"}
        assert all(file.additions == 1 for file in changes.files)

    async def test_what_is_ignored_is_left_out(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.commit(**{".gitignore": "*.log\nbuild/\n"})
        repo.write(".git/info/exclude", "mine\n")
        for name in ("a.log", "build/x", "mine", "seen"):
            repo.write(name, "x")
        assert list(by_path(await workspaces.changes(str(repo.path), None))) == ["seen"]

    async def test_what_the_user_ignores_everywhere(
        self,
        repo: Repo,
        workspaces: Workspaces,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "ignored").write_text(".env\n")
        (tmp_path / "config").write_text(f"[core]\nexcludesFile = {tmp_path / 'ignored'}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
        repo.write(".env", "TOKEN=x\n")
        assert (await workspaces.changes(str(repo.path), None)).files == []

    async def test_files_that_were_only_touched(self, repo: Repo, workspaces: Workspaces) -> None:
        os.utime(repo.path / "text", (1, 1))
        assert (await workspaces.changes(str(repo.path), None)).files == []

    async def test_the_ends_of_lines(self, repo: Repo, workspaces: Workspaces) -> None:
        """A file that git stores with other ends of lines has not changed by them."""
        repo.commit(**{".gitattributes": "*.txt text\n", "a.txt": "one\ntwo\n"})
        repo.write("a.txt", "one\r\ntwo\r\n")
        assert (await workspaces.changes(str(repo.path), None)).files == []
        repo.write("a.txt", "one\r\nzwei\r\n")
        (found,) = (await workspaces.changes(str(repo.path), None)).files
        assert (found.additions, found.deletions) == (1, 1)

    async def test_a_file_system_without_modes_and_links(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.commit(program="x\n")
        (repo.path / "program").chmod(0o755)
        (repo.path / "link").symlink_to("text")
        repo.commit()
        repo.git("config", "core.fileMode", "false")
        repo.git("config", "core.symlinks", "false")
        (repo.path / "program").chmod(0o644)
        (repo.path / "link").unlink()
        repo.write("link", "text")
        assert (await workspaces.changes(str(repo.path), None)).files == []
        repo.write("link", "other")
        (found,) = (await workspaces.changes(str(repo.path), None)).files
        assert "120000" in (await workspaces.changes(str(repo.path), None)).patch
        assert (found.path, found.status) == ("link", "modified")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
    async def test_a_file_that_may_not_be_read(self, repo: Repo, workspaces: Workspaces) -> None:
        (repo.path / "text").chmod(0)
        (found,) = (await workspaces.changes(str(repo.path), None)).files
        assert (found.path, found.binary) == ("text", True)

    async def test_a_file_that_git_cannot_convert(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.commit(**{".gitattributes": "*.u working-tree-encoding=UTF-16\n"})
        repo.write("a.u", "no byte order mark")
        repo.write("b", "x\n")
        assert set(by_path(await workspaces.changes(str(repo.path), None))) == {"a.u", "b"}

    async def test_special_files(self, repo: Repo, workspaces: Workspaces) -> None:
        """They do not block git, and have no contents."""
        repo.commit(was="a file\n", device="a file\n")
        for name in ("was", "device"):
            (repo.path / name).unlink()
        os.mkfifo(repo.path / "was")
        os.mkfifo(repo.path / "fifo")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(repo.path / "socket"))
            (repo.path / "device").symlink_to("/dev/zero")
            changes = await workspaces.changes(str(repo.path), None)
        found = {file.path: (file.status, file.deletions) for file in changes.files}
        assert found == {"was": ("deleted", 1), "device": ("modified", 1)}

    async def test_a_repository_inside_that_is_not_tracked(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        inner = repository(repo.path / "inner")
        inner.commit(file="x")
        changes = await workspaces.changes(str(repo.path), None)
        assert [(file.path, file.status) for file in changes.files] == [("inner/", "untracked")]

    async def test_a_directory_inside_a_repository(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        """Paths are relative to the session's directory, and nothing outside of it is shown."""
        repo.commit(**{"inner/kept": "x\n", "other/kept": "x\n"})
        for name in ("inner/kept", "inner/new", "other/kept", "other/new"):
            repo.write(name, "y\n")
        changes = await workspaces.changes(str(repo.path / "inner"), None)
        assert list(by_path(changes)) == ["kept", "new"]
        assert "other" not in changes.patch


class TestBase:
    async def test_a_branch(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.git("switch", "--quiet", "--create", "topic/one")
        repo.commit(second="2\n")
        repo.commit(third="3\n")
        repo.write("fourth", "4\n")
        changes = await workspaces.changes(str(repo.path), "main")
        assert (changes.branch, changes.base, changes.ahead) == ("topic/one", "main", 2)
        assert [(file.path, file.status) for file in changes.files] == [
            ("fourth", "untracked"),
            ("second", "added"),
            ("third", "added"),
        ]

    @pytest.mark.parametrize(
        "base", ["nothing", "-o", "--output=/tmp/x", "HEAD:text", "HEAD..HEAD", "", "main~9"]
    )
    async def test_what_is_no_commit(self, repo: Repo, workspaces: Workspaces, base: str) -> None:
        if base:
            error = await refused(workspaces, repo.path, base)
            assert (error.status, [detail.path for detail in error.details]) == (400, ["base"])

    async def test_without_a_commit(self, tmp_path: Path, workspaces: Workspaces) -> None:
        repo = repository(tmp_path / "young")
        repo.write("staged", "1\n")
        repo.git("add", "staged")
        repo.write("new", "2\n")
        changes = await workspaces.changes(str(repo.path), None)
        assert (changes.branch, changes.ahead) == ("main", 0)
        assert [(file.path, file.status) for file in changes.files] == [
            ("new", "untracked"),
            ("staged", "added"),
        ]
        assert (await refused(workspaces, repo.path, "main")).status == 400

    async def test_a_detached_head(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.git("checkout", "--quiet", "--detach")
        assert (await workspaces.changes(str(repo.path), None)).branch is None

    async def test_a_merge_in_progress(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.git("switch", "--quiet", "--create", "other")
        repo.commit(text="theirs\n")
        repo.git("switch", "--quiet", "main")
        repo.commit(text="ours\n")
        repo.git("merge", "other", may_fail=True)
        changes = await workspaces.changes(str(repo.path), None)
        assert [(file.path, file.status) for file in changes.files] == [("text", "modified")]
        assert "+<<<<<<< HEAD" in changes.patch


class TestBounds:
    @pytest.fixture
    def few(self) -> Workspaces:
        return Workspaces(TIMEOUT, max_files=20)

    async def test_many_untracked_files(self, repo: Repo, few: Workspaces) -> None:
        for number in range(25):
            repo.write(f"new/{number:05}", "")
        changes = await few.changes(str(repo.path), None)
        assert (len(changes.files), changes.truncated) == (20, True)

    @pytest.mark.parametrize("length", [10, 200])
    async def test_many_changed_files(self, repo: Repo, few: Workspaces, length: int) -> None:
        """With long names, git is ended before it has read all files."""
        names = [f"{'/'.join(['d' * length] * 4)}/{number:05}" for number in range(400)]
        repo.commit(**dict.fromkeys(names, ""))
        for name in names:
            repo.write(name, "1\n2\n")
        changes = await few.changes(str(repo.path), None)
        assert (len(changes.files), changes.truncated) == (20, True)
        assert all((file.additions, file.deletions) == (2, 0) for file in changes.files)

    async def test_a_patch_that_is_too_long(self, repo: Repo, workspaces: Workspaces) -> None:
        lines = "€€€€€€€€€€\n" * (MAX_PATCH // 20)
        repo.write("long", lines)
        repo.write("zlast", "x\n")
        changes = await workspaces.changes(str(repo.path), None)
        assert MAX_PATCH - 4 < len(changes.patch.encode()) <= MAX_PATCH
        assert "\N{REPLACEMENT CHARACTER}" not in changes.patch
        assert changes.truncated
        assert by_path(changes)["long"].additions == MAX_PATCH // 20
        assert by_path(changes)["zlast"].additions == 1

    @pytest.mark.parametrize("name", ["tracked", "untracked"])
    async def test_a_file_of_many_gigabytes_is_named_and_not_read(
        self, repo: Repo, workspaces: Workspaces, name: str
    ) -> None:
        repo.commit(tracked="x\n")
        with (repo.path / name).open("wb") as file:
            file.truncate(64 * 1024**3)
        repo.write("zlast", "x\n")
        changes = await workspaces.changes(str(repo.path), None)
        found = {file.path: (file.binary, file.additions) for file in changes.files}
        assert found == {name: (True, 0), "zlast": (False, 1)}

    async def test_many_large_files_are_read_up_to_a_limit(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        for number in range(5):
            with (repo.path / f"large {number}").open("wb") as file:
                file.truncate(31 * 1024**2)
        changes = await workspaces.changes(str(repo.path), None)
        assert [file.binary for file in changes.files] == [True] * 5
        assert changes.truncated

    async def test_a_large_file_that_was_only_touched(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        with (repo.path / "large").open("wb") as file:
            file.truncate(33 * 1024**2)
        repo.commit()
        os.utime(repo.path / "large", (1, 1))
        assert (await workspaces.changes(str(repo.path), None)).files == []
        with (repo.path / "large").open("r+b") as file:
            file.write(b"x")
        (found,) = (await workspaces.changes(str(repo.path), None)).files
        assert (found.path, found.status, found.binary) == ("large", "modified", True)

    async def test_bytes_that_are_not_utf_8_do_not_make_it_longer(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.write("latin", b"\xe9\n" * (MAX_PATCH // 4))
        changes = await workspaces.changes(str(repo.path), None)
        assert len(changes.patch.encode()) <= MAX_PATCH
        assert changes.truncated

    async def test_git_that_takes_too_long(self, repo: Repo) -> None:
        error = await refused(Workspaces(seconds=0), repo.path)
        assert error.status == 504


class TestStates:
    async def test_no_repository(self, tmp_path: Path, workspaces: Workspaces) -> None:
        error = await refused(workspaces, tmp_path)
        assert (error.status, error.code) == (409, "NO_REPOSITORY")
        error = await refused(workspaces, tmp_path / "gone")
        assert (error.status, error.code) == (409, "NO_REPOSITORY")

    async def test_a_directory_that_the_repository_around_it_ignores(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        """Such as one in a home directory that is a repository itself."""
        repo.commit(**{".gitignore": "*\n"})
        repo.write("project/file", "x")
        assert (await refused(workspaces, repo.path / "project")).code == "NO_REPOSITORY"

    async def test_an_index_lock_that_was_left_behind(
        self, repo: Repo, workspaces: Workspaces
    ) -> None:
        repo.write(".git/index.lock", "")
        repo.write("new", "x\n")
        assert list(by_path(await workspaces.changes(str(repo.path), None))) == ["new"]

    async def test_nothing_is_written(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.write("new", "x\n")
        os.utime(repo.path / "text", (1, 1))

        def files() -> dict[Path, int]:
            return {path: path.lstat().st_mtime_ns for path in repo.path.rglob("*")}

        before = files()
        await workspaces.changes(str(repo.path), None)
        assert files() == before

    async def test_a_split_index(self, repo: Repo, workspaces: Workspaces) -> None:
        repo.git("update-index", "--split-index")
        repo.write("text", "one\n")
        repo.write("new", "x\n")
        assert list(by_path(await workspaces.changes(str(repo.path), None))) == ["new", "text"]

    async def test_sha256(self, tmp_path: Path, workspaces: Workspaces) -> None:
        path = tmp_path / "other"
        path.mkdir()
        repo = Repo(path)
        repo.git("init", "--quiet", "--object-format=sha256")
        repo.write("new", "x\n")
        assert list(by_path(await workspaces.changes(str(path), None))) == ["new"]
        repo.commit()
        repo.write("new", "y\n")
        assert by_path(await workspaces.changes(str(path), None))["new"].status == "modified"

    async def test_a_linked_working_tree(
        self, repo: Repo, workspaces: Workspaces, tmp_path: Path
    ) -> None:
        repo.git("worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "tree"))
        (tmp_path / "tree" / "text").write_text("one\n")
        changes = await workspaces.changes(str(tmp_path / "tree"), None)
        assert (changes.branch, list(by_path(changes))) == ("topic", ["text"])

    async def test_a_submodule(self, repo: Repo, workspaces: Workspaces, tmp_path: Path) -> None:
        outer = repository(tmp_path / "outer")
        outer.git("submodule", "--quiet", "add", str(repo.path), "sub")
        outer.commit()
        (outer.path / "sub" / "text").write_text("one\n")
        assert list(by_path(await workspaces.changes(str(outer.path / "sub"), None))) == ["text"]
        assert (await workspaces.changes(str(outer.path), None)).files == []
        Repo(outer.path / "sub").commit(text="three\n")
        changes = await workspaces.changes(str(outer.path), None)
        assert [(file.path, file.status) for file in changes.files] == [("sub", "modified")]
        head = Repo(outer.path / "sub").git("rev-parse", "HEAD")
        assert f"+Subproject commit {head}" in changes.patch
        shutil.rmtree(outer.path / "sub")
        changes = await workspaces.changes(str(outer.path), None)
        assert [(file.path, file.status) for file in changes.files] == [("sub", "deleted")]
        outer.write("sub", "a file\n")
        changes = await workspaces.changes(str(outer.path), None)
        assert [(file.path, file.status) for file in changes.files] == [("sub", "modified")]

    async def test_without_git(
        self, repo: Repo, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        error = await refused(workspaces, repo.path)
        assert error.status == 409
        assert "git is not installed" in error.message

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
    async def test_a_repository_of_another_user(
        self, repo: Repo, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        shutil.chown(repo.path / ".git", 12345)
        error = await refused(workspaces, repo.path)
        assert error.status == 409
        assert f"safe.directory {repo.path}" in error.message
        (tmp_path / "config").write_text(f"[safe]\ndirectory = {repo.path}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
        assert (await workspaces.changes(str(repo.path), None)).files == []


def test_a_list_that_is_cut_anywhere() -> None:
    """git is ended in the middle of a field, wherever that is."""
    raw = b":100644 100644 1f3a 0000"
    listed = b"%b M\0one\0%b R100\0was\0is\0%b D\0three\x003\t1\tone\0" % (raw, raw, raw)
    whole = list(listed_changes(listed))
    assert [(one.path, one.old_path, one.status) for one in whole] == [
        (b"one", None, "modified"),
        (b"is", b"was", "renamed"),
        (b"three", None, "deleted"),
    ]
    for end in range(len(listed)):
        found = list(listed_changes(listed[:end]))
        assert found == whole[: len(found)]
