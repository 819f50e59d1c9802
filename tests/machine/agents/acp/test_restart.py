"""After a restart of the daemon: the session again where the agent can, its chat in any case."""

import asyncio

import pytest

from outrider.contract.commands import Resume, SendChat, StopCli
from outrider.contract.errors import ApiError
from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import Agent, Machine, running_in, until


async def test_a_restored_session_has_the_same_chat(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    for word in ("hello", "chunks", "tool"):
        await agent.turn(word)
    before = await agent.messages()
    await box.stop()
    assert not running_in(box.folder / "home")
    await box.start()
    assert agent.status == "idle"
    assert await agent.messages() == before
    await until(lambda: len(updates(agent)) == 4)  # it has told the chat anew, some of it late
    assert await agent.messages() == before
    assert {c.id for c in agent.session.state().controls} == {"model", "web", "mode"}
    assert (await agent.turn("and on"))[1].content == "You said: and on"
    assert (await agent.messages())[: len(before)] == before
    ids = [message.id for message in await agent.messages()]
    assert sorted(box.messages_reported) == sorted(ids)
    assert box.event_names() == ["generating_started", "generating_completed"] * 4


def updates(agent: Agent) -> list[str]:
    told = agent.evidence()["updates"]
    assert isinstance(told, list)
    return told


@pytest.mark.parametrize(
    ("flags", "more"),
    [(["--no-load"], ""), ([], "reopens = false")],
    ids=["it does not offer to", "its file says that it must not"],
)
async def test_a_session_ends_if_its_agent_cannot_open_it_again(
    box: Machine, flags: list[str], more: str
) -> None:
    provider_file(box.folder, *flags, more=more)
    await box.stop()
    await box.start()
    agent = await box.launch(kind="scripted")
    await agent.turn("hello")
    before = await agent.messages()
    await box.stop()
    await box.start()
    await agent.until("error")
    await until(lambda: agent.ended is not None)
    assert "cannot open an earlier session" in agent.error
    assert await agent.messages() == before
    with pytest.raises(ApiError) as refused:
        await agent.say("anybody?")
    assert refused.value.status == 404
    assert not running_in(box.folder / "home")
    assert agent.ended is not None
    assert agent.ended.end_reason == "machine_restarted"


@pytest.mark.parametrize(
    ("flags", "more"),
    [(["--no-load"], ""), ([], "reopens = false")],
    ids=["it does not offer to", "its file says that it must not"],
)
async def test_a_session_is_not_resumable_if_its_agent_cannot_open_it_again(
    box: Machine, flags: list[str], more: str
) -> None:
    provider_file(box.folder, *flags, more=more)
    await box.stop()
    await box.start()
    agent = await box.launch(kind="scripted")
    await agent.turn("hello")
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert agent.ended is not None
    assert not agent.ended.resumable
    assert "cannot open an earlier session" in (agent.ended.not_resumable or "")
    with pytest.raises(ApiError) as refused:
        await box.sessions.launcher.resume(Resume(type="scripted", session_id=agent.id))
    assert (refused.value.status, refused.value.code) == (409, "NOT_RESUMABLE")


async def test_a_resume_fails_if_the_agent_has_forgotten_the_session(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("hello")
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    (box.folder / "known").unlink()
    with pytest.raises(ApiError) as refused:
        await box.sessions.launcher.resume(Resume(type="scripted", session_id=agent.id))
    assert refused.value.status == 500
    assert "Session not found" in refused.value.message
    assert agent.ended is not None
    assert len(await agent.messages()) == 2
    assert not running_in(box.folder / "home")


async def test_a_restored_session_that_the_agent_has_forgotten_ends(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("hello")
    await box.stop()
    (box.folder / "known").unlink()
    await box.start()
    await agent.until("error")
    assert "Session not found" in agent.error
    assert len(await agent.messages()) == 2


async def test_a_restored_session_ends_if_its_directory_is_gone(box: Machine) -> None:
    other = box.folder / "other"
    other.mkdir()
    agent = await box.launch(other, kind="scripted")
    await box.stop()
    other.rmdir()
    await box.start()
    assert "is no longer there" in agent.error


async def test_a_restored_session_ends_if_a_link_has_replaced_its_directory(box: Machine) -> None:
    other, elsewhere = box.folder / "other", box.folder / "elsewhere"
    other.mkdir()
    elsewhere.mkdir()
    agent = await box.launch(other, kind="scripted")
    await agent.turn("hello")
    before = await agent.messages()
    await box.stop()
    other.rmdir()
    other.symlink_to(elsewhere)
    await box.start()
    assert agent.error == f"The directory {other} leads to another one, {elsewhere}"
    assert not running_in(box.folder / "home")
    assert await agent.messages() == before


async def test_a_directory_that_was_launched_through_a_link_is_opened_again(box: Machine) -> None:
    target, link = box.folder / "target", box.folder / "link"
    target.mkdir()
    link.symlink_to(target)
    agent = await box.launch(link, kind="scripted")
    await agent.turn("hello")
    await box.stop()
    await box.start()
    answer = (await agent.turn("and on"))[1].content
    assert answer.endswith("You said: and on")  # after what it repeats late


async def test_a_turn_cut_off_by_a_restart_is_an_error(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    message_id = await agent.say("sleep")
    await until(lambda: "agent_message_chunk" in str(agent.evidence()["updates"]))
    await box.stop()
    await box.start()
    await agent.until("error")
    assert "cut off" in (agent.session.state().error or "")
    user, answer, note = await agent.messages()
    assert (user.id, answer.content) == (message_id, "zzz awake")
    assert note.role == "system"
    assert box.event_names() == ["generating_started", "error"]
    await agent.turn("hello")
    assert agent.status == "idle"


async def test_queued_messages_are_sent_once_the_session_is_open_again(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("deaf")
    await agent.say("later")
    await box.stop()
    await box.start()
    assert (await agent.session.send(SendChat(message="latest"))).queued
    await until(lambda: len(box.named("agent:generating_completed")) == 2)
    await agent.until("idle")
    said = [m.content for m in await agent.messages() if m.role == "user"]
    assert said == ["deaf", "later", "latest"]


async def test_a_stop_at_any_moment_of_a_restart_leaves_no_process(box: Machine) -> None:
    await box.launch(kind="scripted")
    for moment in range(8):
        await box.stop()
        assert not running_in(box.folder / "home")
        await box.start()
        for _ in range(moment):
            await asyncio.sleep(0)
