"""Indexes that somebody else wrote: their names lead nowhere, their sizes are bounded."""

import os
from pathlib import Path

import pytest

from outrider.contract.commands import NewWorktree
from outrider.contract.errors import ApiError
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import Worktrees
from tests.machine.workspace.conftest import by_path
from tests.machine.workspace.repositories import Repo, write_index
from tests.rig.waiting import TIMEOUT

FORBIDDEN = [
    b"../secret",
    b"a/../../secret",
    b"/etc/passwd",
    b"a//b",
    b"./text",
    b"a/.",
    b".git/config",
    b".GIT/config",
    b"a/.git/config",
    b".git",
    b".git./config",
    b".git /config",
    b".git::$INDEX_ALLOCATION/config",
    b"git~1/config",
    b"GIT~1",
    b".g\xe2\x80\x8cit/config",
    b"\xef\xbb\xbf.git/config",
    b"..",
    b"a/",
]
ALLOWED = [
    b".gitignore",
    b".github/workflows/ci.yml",
    b"..a/b",
    b"a../b",
    b"...",
    b"a.git/b",
    b"git~10/b",
    b".gitx/b",
    b"gi\xe2\x80\x8ct",
    b"a\\..\\b",
    b"-o",
]


async def refused(workspaces: Workspaces, path: Path) -> str:
    with pytest.raises(ApiError) as error:
        await workspaces.changes(str(path), None)
    assert error.value.status == 409
    return error.value.message


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_a_name_that_leads_elsewhere_is_refused(
    repo: Repo, workspaces: Workspaces, tmp_path: Path, name: bytes
) -> None:
    (tmp_path / "secret").write_text("SECRET\n")
    write_index(repo, [b"text", name])
    assert "index has the name" in await refused(workspaces, repo.path)
    write_index(repo, [name, b"zzz"])
    assert "index has the name" in await refused(workspaces, repo.path)


async def test_the_name_is_in_the_sentence(repo: Repo, workspaces: Workspaces) -> None:
    write_index(repo, [b"a", b"b/../../secret", b"z"])
    assert "'b/../../secret'" in await refused(workspaces, repo.path)


async def test_names_that_only_look_like_it_are_read(repo: Repo, workspaces: Workspaces) -> None:
    write_index(repo, [b"text", *ALLOWED])
    for name in ALLOWED:
        repo.write(os.fsdecode(name), "new\n")
    changes = await workspaces.changes(str(repo.path), None)
    assert set(by_path(changes)) == {name.decode() for name in ALLOWED}
    assert changes.patch.count("+new") == len(ALLOWED)


async def test_a_directory_that_is_a_link_is_not_followed(
    repo: Repo, workspaces: Workspaces, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("SECRET\n")
    write_index(repo, [b"link/secret", b"text"])
    (repo.path / "link").symlink_to(tmp_path / "outside")
    changes = await workspaces.changes(str(repo.path), None)
    assert "SECRET" not in changes.patch
    assert "link/secret" not in by_path(changes)


@pytest.mark.parametrize("name", [b"../secret", b".git/config"])
async def test_files_and_worktrees_refuse_it_too(
    repo: Repo, workspaces: Workspaces, name: bytes
) -> None:
    repo.commit(**{".gitignore": "ignored\n", "ignored": "x\n"})
    made = await Worktrees(seconds=TIMEOUT).open(str(repo.path), NewWorktree(branch="topic"))
    write_index(repo, [b"ignored", name])
    with pytest.raises(ApiError) as error:
        await workspaces.files(str(repo.path), None)
    assert error.value.status == 409
    own = repo.path / ".git" / "worktrees" / "topic"
    (repo.path / ".git" / "index").replace(own / "index")
    with pytest.raises(ApiError) as error:
        await Worktrees(seconds=TIMEOUT).changes(str(made.top))
    assert "index has the name" in error.value.message


async def test_an_index_that_claims_to_be_large_is_refused(
    repo: Repo, workspaces: Workspaces
) -> None:
    with (repo.path / ".git" / "index").open("r+b") as index:
        index.truncate(1024**3)
    assert "larger than" in await refused(workspaces, repo.path)


async def test_only_the_newest_shared_parts_are_read(repo: Repo, workspaces: Workspaces) -> None:
    """Sixteen of 0.1 GB each, without a block on the disk, became 1.6 GB."""
    repo.git("update-index", "--split-index")
    (own,) = (repo.path / ".git").glob("sharedindex.*")
    for number in range(16):
        with (repo.path / ".git" / f"sharedindex.{number:040}").open("wb") as part:
            part.truncate(100 * 1024**2)
        os.utime(part.name, (1, 1))
    repo.write("text", "one\n")
    assert list(by_path(await workspaces.changes(str(repo.path), None))) == ["text"]
    os.utime(own, (0, 0))
    await refused(workspaces, repo.path)
