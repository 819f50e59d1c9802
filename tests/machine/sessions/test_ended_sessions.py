"""The end of sessions: why, reported once, and what stays of them."""

import asyncio
import itertools
import stat
from pathlib import Path

import pytest

from outrider.contract.commands import AgentStatusQuery, ReadChat, SendChat, StopCli
from outrider.contract.errors import ApiError
from outrider.contract.ids import new_id
from outrider.contract.resources import EndReason, Message, Session
from outrider.machine.agents.adapter import Observation
from outrider.machine.sessions.ended_chats import EndedChats, HistoryLimits
from outrider.machine.sessions.session import AgentSession
from tests.machine.agents.machine import until
from tests.machine.sessions.test_sessions import DAEMON, Desk, desk, refused

__all__ = ["desk"]


async def stop(desk: Desk, session: AgentSession) -> None:
    """Stop a session as a client does."""
    await desk.sessions.ending.stop(StopCli(cli_type="robot", session_id=session.record.id))


def last_state(desk: Desk, session: AgentSession) -> Session:
    """Return the last state of an ended session."""
    record = desk.sessions.ended.get(session.record.id)
    assert record is not None
    assert record.last_state is not None
    return record.last_state


async def restart(desk: Desk) -> None:
    """Start the daemon again."""
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.open()
    await desk.sessions.launcher.restore()


async def test_a_stopped_session_is_kept_with_its_chat(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.see("idle", title="Fix it")
    desk.agent.say("one", "two")
    chat = list(desk.agent.chat)
    await stop(desk, session)
    ended = last_state(desk, session)
    assert (ended.state, ended.end_reason, ended.title) == ("ended", "stopped", "Fix it")
    assert ended.ended_at is not None
    (event,) = desk.of("session:ended")
    assert event.session == ended

    for _ in range(2):
        read = await desk.sessions.read_chat(ReadChat(target=f"{DAEMON}:session:{ended.id}"))
        assert (read.state, read.type, read.resumable) == ("ended", "robot", True)
        assert (read.messages, read.total_messages) == (chat, 2)
        assert (read.id, read.title) == (ended.target_id, "Fix it")
        last = await desk.sessions.read_chat(ReadChat(session_id=ended.id, after=chat[0].id))
        assert last.messages == chat[1:]
        assert (await refused(find(desk, ended.id))).status == 404
        await restart(desk)
    assert len(desk.of("session:ended")) == 1
    assert desk.sessions.describe() == []


async def find(desk: Desk, session_id: str) -> AgentSession:
    """Return a running session."""
    return desk.sessions.find(AgentStatusQuery(session_id=session_id))


async def test_its_chat_is_for_its_owner_only(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.say("secret")
    await stop(desk, session)
    files = list((desk.folder / "chats").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600]
    assert stat.S_IMODE((desk.folder / "chats").stat().st_mode) == 0o700


@pytest.mark.parametrize("reason", ["exited", "crashed", "machine_restarted"])
async def test_an_agent_that_ends_by_itself(desk: Desk, reason: EndReason) -> None:
    session = await desk.launch()
    desk.agent.say("last words")
    desk.agent.see("error", error="It has ended", gone=True, end_reason=reason)
    await until(lambda: desk.sessions.ended.get(session.record.id) is not None)
    ended = last_state(desk, session)
    assert (ended.end_reason, ended.status, ended.error) == (reason, "error", "It has ended")
    assert desk.names() == ["error"]
    assert desk.agent.closed
    read = await desk.sessions.read_chat(ReadChat(session_id=ended.id))
    assert [message.content for message in read.messages] == ["last words"]


async def test_a_question_ends_with_its_session(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.ask("act_1")
    await stop(desk, session)
    assert last_state(desk, session).pending_action is None
    names = [event.event for event in desk.of("approval:resolved", "session:ended")]
    assert names == ["approval:resolved", "session:ended"]


async def test_what_waits_for_an_agent_that_ends_is_dropped(desk: Desk) -> None:
    session = await desk.launch()
    await session.send(SendChat(message="now"))
    await session.send(SendChat(message="later"))
    await stop(desk, session)
    assert desk.journal.queue(session.record.id) == []


async def test_two_that_stop_it_at_once(desk: Desk) -> None:
    session = await desk.launch()
    await asyncio.gather(stop(desk, session), stop(desk, session))
    assert len(desk.of("session:ended")) == 1


async def test_a_daemon_killed_before_the_end_is_saved(desk: Desk) -> None:
    session = await desk.launch()
    session.record.end_reason = "stopped"  # saved before the agent is ended
    desk.journal.save_session(session.record)
    desk.provider.next_first = Observation(
        status="error", error="gone", gone=True, end_reason="crashed"
    )
    await restart(desk)
    assert last_state(desk, session).end_reason == "stopped"
    assert len(desk.of("session:ended")) == 1


async def test_a_daemon_killed_before_the_end_is_reported(desk: Desk) -> None:
    session = await desk.launch()
    await stop(desk, session)
    record = desk.sessions.ended.get(session.record.id)
    assert record is not None
    record.emitted_ended = False  # as it is until the event is in the journal
    desk.journal.save_session(record)
    await restart(desk)
    await restart(desk)
    first, again = desk.of("session:ended")
    assert first.id == again.id, "the service stores it once"


async def test_an_agent_gone_after_a_restart(desk: Desk) -> None:
    session = await desk.launch()
    desk.provider.next_first = Observation(
        status="error", error="gone", gone=True, end_reason="machine_restarted"
    )
    await restart(desk)
    assert desk.sessions.describe() == []
    assert last_state(desk, session).end_reason == "machine_restarted"


async def test_a_provider_that_was_removed(desk: Desk) -> None:
    session = await desk.launch("android")
    await desk.sessions.ending.detach()
    desk.journal.close()
    desk.kinds.remove("android")
    desk.open()
    await desk.sessions.launcher.restore()
    ended = last_state(desk, session)
    assert (ended.end_reason, ended.not_resumable) == (
        "machine_restarted",
        "Its provider file was removed",
    )


async def test_an_agent_that_cannot_be_ended_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await desk.launch()

    async def broken() -> None:
        raise ApiError(500, "tmux does not answer")

    monkeypatch.setattr(desk.agent, "close", broken)
    assert (await refused(stop(desk, session))).status == 500
    assert [state.id for state in desk.sessions.describe()] == [session.record.id]
    monkeypatch.undo()
    await stop(desk, session)
    assert last_state(desk, session).end_reason == "stopped"


async def test_a_full_disk_costs_the_chat_but_not_the_end(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "chats").write_text("no folder")
    session = await desk.launch()
    desk.agent.say("lost")
    await stop(desk, session)
    assert last_state(desk, session).end_reason == "stopped"


def test_what_exceeds_the_limits(tmp_path: Path) -> None:
    day = 86_400_000
    chats = EndedChats(tmp_path, HistoryLimits(days=90, size=4000, count=3))
    ends = {f"session_{number}": number * day for number in range(5)}
    for session_id in ends:
        chats.save(session_id, {"robot": [said("x" * 1000)], "other": [said("y")]}, "robot")
    assert chats.excess(ends, 4 * day) == ["session_1", "session_0"], "the count"
    small = EndedChats(tmp_path, HistoryLimits(size=3000))
    assert small.excess(ends, 4 * day) == ["session_2", "session_1", "session_0"], "the size"
    assert EndedChats(tmp_path).excess(ends, 93 * day) == ["session_2", "session_1", "session_0"]
    chats.delete("session_0")
    chats.delete_others(["session_1", "session_2"])
    assert {path.name for path in tmp_path.iterdir()} == {
        "session_1.jsonl",
        "session_1.other.jsonl",
        "session_2.jsonl",
        "session_2.other.jsonl",
    }


def said(content: str) -> Message:
    """Return a message."""
    return Message(
        id=new_id("msg"), index=0, role="user", kind="text", content=content, timestamp=1
    )


async def test_an_old_session_is_deleted_with_its_chat(desk: Desk) -> None:
    session = await desk.launch()
    desk.agent.say("old")
    await stop(desk, session)
    desk.time = itertools.count(100 * 86_400_000)
    await desk.sessions.ending.prune()
    assert desk.sessions.ended.get(session.record.id) is None
    assert desk.journal.sessions() == []
    assert list((desk.folder / "chats").iterdir()) == []
