"""What a session has changed since it began: `diff` with the base `start`."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from outrider.contract.commands import ReadChanges, ReadFiles, Resume, SendChat, StopCli
from outrider.machine.sessions.session import AgentSession
from tests.machine.sessions.test_sessions import Desk, refused
from tests.machine.workspace.repositories import Repo, repository


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.journal.close()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = repository(tmp_path / "repo")
    made.commit(text="one\n")
    return made


def query(session: AgentSession, base: str = "start") -> ReadChanges:
    return ReadChanges(session_id=session.record.id, base=base)


async def changed(desk: Desk, session: AgentSession, base: str = "start") -> list[str]:
    changes = await desk.sessions.read_changes(query(session, base))
    assert changes.base == base
    return [file.path for file in changes.files]


async def restart(desk: Desk) -> None:
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.open()
    await desk.sessions.launcher.restore()


async def test_what_was_committed_since_the_session_began_is_in_it(desk: Desk, repo: Repo) -> None:
    session = await desk.launch(folder=repo.path)
    assert await changed(desk, session) == []
    repo.commit(committed="x\n")
    repo.write("untracked", "x\n")
    assert await changed(desk, session) == ["committed", "untracked"]
    assert await changed(desk, session, "HEAD") == ["untracked"]
    assert (await desk.sessions.read_changes(query(session))).ahead == 1


async def test_a_branch_of_that_name_is_reached_by_its_full_name(desk: Desk, repo: Repo) -> None:
    session = await desk.launch(folder=repo.path)
    repo.commit(first="x\n")
    repo.git("branch", "start")
    repo.commit(second="x\n")
    assert await changed(desk, session) == ["first", "second"]
    assert await changed(desk, session, "refs/heads/start") == ["second"]


async def test_a_restart_and_a_resume_keep_the_first_commit(desk: Desk, repo: Repo) -> None:
    session = await desk.launch(folder=repo.path)
    await session.send(SendChat(message="hello"))
    repo.commit(committed="x\n")
    await restart(desk)
    assert await changed(desk, session) == ["committed"]
    await desk.sessions.ending.stop(StopCli(cli_type="robot", session_id=session.record.id))
    await desk.sessions.launcher.resume(Resume(type="robot", session_id=session.record.id))
    assert await changed(desk, session) == ["committed"]


async def test_everything_is_new_if_it_began_before_the_first_commit(
    desk: Desk, tmp_path: Path
) -> None:
    repo = repository(tmp_path / "empty")
    session = await desk.launch(folder=repo.path)
    repo.commit(first="x\n")
    repo.commit(second="x\n")
    changes = await desk.sessions.read_changes(query(session))
    assert [file.path for file in changes.files] == ["first", "second"]
    assert changes.ahead == 2


async def test_it_is_refused_where_it_is_not_known(desk: Desk, repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    late = await desk.launch(folder=tmp_path / "later")
    Repo(tmp_path / "later").git("init", "--quiet")
    old = await desk.launch(folder=repo.path)
    desk.journal.save_session(msgspec.structs.replace(old.record, start_commit=None))
    await restart(desk)
    for session in (late, old):
        error = await refused(desk.sessions.read_changes(query(session)))
        assert error.status == 409
        assert "another `base`" in error.message


async def test_it_is_refused_where_the_commit_is_gone(desk: Desk, repo: Repo) -> None:
    session = await desk.launch(folder=repo.path)
    desk.journal.save_session(msgspec.structs.replace(session.record, start_commit="1" * 40))
    await restart(desk)
    error = await refused(desk.sessions.read_changes(query(session)))
    assert error.status == 409
    assert "no longer" in error.message


async def test_a_link_in_the_place_of_the_directory_is_not_followed(
    desk: Desk, repo: Repo, tmp_path: Path
) -> None:
    secret = repository(tmp_path / "secret")
    secret.commit(key="SECRET\n")
    secret.write("key", "changed\n")
    session = await desk.launch(folder=repo.path)
    repo.path.rename(tmp_path / "moved")
    repo.path.symlink_to(secret.path)
    for awaitable in (
        desk.sessions.read_changes(query(session, "HEAD")),
        desk.sessions.read_files(ReadFiles(session_id=session.record.id, path="key")),
        desk.sessions.read_files(ReadFiles(session_id=session.record.id)),
    ):
        error = await refused(awaitable)
        assert error.status == 409
        assert "not read" in error.message
    await desk.sessions.ending.stop(StopCli(cli_type="robot", session_id=session.record.id))
    resume = Resume(type="robot", session_id=session.record.id)
    assert (await refused(desk.sessions.launcher.resume(resume))).code == "NOT_RESUMABLE"


async def test_a_directory_that_was_named_through_a_link_is_read(
    desk: Desk, repo: Repo, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(repo.path)
    session = await desk.launch(folder=tmp_path / "link")
    repo.write("new", "x\n")
    assert await changed(desk, session) == ["new"]
