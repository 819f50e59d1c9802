"""Sessions in a git worktree of their own: launched, resumed and stopped with it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.commands import (
    AgentStatusQuery,
    LaunchInWorktree,
    NewWorktree,
    RemoveWorktree,
    Resume,
    SendChat,
    StopCli,
)
from outrider.contract.errors import ApiError
from outrider.contract.resources import Worktree
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.sessions.session import AgentSession
from tests.machine.agents.machine import until
from tests.machine.agents.scripted import ScriptedAdapter
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
    made.commit(**{"inner/text": "one\n"})
    return made


async def launch(desk: Desk, folder: Path, branch: str = "topic") -> AgentSession:
    launched = await desk.sessions.launcher.launch_in_worktree(request(folder, branch))
    return desk.sessions.find(AgentStatusQuery(session_id=launched.session_id))


def request(folder: Path, branch: str = "topic") -> LaunchInWorktree:
    return LaunchInWorktree(cli_type="robot", dir=str(folder), worktree=NewWorktree(branch=branch))


async def stop(desk: Desk, session: AgentSession, *, remove: bool = True) -> None:
    await desk.sessions.ending.stop(
        StopCli(cli_type="robot", session_id=session.record.id), remove_worktree=remove
    )


def worktree_of(session: AgentSession) -> Worktree:
    assert session.record.worktree is not None
    return session.record.worktree


def is_there(session: AgentSession) -> bool:
    return Path(worktree_of(session).path).exists()


async def test_it_works_in_it_and_says_so(desk: Desk, repo: Repo) -> None:
    session = await launch(desk, repo.path / "inner")
    top = repo.path.with_name("repo.worktrees") / "topic"
    assert session.record.workspace.path == str(top / "inner")
    assert session.describe().worktree == Worktree(branch="topic", path=str(top), created=True)
    started = desk.of("session:started")[0].session
    assert started is not None
    assert started.worktree == session.describe().worktree
    assert (await desk.launch()).describe().worktree is None


async def test_it_is_removed_with_its_session(desk: Desk, repo: Repo) -> None:
    session = await launch(desk, repo.path)
    top = Path(worktree_of(session).path)
    (top / "new").write_text("x\n")
    error = await refused(stop(desk, session))
    assert (error.status, error.code) == (409, "WORKTREE_DIRTY")
    assert "'new'" in error.message
    assert (top / "new").exists()
    assert desk.sessions.describe()[0].state == "running"
    assert not desk.agent.closed

    Repo(top).commit()
    await stop(desk, session)
    assert not is_there(session)
    assert repo.git("show", "topic:new") == "x"
    record = desk.sessions.ended.get(session.record.id)
    assert record is not None
    assert record.last_state is not None
    assert record.last_state.worktree == Worktree(
        branch="topic", path=str(top), removed=True, created=True
    )
    assert "worktree was removed" in (record.not_resumable or "")
    error = await refused(desk.sessions.launcher.resume(Resume(type="robot", session_id=record.id)))
    assert error.code == "NOT_RESUMABLE"


async def test_it_stays_without_a_request(desk: Desk, repo: Repo) -> None:
    session = await launch(desk, repo.path)
    await stop(desk, session, remove=False)
    assert is_there(session)


async def test_a_resumed_session_goes_on_in_it(desk: Desk, repo: Repo) -> None:
    session = await launch(desk, repo.path)
    await session.send(SendChat(message="hello"))
    await stop(desk, session, remove=False)
    for _ in range(2):
        await desk.sessions.ending.detach()
        desk.journal.close()
        desk.open()
        await desk.sessions.launcher.restore()
        if not desk.sessions.describe():
            resume = Resume(type="robot", session_id=session.record.id)
            await desk.sessions.launcher.resume(resume)
        (state,) = desk.sessions.describe()
        assert state.worktree == worktree_of(session)
        assert state.workspace is not None
        assert state.workspace.path == worktree_of(session).path
    await stop(desk, session)
    assert not is_there(session)


async def test_a_session_without_one(desk: Desk) -> None:
    session = await desk.launch()
    error = await refused(stop(desk, session))
    assert (error.status, error.details[0].path) == (400, "removeWorktree")
    assert not desk.agent.closed


async def test_what_the_agent_writes_at_its_end_is_not_lost(
    desk: Desk, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await launch(desk, repo.path)
    top = Path(worktree_of(session).path)

    async def close() -> None:
        (top / "last words").touch()

    monkeypatch.setattr(desk.agent, "close", close)
    error = await refused(stop(desk, session))
    assert (error.status, error.code) == (409, "WORKTREE_DIRTY")
    assert error.message.startswith("The session was stopped")
    assert (top / "last words").exists()
    record = desk.sessions.ended.get(session.record.id)
    assert record is not None
    assert record.resumable


async def test_two_sessions_in_one(desk: Desk, repo: Repo) -> None:
    first, second = await asyncio.gather(launch(desk, repo.path), launch(desk, repo.path))
    assert worktree_of(first) == worktree_of(second)
    error = await refused(stop(desk, first))
    assert (error.status, error.code) == (409, None)
    assert second.record.id in error.message
    assert len(desk.sessions.describe()) == 2
    await stop(desk, first, remove=False)
    await stop(desk, second)
    assert not is_there(first)


async def test_a_session_that_ends_already(
    desk: Desk, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worktree stays, and the response does not say that it was removed."""
    session = await launch(desk, repo.path)
    closing, close = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        closing.set()
        await close.wait()

    monkeypatch.setattr(desk.agent, "close", slow)
    first = asyncio.create_task(stop(desk, session, remove=False))
    await closing.wait()
    second = asyncio.create_task(stop(desk, session))
    asyncio.get_running_loop().call_later(0.3, close.set)
    error = await refused(second)
    assert error.status in {404, 409}  # it ended while the changes were looked for, or after
    await first
    assert is_there(session)


async def test_an_agent_that_does_not_start_leaves_none(desk: Desk, repo: Repo) -> None:
    async def fail(record: SessionRecord) -> ScriptedAdapter:
        assert record.worktree is not None
        raise ApiError(500, "no power")

    await fails(desk, repo, fail)
    assert not repo.path.with_name("repo.worktrees").exists()
    assert repo.git("branch", "--format=%(refname:short)") == "main"


async def fails(desk: Desk, repo: Repo, with_: Any) -> None:
    """Launch with a provider that fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.provider, "launch", with_)
        error = await refused(desk.sessions.launcher.launch_in_worktree(request(repo.path)))
    assert (error.status, error.message) == (500, "no power")


async def test_one_that_another_launch_has_taken_meanwhile_stays(desk: Desk, repo: Repo) -> None:
    other: list[AgentSession] = []
    original = desk.provider.launch

    async def fail(record: SessionRecord) -> ScriptedAdapter:
        desk.provider.launch = original  # type: ignore[method-assign]
        other.append(await launch(desk, repo.path))
        raise ApiError(500, "no power")

    await fails(desk, repo, fail)
    assert is_there(other[0])
    await stop(desk, other[0])


async def test_an_agent_that_ends_by_itself_leaves_it(desk: Desk, repo: Repo) -> None:
    session = await launch(desk, repo.path)
    desk.provider.next_first = Observation(status="idle")
    desk.agent.see("error", error="It has ended", gone=True, end_reason="crashed")
    await until(lambda: desk.sessions.ended.get(session.record.id) is not None)
    assert is_there(session)


class TestRemovalAfterTheEnd:
    @pytest.fixture
    async def ended(self, desk: Desk, repo: Repo) -> AgentSession:
        session = await launch(desk, repo.path)
        await session.send(SendChat(message="hello"))
        await stop(desk, session, remove=False)
        return session

    async def remove(self, desk: Desk, session: AgentSession) -> str:
        query = RemoveWorktree(target=session.target_id)
        return (await desk.sessions.worktrees.remove(query)).removed

    async def test_it_is_removed_and_its_branch_stays(
        self, desk: Desk, repo: Repo, ended: AgentSession
    ) -> None:
        top = worktree_of(ended).path
        assert await self.remove(desk, ended) == top
        assert not is_there(ended)
        assert "topic" in repo.git("branch")
        assert len(repo.git("worktree", "list").splitlines()) == 1
        record = desk.sessions.ended.get(ended.record.id)
        assert record is not None
        assert record.last_state is not None
        assert record.last_state.worktree == worktree_of(ended)
        assert worktree_of(ended).removed
        assert not record.last_state.resumable
        resume = Resume(type="robot", session_id=record.id)
        assert (await refused(desk.sessions.launcher.resume(resume))).code == "NOT_RESUMABLE"
        assert (await refused(self.remove(desk, ended))).status == 404

    async def test_one_with_changes_stays(self, desk: Desk, ended: AgentSession) -> None:
        (Path(worktree_of(ended).path) / "new").touch()
        error = await refused(self.remove(desk, ended))
        assert (error.status, error.code) == (409, "WORKTREE_DIRTY")
        assert is_there(ended)

    async def test_one_of_a_running_session_stays(self, desk: Desk, ended: AgentSession) -> None:
        await desk.sessions.launcher.resume(Resume(type="robot", session_id=ended.record.id))
        error = await refused(self.remove(desk, ended))
        assert (error.status, error.code) == (409, None)
        assert "running" in error.message
        assert is_there(ended)

    async def test_one_in_which_another_session_works_stays(
        self, desk: Desk, repo: Repo, ended: AgentSession
    ) -> None:
        other = await launch(desk, repo.path)
        error = await refused(self.remove(desk, ended))
        assert (error.status, error.code) == (409, None)
        assert other.record.id in error.message
        await stop(desk, other, remove=False)
        await self.remove(desk, other)
        assert not is_there(ended)
        assert (await refused(self.remove(desk, ended))).status == 404

    async def test_one_that_outrider_did_not_create_is_never_removed(
        self, desk: Desk, repo: Repo, tmp_path: Path
    ) -> None:
        repo.git("worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "mine"))
        session = await launch(desk, repo.path)
        assert not worktree_of(session).created
        error = await refused(stop(desk, session))
        assert (error.status, error.code) == (409, None)
        assert "git worktree remove" in error.message
        await stop(desk, session, remove=False)
        assert (await refused(self.remove(desk, session))).status == 404
        assert is_there(session)

    async def test_one_that_is_gone_already(
        self, desk: Desk, repo: Repo, ended: AgentSession
    ) -> None:
        repo.git("worktree", "remove", worktree_of(ended).path)
        assert (await refused(self.remove(desk, ended))).status == 404
        assert worktree_of(ended).removed

    async def test_a_session_without_one(self, desk: Desk) -> None:
        session = await desk.launch()
        await stop(desk, session, remove=False)
        assert (await refused(self.remove(desk, session))).status == 404

    async def test_no_session_is_resumed_in_one_that_is_being_removed(
        self, desk: Desk, ended: AgentSession
    ) -> None:
        resume = Resume(type="robot", session_id=ended.record.id)
        removal, resumed = await asyncio.gather(
            self.remove(desk, ended), refused(desk.sessions.launcher.resume(resume))
        )
        assert removal == worktree_of(ended).path
        assert resumed.code == "NOT_RESUMABLE"
