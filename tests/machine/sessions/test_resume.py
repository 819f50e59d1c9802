"""Ended sessions that are continued: by `launch` with `resume`, whatever the kind of agent."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.commands import AgentStatusQuery, ReadChat, Resume, SendChat, StopCli
from outrider.contract.errors import ApiError
from tests.machine.agents.machine import until
from tests.machine.sessions.test_sessions import Desk, refused


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.journal.close()


async def ended(desk: Desk) -> str:
    """Launch and stop a session; return its id."""
    session = await desk.launch()
    await session.send(SendChat(message="hello"))
    await desk.sessions.ending.stop(StopCli(cli_type="robot"))
    return session.record.id


def resume(session_id: str, kind: str = "robot") -> Resume:
    return Resume(type=kind, session_id=session_id)


async def test_a_resumed_session_is_the_same_one(desk: Desk) -> None:
    session_id = await ended(desk)
    before = (await desk.sessions.read_chat(ReadChat(session_id=session_id))).messages
    record = desk.sessions.ended.get(session_id)
    assert record is not None
    assert record.resumable
    launched = await desk.sessions.launcher.resume(resume(session_id))
    assert launched.session_id == session_id
    (session,) = desk.sessions.describe()
    assert (session.id, session.state, session.ended_at) == (session_id, "running", None)
    assert launched.session_target_id == session.target_id
    assert session.created_at == record.created_at
    assert desk.sessions.ended.get(session_id) is None
    chat = await desk.sessions.read_chat(ReadChat(session_id=session_id))
    assert (chat.state, chat.messages) == ("running", before)
    names = ("session:started", "session:ended")
    assert [event.event for event in desk.of(*names)] == [names[0], names[1], names[0]]


async def test_it_is_restored_and_can_end_again(desk: Desk) -> None:
    session_id = await ended(desk)
    for _ in range(2):
        await desk.sessions.launcher.resume(resume(session_id))
        await desk.sessions.ending.detach()
        desk.open()
        await desk.sessions.launcher.restore()
        assert [session.id for session in desk.sessions.describe()] == [session_id]
        await desk.sessions.ending.stop(StopCli(cli_type="robot"))
        assert desk.sessions.ended.get(session_id) is not None


async def test_an_ended_session_is_resumed_after_a_restart_of_the_daemon(desk: Desk) -> None:
    session_id = await ended(desk)
    desk.open()
    await desk.sessions.launcher.restore()
    assert (await desk.sessions.launcher.resume(resume(session_id))).session_id == session_id


async def test_of_two_at_once_one_succeeds(desk: Desk) -> None:
    session_id = await ended(desk)
    desk.provider.resuming = asyncio.Event()
    first = asyncio.create_task(desk.sessions.launcher.resume(resume(session_id)))
    await until(lambda: desk.journal.sessions()[0].ended_at is None)
    second = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (second.status, second.code) == (409, "NOT_RESUMABLE")
    chat = await desk.sessions.read_chat(ReadChat(session_id=session_id))
    assert chat.state == "ended"
    desk.provider.resuming.set()
    await first
    third = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (third.status, third.code) == (409, "NOT_RESUMABLE")
    assert len(desk.sessions.describe()) == 1


async def test_an_agent_that_does_not_start_leaves_the_session_ended(desk: Desk) -> None:
    session_id = await ended(desk)
    desk.provider.breaks = ApiError(500, "no power")
    failed = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (failed.status, failed.message) == (500, "no power")
    assert not desk.sessions.describe()
    desk.open()
    await desk.sessions.launcher.restore()
    assert not desk.sessions.describe()
    desk.provider.breaks = None
    assert (await desk.sessions.launcher.resume(resume(session_id))).session_id == session_id


async def test_an_agent_that_cannot_be_resumed(desk: Desk) -> None:
    desk.provider.unresumable = "Robots forget everything"
    session_id = await ended(desk)
    record = desk.sessions.ended.get(session_id)
    assert record is not None
    assert (record.resumable, record.not_resumable) == (False, "Robots forget everything")
    error = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (error.status, error.code) == (409, "NOT_RESUMABLE")
    assert "Robots forget everything" in error.message


async def test_what_is_not_there_any_more(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    session_id = (await desk.launch(folder=folder)).record.id
    await desk.sessions.ending.stop(StopCli(cli_type="robot"))
    folder.rmdir()
    error = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (error.status, error.code) == (409, "NOT_RESUMABLE")
    assert "no longer there" in error.message
    folder.mkdir()
    desk.provider.installed = False
    error = await refused(desk.sessions.launcher.resume(resume(session_id)))
    assert (error.status, error.code) == (409, "NOT_RESUMABLE")
    assert "not installed" in error.message


async def test_requests_that_are_wrong(desk: Desk) -> None:
    session_id = await ended(desk)
    for request, status in (
        (resume("session_00000000000000000000000000"), 404),
        (resume(session_id, "android"), 400),
        (resume(session_id, "unknown"), 400),
    ):
        assert (await refused(desk.sessions.launcher.resume(request))).status == status
    assert not desk.sessions.describe()


async def test_a_resumed_session_reports_a_new_error(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.see("error", error="broken", gone=True)
    session_id = session.record.id
    await until(lambda: desk.sessions.ended.get(session_id) is not None)
    await desk.sessions.launcher.resume(resume(session_id))
    assert desk.sessions.find(AgentStatusQuery(session_id=session_id)).status == "idle"
    desk.agent.see("error", error="broken")
    assert len(desk.of("agent:error")) == 2
