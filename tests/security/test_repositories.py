"""Repositories that somebody else wrote: what they show of the machine's other files.

`tests/machine/workspace` has each in detail.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.machine.workspace.repositories import Repo, repository, write_index
from tests.rig.mcp import ACCEPT, message
from tests.security.machine_target import MachineTarget, machine_target
from tests.security.target import MB

SECRET = "THE SECRET OF THIS USER"


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[MachineTarget]:
    """A machine agent to attack; its user has a secret in the home directory."""
    async with machine_target(tmp_path) as running:
        (running.home / "secret.txt").write_text(SECRET)
        yield running


@pytest.fixture
def repo(target: MachineTarget) -> Repo:
    made = repository(target.home / "repo")
    made.commit(text="one\n")
    return made


@pytest.fixture
def private(target: MachineTarget) -> Repo:
    """Another repository of this user."""
    made = repository(target.home / "private")
    made.commit(key=SECRET)
    return made


async def every_view(target: MachineTarget, agent: str, base: str = "HEAD") -> str:
    """Return what each way to read the changes answers, whatever its status."""
    async with httpx.AsyncClient(
        base_url=target.url, headers={"Authorization": f"Bearer {target.key}"}, timeout=70
    ) as client:
        path = f"/api/v1/shortcuts/{agent}"
        arguments: dict[str, Any] = {"agent": agent}
        call = message("tools/call", {"name": "get_diff", "arguments": arguments})
        responses = [
            await client.get(f"{path}/diff", params={"base": base}),
            await client.get(f"{path}/files"),
            await client.post("/mcp", json=call, headers=ACCEPT),
        ]
    assert all(response.status_code < 500 for response in responses)
    return "\n".join(response.text for response in responses)


async def test_names_in_an_index_show_no_file_outside(target: MachineTarget, repo: Repo) -> None:
    agent = await target.launch("echo", repo.path)
    (target.home / "inner").mkdir()
    (target.home / "inner" / "secret.txt").write_text(SECRET)
    (repo.path / "link").symlink_to(target.home / "inner")
    repo.write(".git/secret.txt", SECRET)
    absolute = os.fsencode(target.home / "secret.txt")
    for name in (
        b"../secret.txt",
        b"a/../../secret.txt",
        absolute,
        b"/" + absolute,
        b".git/secret.txt",
        b"link/secret.txt",
        b"link/../../secret.txt",
    ):
        write_index(repo, [name])
        assert SECRET not in await every_view(target, agent), name
        write_index(repo, [name, b"text"])
        assert SECRET not in await every_view(target, agent), name
    repo.git("read-tree", "HEAD")
    assert (await target.call("GET", f"/shortcuts/{agent}/diff"))["patch"]


async def test_objects_and_refs_of_another_repository_are_not_shown(
    target: MachineTarget, repo: Repo, private: Repo
) -> None:
    agent = await target.launch("echo", repo.path)
    theirs = private.git("rev-parse", "HEAD")
    git = repo.path / ".git"
    repo.write(".git/objects/info/alternates", f"{private.path}/.git/objects\n")
    assert SECRET not in await every_view(target, agent, theirs)
    (git / "objects" / "info" / "alternates").unlink()
    for place in (private.path / ".git" / "objects").iterdir():
        if not (git / "objects" / place.name).exists():
            (git / "objects" / place.name).symlink_to(place)
    (git / "refs" / "heads" / "theirs").symlink_to(
        private.path / ".git" / "refs" / "heads" / "main"
    )
    assert SECRET not in await every_view(target, agent, "theirs")
    assert SECRET not in await every_view(target, agent, theirs)
    git.rename(repo.path / "was")
    git.write_text(f"gitdir: {private.path}/.git\n")
    assert SECRET not in await every_view(target, agent)


async def test_a_link_in_the_place_of_the_directory_is_not_followed(
    target: MachineTarget, repo: Repo, private: Repo
) -> None:
    agent = await target.launch("echo", repo.path)
    private.write("new", SECRET)
    repo.path.rename(target.home / "moved")
    repo.path.symlink_to(private.path)
    assert SECRET not in await every_view(target, agent)
    answer = await target.call("GET", f"/shortcuts/{agent}/files?path=key", None, 409)
    assert "not read" in answer["error"]


async def test_sizes_that_a_repository_only_claims_take_no_memory(
    target: MachineTarget, repo: Repo
) -> None:
    agent = await target.launch("echo", repo.path)
    path = f"/shortcuts/{agent}/diff"
    with (repo.path / "large").open("wb") as file:
        file.truncate(16 * 1024 * MB)
    async with target.grows_at_most(150 * MB):
        (found,) = (await target.call("GET", path))["files"]
        assert (found["path"], found["binary"]) == ("large", True)
        repo.git("update-index", "--split-index")
        for number in range(16):
            with (repo.path / ".git" / f"sharedindex.{number:040}").open("wb") as part:
                part.truncate(500 * MB)
        await target.call("GET", path, None, 409)


async def test_repositories_on_which_git_hangs_hold_up_no_other(
    target: MachineTarget, repo: Repo
) -> None:
    hanging = repository(target.home / "hanging")
    agent, other = await asyncio.gather(
        target.launch("echo", hanging.path), target.launch("scripted", repo.path)
    )
    os.mkfifo(hanging.path / ".git" / "endless")
    hanging.write(".git/config", "[include]\npath = endless\n")
    path = f"{target.url}/api/v1/shortcuts/{agent}/diff"
    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {target.key}"}, timeout=70
    ) as client:
        hung = [asyncio.create_task(client.get(path)) for _ in range(24)]
        for _ in range(3):
            await target.call("GET", f"/shortcuts/{other}/diff")
        # They are served one after the other: most of them have not even begun.
        ended = [task.result().status_code for task in hung if task.done()]
        assert set(ended) <= {503, 504}
        assert ended.count(504) < 12
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
