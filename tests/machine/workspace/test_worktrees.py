"""Worktrees of sessions: created for a branch, checked for what would be lost, removed."""

import os
from pathlib import Path

import pytest

from outrider.contract.commands import NewWorktree
from outrider.contract.errors import ApiError
from outrider.machine.workspace.workspaces import Workspaces
from outrider.machine.workspace.worktrees import OpenedWorktree, Worktrees
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.waiting import TIMEOUT


@pytest.fixture
def worktrees() -> Worktrees:
    return Worktrees(seconds=TIMEOUT)


async def opened(
    worktrees: Worktrees, repo: Repo, branch: str, base: str | None = None
) -> OpenedWorktree:
    return await worktrees.open(str(repo.path), NewWorktree(branch=branch, base=base))


async def refused(
    worktrees: Worktrees, path: Path, branch: str = "topic", base: str | None = None
) -> ApiError:
    with pytest.raises(ApiError) as error:
        await worktrees.open(str(path), NewWorktree(branch=branch, base=base))
    return error.value


def nothing_is_left(repo: Repo, *branches: str) -> None:
    """Check that there is no worktree, and no branch but these."""
    assert set(repo.git("branch", "--format=%(refname:short)").split()) == {"main", *branches}
    assert len(repo.git("worktree", "list").splitlines()) == 1
    assert not repo.path.with_name("repo.worktrees").exists()


class TestCreation:
    async def test_a_new_branch(self, repo: Repo, worktrees: Worktrees) -> None:
        made = await opened(worktrees, repo, "feature/one")
        assert made.top == made.directory == repo.path.with_name("repo.worktrees") / "feature-one"
        assert made.is_new
        tree = Repo(made.top)
        assert tree.git("symbolic-ref", "HEAD") == "refs/heads/feature/one"
        assert tree.git("rev-parse", "HEAD") == repo.git("rev-parse", "main")
        assert tree.git("status", "--porcelain") == ""
        assert (made.top / "text").read_text() == "one\ntwo\n"
        listed = repo.git("worktree", "list", "--porcelain")
        assert f"worktree {made.top}\n" in listed
        assert "prunable" not in listed
        assert "locked" not in listed
        tree.commit(more="x\n")
        assert repo.git("rev-list", "--count", "main..feature/one") == "1"
        repo.git("fsck", "--strict")

    async def test_its_changes_are_read(
        self, repo: Repo, worktrees: Worktrees, workspaces: Workspaces
    ) -> None:
        made = await opened(worktrees, repo, "topic")
        Repo(made.top).write("text", "changed\n")
        changes = await workspaces.changes(str(made.top), None)
        assert (changes.branch, [file.path for file in changes.files]) == ("topic", ["text"])
        assert (await workspaces.changes(str(repo.path), None)).files == []

    async def test_a_base(self, repo: Repo, worktrees: Worktrees) -> None:
        repo.git("tag", "v1")
        repo.commit(later="x\n")
        made = await opened(worktrees, repo, "topic", "v1")
        assert not (made.top / "later").exists()
        error = await refused(worktrees, repo.path, "other", "nothing")
        assert (error.status, error.details[0].path) == (400, "worktree.base")
        error = await refused(worktrees, repo.path, "other", "--all")
        assert error.status == 400

    async def test_a_branch_that_exists(self, repo: Repo, worktrees: Worktrees) -> None:
        repo.git("branch", "topic")
        repo.git("pack-refs", "--all")
        repo.commit(later="x\n")
        made = await opened(worktrees, repo, "topic", "main")
        assert not (made.top / "later").exists()
        assert made.new_branch_at is None

    async def test_a_worktree_that_exists(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        place = tmp_path / "a place\nof its own"
        repo.git("worktree", "add", "--quiet", "-b", "topic", str(place))
        found = await opened(worktrees, repo, "topic")
        assert (found.top, found.is_new) == (place, False)
        await worktrees.discard(found)
        assert (place / "text").exists()
        assert await opened(worktrees, Repo(place), "topic") == found

    async def test_beside_the_main_one_wherever_it_is_requested(
        self, repo: Repo, worktrees: Worktrees
    ) -> None:
        repo.commit(**{"inner/deep/file": "x\n"})
        first = await worktrees.open(str(repo.path / "inner/deep"), NewWorktree(branch="one"))
        assert first.directory == first.top / "inner/deep"
        second = await worktrees.open(str(first.directory), NewWorktree(branch="two"))
        assert second.directory == first.top.with_name("two") / "inner/deep"

    async def test_a_directory_that_the_branch_has_not(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        (repo.path / "empty").mkdir()
        error = await refused(worktrees, repo.path / "empty")
        assert (error.status, error.details[0].path) == (400, "dir")
        nothing_is_left(repo)
        (tmp_path / "outside").mkdir()
        (repo.path / "link").symlink_to(tmp_path / "outside")
        repo.commit()
        repo.git("branch", "linked")
        (repo.path / "link").unlink()
        (repo.path / "link").mkdir()
        assert (await refused(worktrees, repo.path / "link", "linked")).status == 400
        nothing_is_left(repo, "linked")

    async def test_names_that_look_alike(self, repo: Repo, worktrees: Worktrees) -> None:
        branches = ["a/b", "a-b", "ä€", "x" * 200]
        made = [(await opened(worktrees, repo, branch)).top for branch in branches]
        assert [top.name for top in made] == ["a-b", "a-b-2", "worktree", "x" * 80]

    async def test_a_folder_for_all(self, repo: Repo, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "trees").symlink_to(tmp_path / "real")
        made = await opened(Worktrees(tmp_path / "trees", TIMEOUT), repo, "topic")
        assert made.top == tmp_path / "real/repo/topic"

    async def test_what_is_no_branch(self, repo: Repo, worktrees: Worktrees) -> None:
        repo.git("switch", "--quiet", "--create", "earlier")
        repo.git("switch", "--quiet", "main")
        for branch in (
            "-x", "--detach", "a..b", "a b", "a/", "/a", "a//b", ".a", "a.lock", "@{-1}", "a~1",
            "HEAD", "a:b", "a\\b", "a*", "../a",
        ):  # fmt: skip
            error = await refused(worktrees, repo.path, branch)
            assert (error.status, error.details[0].path) == (400, "worktree.branch"), branch
        nothing_is_left(repo, "earlier")

    async def test_a_branch_below_another(self, repo: Repo, worktrees: Worktrees) -> None:
        error = await refused(worktrees, repo.path, "main/below")
        assert (error.status, error.details[0].path) == (400, "worktree.branch")
        assert "'refs/heads/main' exists" in error.message
        nothing_is_left(repo)


class TestRefusals:
    async def test_no_repository(self, tmp_path: Path, repo: Repo, worktrees: Worktrees) -> None:
        error = await refused(worktrees, tmp_path)
        assert (error.status, error.details[0].path) == (400, "dir")
        repo.commit(**{".gitignore": "ignored\n"})
        (repo.path / "ignored").mkdir()
        assert (await refused(worktrees, repo.path / "ignored")).status == 400

    async def test_no_commit(self, tmp_path: Path, worktrees: Worktrees) -> None:
        young = repository(tmp_path / "young")
        error = await refused(worktrees, young.path)
        assert error.status == 400
        assert "no commit yet" in error.message

    async def test_the_branch_of_the_main_working_tree(
        self, repo: Repo, worktrees: Worktrees
    ) -> None:
        error = await refused(worktrees, repo.path, "main")
        assert error.status == 409
        assert f"checked out in {repo.path} itself" in error.message

    async def test_a_worktree_that_is_gone(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        repo.git("worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "tree"))
        (tmp_path / "tree").rename(tmp_path / "moved")
        error = await refused(worktrees, repo.path)
        assert error.status == 409
        assert "git worktree prune" in error.message

    async def test_a_submodule(self, repo: Repo, worktrees: Worktrees, tmp_path: Path) -> None:
        other = repository(tmp_path / "other")
        other.commit(file="x\n")
        repo.git("submodule", "--quiet", "add", str(other.path), "sub")
        error = await refused(worktrees, repo.path / "sub")
        assert error.status == 400
        assert "submodule" in error.message

    async def test_a_checkout_that_fails(self, repo: Repo, worktrees: Worktrees) -> None:
        blob = repo.git("rev-parse", "HEAD:text")
        (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
        assert (await refused(worktrees, repo.path)).status == 409
        nothing_is_left(repo)

    async def test_git_that_takes_too_long(self, repo: Repo) -> None:
        assert (await refused(Worktrees(seconds=0), repo.path)).status == 504
        nothing_is_left(repo)

    @pytest.mark.parametrize("name", ["repo.worktrees", "repo/.git/worktrees"])
    async def test_a_link_in_the_place_of_a_directory(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        assert (await refused(worktrees, repo.path)).status == 409
        assert list((tmp_path / "elsewhere").iterdir()) == []
        assert repo.git("branch", "--format=%(refname:short)") == "main"

    async def test_a_link_in_the_place_of_a_directory_of_branches(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (repo.path / ".git/refs/heads/topic").symlink_to(tmp_path / "elsewhere")
        assert (await refused(worktrees, repo.path, "topic/one")).status == 409
        assert list((tmp_path / "elsewhere").iterdir()) == []

    async def test_a_worktree_that_leads_elsewhere(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        private = repository(tmp_path / "private")
        private.commit(key="SECRET\n")
        await opened(worktrees, repo, "topic")
        repo.write(".git/worktrees/topic/gitdir", f"{private.path}/.git\n")
        assert (await refused(worktrees, repo.path)).status == 409


class TestChanges:
    @pytest.fixture
    async def tree(self, repo: Repo, worktrees: Worktrees) -> Repo:
        repo.commit(**{".gitignore": "*.log\n", "sub/file": "x\n"})
        return Repo((await opened(worktrees, repo, "topic")).top)

    async def test_none(self, tree: Repo, worktrees: Worktrees) -> None:
        tree.write("a.log", "ignored\n")
        tree.commit(text="committed\n")
        os.utime(tree.path / "text", (1, 1))
        (tree.path / "empty").mkdir()
        assert await worktrees.changes(str(tree.path)) is None
        assert await worktrees.changes(str(tree.path / "gone")) is None

    @pytest.mark.parametrize(
        ("what", "script"),
        [
            ("changes that are not committed, such as 'text'", "echo x > text"),
            ("changes that are not committed, such as 'text'", "rm text"),
            ("untracked files that are not committed, such as 'new/'", "mkdir new; > new/x"),
            ("staged changes", "echo x > text; git add text; git show HEAD:text > text"),
            ("staged changes", "git rm -q --cached text"),
            ("staged changes", "git checkout -q --orphan other"),
            ("commits that are on no", "git checkout -q --detach; git commit -q --allow-empty -mx"),
            ("a merge", "git rev-parse HEAD > $(git rev-parse --git-path MERGE_HEAD)"),
        ],
    )  # fmt: skip
    async def test_what_would_be_lost(
        self, tree: Repo, worktrees: Worktrees, what: str, script: str
    ) -> None:
        tree.git("-c", f"alias.run=!set -e; {script}", "run")
        found = await worktrees.changes(str(tree.path))
        assert found is not None
        assert found.startswith(what)

    async def test_a_submodule_that_is_checked_out(self, tree: Repo, worktrees: Worktrees) -> None:
        inner = repository(tree.path / "inner")
        inner.commit(file="x\n")
        tree.commit()
        assert await worktrees.changes(str(tree.path)) == "submodules"

    async def test_a_detached_head_on_a_branch(self, tree: Repo, worktrees: Worktrees) -> None:
        tree.git("checkout", "--quiet", "--detach")
        assert await worktrees.changes(str(tree.path)) is None

    async def test_what_cannot_be_removed(
        self, repo: Repo, tree: Repo, worktrees: Worktrees
    ) -> None:
        for path in (repo.path, repo.path.parent, tree.path / "sub"):
            with pytest.raises(ApiError) as error:
                await worktrees.changes(str(path))
            assert (error.value.status, error.value.code) == (409, None)
        repo.git("worktree", "lock", str(tree.path))
        with pytest.raises(ApiError, match="is locked"):
            await worktrees.changes(str(tree.path))


class TestRemoval:
    async def test_the_branch_stays(self, repo: Repo, worktrees: Worktrees) -> None:
        made = await opened(worktrees, repo, "topic")
        tree = Repo(made.top)
        tree.commit(more="x\n")
        await worktrees.remove(str(made.top))
        nothing_is_left(repo, "topic")
        assert repo.git("show", "topic:more") == "x"
        again = await opened(worktrees, repo, "topic")
        assert again.top == made.top
        await worktrees.remove(str(made.top))
        await worktrees.remove(str(made.top))

    async def test_of_two(self, repo: Repo, worktrees: Worktrees) -> None:
        one, two = [await opened(worktrees, repo, branch) for branch in ("one", "two")]
        await worktrees.remove(str(one.top))
        assert not one.top.exists()
        assert Repo(two.top).git("status", "--porcelain") == ""

    async def test_what_a_launch_that_failed_leaves(self, repo: Repo, worktrees: Worktrees) -> None:
        repo.git("branch", "old")
        for branch in ("new", "old"):
            made = await opened(worktrees, repo, branch)
            Repo(made.top).write("left by the agent", "x")
            await worktrees.discard(made)
        nothing_is_left(repo, "old")

    async def test_a_link_is_not_followed(
        self, repo: Repo, worktrees: Worktrees, tmp_path: Path
    ) -> None:
        made = await opened(worktrees, repo, "topic")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/file").touch()
        (made.top / "link").symlink_to(tmp_path / "outside")
        (tmp_path / "alias").symlink_to(made.top)
        with pytest.raises(ApiError):
            await worktrees.remove(str(tmp_path / "alias"))
        await worktrees.remove(str(made.top))
        assert (tmp_path / "outside/file").exists()
