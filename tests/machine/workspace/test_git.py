"""Repositories that are made to attack their reader: nothing runs, nothing of others is read."""

import asyncio
import os
import sys
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from outrider.contract.commands import NewWorktree
from outrider.contract.errors import ApiError
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import Worktrees
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.waiting import TIMEOUT

HOOKS = (
    "post-index-change", "pre-commit", "reference-transaction", "post-checkout", "pre-auto-gc",
    "fsmonitor-watchman", "post-merge", "pre-push", "update",
)  # fmt: skip

CONFIG = """
[core]
    repositoryformatversion = 1
    fsmonitor = {mark} fsmonitor
    hooksPath = .git/hooks
    pager = {mark} pager
    editor = {mark} editor
    sshCommand = {mark} ssh
    askPass = {mark} askpass
    alternateRefsCommand = {mark} refs
    attributesFile = {outside}/file
    excludesFile = {fifo}
    untrackedCache = true
    splitIndex = true
[extensions]
    partialClone = evil
[remote "evil"]
    url = ext::{mark} remote
    promisor = true
    vcs = evil
[diff]
    external = {mark} external
    orderFile = {fifo}
    submodule = diff
    autoRefreshIndex = false
[diff "evil"]
    textconv = {mark} textconv
    command = {mark} command
[filter "evil"]
    clean = {mark} clean; cat
    smudge = {mark} smudge; cat
    required = true
[filter "evil process"]
    process = {mark} process
    required = true
[merge "evil"]
    driver = {mark} merge
[gpg]
    program = {mark} gpg
[log]
    showSignature = true
[alias]
    diff = !{mark} alias
    ls-files = !{mark} alias
[pager]
    diff = {mark} pager
[credential]
    helper = !{mark} credential
[include]
    path = ../evil.inc
[protocol]
    allow = always
[color]
    ui = always
"""


@dataclass(frozen=True)
class Hostile:
    """A repository whose configuration names programs that leave a mark, and its surroundings."""

    repo: Repo
    marks: Path
    outside: Path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    folder = tmp_path_factory.mktemp("hostile")
    marks, outside = folder / "marks", folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("SECRET\n")
    mark = folder / "mark"
    mark.write_text(f'#!/bin/sh\necho "$@" >> {marks}\n')
    mark.chmod(0o755)
    os.mkfifo(folder / "fifo")
    repo = repository(folder / "repo")
    repo.commit(**{
        "text": "one\n",
        "processed": "one\n",
        "swapped/file": "mine\n",
        ".gitattributes": "* filter=evil diff=evil merge=evil\nprocessed filter=evil\\ process\n",
    })  # fmt: skip
    inner = repository(repo.path / "sub")
    inner.commit(file="x\n")
    repo.git("-c", "advice.addEmbeddedRepo=false", "add", "sub")
    repo.git("commit", "--quiet", "--message", "a repository as a submodule")
    inner.write(".git/config", f"[core]\nfsmonitor = {mark} inner\nrepositoryformatversion = 0\n")
    for name in HOOKS:
        (repo.path / ".git" / "hooks").mkdir(exist_ok=True)
        hook = repo.write(f".git/hooks/{name}", f"#!/bin/sh\n{mark} hook {name}\n")
        hook.chmod(0o755)
    settings = {"mark": mark, "outside": outside, "fifo": folder / "fifo"}
    repo.write("evil.inc", f"[core]\nfsmonitor = {mark} included\n")
    repo.write(".git/config", CONFIG.format(**settings))
    repo.write("text", "one\ntwo\n")
    repo.write("processed", "one\ntwo\n")
    inner.write("file", "y\n")
    repo.write("-o", "x\n")
    (repo.path / "link").symlink_to(outside / "file")
    (repo.path / "directory").symlink_to(outside)
    # A tracked directory becomes a link: its file is then outside.
    (repo.path / "swapped" / "file").unlink()
    (repo.path / "swapped").rmdir()
    (repo.path / "swapped").symlink_to(outside)
    os.mkfifo(repo.path / "fifo")
    return Hostile(repo, marks, outside)


async def test_nothing_of_the_repository_is_run(hostile: Hostile, workspaces: Workspaces) -> None:
    changes = await workspaces.changes(str(hostile.repo.path), None)
    found = {file.path: (file.status, file.additions) for file in changes.files}
    assert found == {
        "-o": ("untracked", 1),
        "directory": ("untracked", 1),
        "evil.inc": ("untracked", 2),
        "link": ("untracked", 1),
        "processed": ("modified", 1),
        "swapped": ("untracked", 1),
        "swapped/file": ("deleted", 0),
        "text": ("modified", 1),
    }
    assert "SECRET" not in changes.patch
    assert "\x1b" not in changes.patch
    for inner in (None, "sub", "text", "sub/file"):
        await workspaces.files(str(hostile.repo.path), inner)
    for inner in ("link", "directory/file", "swapped/file", "fifo"):
        with pytest.raises(ApiError):
            await workspaces.files(str(hostile.repo.path), inner)
    assert not hostile.marks.exists()


async def test_nothing_of_the_repository_is_run_for_a_worktree(hostile: Hostile) -> None:
    worktrees = Worktrees(seconds=TIMEOUT)
    request = NewWorktree(branch="topic/one")
    made = await worktrees.open(str(hostile.repo.path), request)
    assert (made.top / "text").read_text() == "one\n"
    assert (made.top / "processed").read_text() == "one\n"
    assert await worktrees.open(str(hostile.repo.path), request) == replace(
        made, is_new=False, new_branch_at=None
    )
    assert await worktrees.changes(str(made.top)) is None
    (made.top / "-o").touch()
    assert "'-o'" in str(await worktrees.changes(str(made.top)))
    (made.top / "-o").unlink()
    (made.top / "text").write_text("two\n")
    assert "'text'" in str(await worktrees.changes(str(made.top)))
    await worktrees.discard(made)
    assert not made.top.exists()
    assert not hostile.marks.exists()


@pytest.mark.parametrize("name", ["-o", "--upload-pack=x", "-b"])
async def test_the_name_of_an_option_is_no_branch(hostile: Hostile, name: str) -> None:
    for request in (NewWorktree(branch=name), NewWorktree(branch="other", base=name)):
        with pytest.raises(ApiError) as error:
            await Worktrees(seconds=TIMEOUT).open(str(hostile.repo.path), request)
        assert error.value.status == 400
    assert not hostile.marks.exists()


async def test_git_itself_would_run_it(hostile: Hostile) -> None:
    """Otherwise the test before says nothing."""
    hostile.repo.write(".git/config", (hostile.repo.path / ".git/config").read_text().replace(
        "excludesFile", "unused"
    ).replace("orderFile", "unused"))  # fmt: skip
    hostile.repo.git("status", may_fail=True)
    hostile.repo.git("diff", may_fail=True)
    hostile.repo.git("diff", "--no-ext-diff", "--no-textconv", may_fail=True)
    hostile.repo.git("worktree", "add", "../by-git", may_fail=True)
    ran = hostile.marks.read_text()
    hostile.marks.unlink()
    assert "included" in ran
    assert "hook reference-transaction" in ran
    assert "hook post-checkout" in ran or "process" in ran or "smudge" in ran
    assert "clean" in ran
    assert "external" in ran or "command" in ran


class TestRepositoriesThatLeadElsewhere:
    @pytest.fixture
    def private(self, tmp_path: Path) -> Repo:
        """Another repository of this user."""
        made = repository(tmp_path / "private")
        made.commit(key="SECRET\n")
        return made

    @pytest.fixture
    def session(self, tmp_path: Path) -> Path:
        (tmp_path / "session").mkdir()
        return tmp_path / "session"

    async def refused(self, workspaces: Workspaces, session: Path) -> None:
        with pytest.raises(ApiError) as error:
            await workspaces.changes(str(session), None)
        assert error.value.status == 409
        assert "SECRET" not in error.value.message

    async def test_a_git_file(self, workspaces: Workspaces, private: Repo, session: Path) -> None:
        (session / ".git").write_text(f"gitdir: {private.path}/.git\n")
        await self.refused(workspaces, session)

    async def test_the_git_file_of_another_working_tree(
        self, workspaces: Workspaces, private: Repo, session: Path, tmp_path: Path
    ) -> None:
        private.git("worktree", "add", "--quiet", "-b", "b", str(tmp_path / "tree"))
        (session / ".git").write_text((tmp_path / "tree" / ".git").read_text())
        await self.refused(workspaces, session)

    async def test_a_link(self, workspaces: Workspaces, private: Repo, session: Path) -> None:
        (session / ".git").symlink_to(private.path / ".git")
        await self.refused(workspaces, session)

    @pytest.mark.parametrize("name", ["objects", "refs", "index", "HEAD", "config"])
    async def test_a_link_inside(
        self, workspaces: Workspaces, private: Repo, session: Path, name: str
    ) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        (own.path / ".git" / name).rename(own.path / ".git" / "was")
        (own.path / ".git" / name).symlink_to(private.path / ".git" / name)
        await self.refused(workspaces, own.path)

    @pytest.mark.parametrize("name", ["alternates", "http-alternates"])
    async def test_the_objects_of_another_repository(
        self, workspaces: Workspaces, private: Repo, session: Path, name: str
    ) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        own.write(f".git/objects/info/{name}", f"{private.path}/.git/objects\n")
        own.write(".git/refs/heads/theirs", private.git("rev-parse", "HEAD") + "\n")
        with pytest.raises(ApiError) as error:
            await workspaces.changes(str(own.path), "theirs")
        assert error.value.status == 409
        assert name in error.value.message
        await self.refused(workspaces, own.path)

    @pytest.mark.parametrize("name", ["refs/heads/theirs", "refs/heads/deep/er", "objects/00"])
    async def test_a_link_deeper_inside(
        self, workspaces: Workspaces, private: Repo, session: Path, name: str
    ) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        place = own.path / ".git" / name
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(private.path / ".git" / "refs" / "heads" / "main")
        await self.refused(workspaces, own.path)

    async def test_the_git_directory_of_a_submodule_elsewhere(
        self, workspaces: Workspaces, private: Repo, session: Path
    ) -> None:
        """Not even the id of its commit is shown."""
        own = repository(session / "own")
        own.commit(file="x\n")
        head = own.git("rev-parse", "HEAD")
        own.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
        own.git("commit", "--quiet", "--message", "a submodule")
        own.write("sub/.git", f"gitdir: {private.path}/.git\n")
        changes = await workspaces.changes(str(own.path), None)
        assert changes.files == []
        assert private.git("rev-parse", "HEAD") not in changes.patch

    async def test_the_directory_of_what_all_working_trees_share(
        self, workspaces: Workspaces, private: Repo, session: Path
    ) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        own.write(".git/commondir", f"{private.path}/.git\n")
        await self.refused(workspaces, own.path)

    async def test_another_working_tree(
        self, workspaces: Workspaces, private: Repo, session: Path
    ) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        own.git("config", "core.worktree", str(private.path))
        changes = await workspaces.changes(str(own.path), None)
        assert changes.files == []

    async def test_a_worktree_of_another_working_tree(self, private: Repo, session: Path) -> None:
        own = repository(session / "own")
        own.commit(file="x\n")
        own.git("config", "core.worktree", str(private.path))
        worktrees = Worktrees(seconds=TIMEOUT)
        made = await worktrees.open(str(own.path), NewWorktree(branch="topic"))
        assert sorted(path.name for path in made.top.iterdir()) == [".git", "file"]
        await worktrees.remove(str(made.top))
        assert (private.path / "key").read_text() == "SECRET\n"

    async def test_a_git_file_that_blocks_or_is_endless(
        self, workspaces: Workspaces, session: Path
    ) -> None:
        os.mkfifo(session / ".git")
        await self.refused(workspaces, session)
        (session / ".git").unlink()
        (session / ".git").write_bytes(b"gitdir: " + b"x" * 100_000)
        await self.refused(workspaces, session)


async def test_a_repository_that_blocks_git(tmp_path: Path) -> None:
    """git is killed at the deadline."""
    repo = repository(tmp_path / "repo")
    repo.commit(file="x\n")
    os.mkfifo(repo.path / ".git" / "endless")
    repo.write(".git/config", "[include]\npath = endless\n")
    with pytest.raises(ApiError) as error:
        await Workspaces(seconds=0.5).changes(str(repo.path), None)
    assert error.value.status == 504


@pytest.mark.parametrize("name", ["HEAD", "config", "index", "packed-refs", "info/exclude"])
async def test_a_named_pipe_in_the_place_of_a_file_of_git(
    repo: Repo, workspaces: Workspaces, name: str
) -> None:
    """git would wait for its other end."""
    repo.git("pack-refs", "--all")
    (repo.path / ".git" / name).unlink()
    os.mkfifo(repo.path / ".git" / name)
    with pytest.raises(ApiError) as error:
        await workspaces.changes(str(repo.path), None)
    assert error.value.status == 409


async def test_a_repository_that_blocks_git_holds_up_no_other(tmp_path: Path, repo: Repo) -> None:
    workspaces = Workspaces(seconds=2)
    blocking = repository(tmp_path / "blocking")
    os.mkfifo(blocking.path / ".git" / "endless")
    blocking.write(".git/config", "[include]\npath = endless\n")
    blocked = [asyncio.create_task(workspaces.changes(str(blocking.path), None)) for _ in range(30)]
    for _ in range(3):
        assert (await workspaces.changes(str(repo.path), None)).files == []
    assert not any(task.done() and task.exception() is None for task in blocked)
    refusals = [task.exception() for task in blocked if task.done()]
    assert {error.status for error in refusals if isinstance(error, ApiError)} >= {503}
    for task in blocked:
        task.cancel()
    await asyncio.gather(*blocked, return_exceptions=True)


async def test_what_the_repository_says_of_its_history_is_not_believed(
    repo: Repo, workspaces: Workspaces
) -> None:
    """Replaced objects, grafts and a commit graph may show commits that are none of its own."""
    repo.git("branch", "base")
    repo.commit(text="three\n")
    head = repo.git("rev-parse", "HEAD")
    repo.write("text", "four\n")
    before = await workspaces.changes(str(repo.path), "base")
    repo.git("replace", head, repo.git("rev-parse", "base"))
    repo.write(".git/info/grafts", f"{head}\n")
    repo.git("commit-graph", "write", "--reachable", may_fail=True)
    repo.write(".git/objects/info/commit-graph", b"CGPH\1\1\4\0" + b"\0" * 1000)
    assert await workspaces.changes(str(repo.path), "base") == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process")
async def test_a_program_that_takes_too_much_memory_is_ended(
    repo: Repo, workspaces: Workspaces
) -> None:
    tree = repo.git("rev-parse", "HEAD^{tree}")
    place = repo.path / ".git" / "objects" / tree[:2] / tree[2:]
    place.chmod(0o644)
    place.write_bytes(zlib.compress(b"tree %d\0" % 1024**4 + b"\0" * 100))
    with pytest.raises(ApiError) as error:
        await workspaces.changes(str(repo.path), None)
    assert error.value.status == 409
    place.write_bytes(zlib.compress(b"tree %d\0" % (2 * 1024**3) + b"\0" * 100))
    with pytest.raises(ApiError) as error:
        await workspaces.changes(str(repo.path), None)
    assert "emory" in error.value.message
