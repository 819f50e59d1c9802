"""The client against a real service, with a real machine and the demo agent.

The synchronous client is generated from it; the examples of the documentation and the command line
use that one.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from outrider.contract.ids import new_id
from outrider.contract.resources import Message, PendingAction
from outrider.sdk import (
    ApprovalRequired,
    AskTimeout,
    AsyncAgent,
    AsyncMachine,
    AsyncOutrider,
    AuthenticationError,
    Conflict,
    Delta,
    Event,
    MissingApiKey,
    NotFound,
    OutriderError,
    SessionEnded,
)
from tests.rig.waiting import TIMEOUT
from tests.sdk.conftest import Workplace

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_machines_are_got_by_id_or_nickname(
    client: AsyncOutrider, machine: AsyncMachine, workplace: Workplace
) -> None:
    assert (machine.id, machine.nickname) == (workplace.machine_id, "laptop")
    assert machine.connected
    assert (await client.machines.get(machine.id)).id == machine.id
    assert [listed.id for listed in await client.machines.list()] == [machine.id]
    assert (await machine.status()).machine is not None
    for name in ("no-such-machine", "machine_x", ""):
        with pytest.raises(NotFound) as caught:
            await client.machines.get(name)
        assert caught.value.status == 404


async def test_ask_returns_the_reply_of_the_turn(agent: AsyncAgent) -> None:
    reply = await agent.ask("Write a test", timeout=TIMEOUT)
    assert reply.status == "idle"
    assert reply.text.endswith("You said: Write a test")
    assert [message.role for message in reply.messages] == ["assistant"]
    assert (await agent.chat(limit=1)).messages == reply.messages
    assert (await agent.status()).status == "idle"


async def test_the_reply_of_a_turn_has_only_its_own_messages(agent: AsyncAgent) -> None:
    first, second = await asyncio.gather(
        agent.ask("messages 3", timeout=TIMEOUT), agent.ask("messages 2", timeout=TIMEOUT)
    )
    assert (len(first.messages), len(second.messages)) == (3, 2)
    assert {message.id for message in first.messages}.isdisjoint(
        message.id for message in second.messages
    )


async def test_a_failed_turn_is_a_reply_with_its_error(agent: AsyncAgent) -> None:
    failed = await agent.ask("fail", timeout=TIMEOUT)
    assert failed.status == "error"
    assert failed.error == (await agent.status()).error
    assert failed.error
    better = await agent.ask("Better?", timeout=TIMEOUT)
    assert (better.status, better.error) == ("idle", None)


async def test_an_approval_interrupts_an_ask(agent: AsyncAgent, client: AsyncOutrider) -> None:
    with pytest.raises(ApprovalRequired) as caught:
        await agent.ask("tool", timeout=TIMEOUT)
    action = caught.value.action
    assert action is not None
    assert "demo.txt" in action.message
    assert "demo.txt" in str(caught.value)
    with pytest.raises(Conflict) as pending:
        await agent.send("Hello?")
    assert pending.value.code == "APPROVAL_PENDING"
    assert pending.value.request_id
    asked = [
        approval for approval in await client.approvals.pending() if approval.action.id == action.id
    ]
    assert [approval.target_id for approval in asked] == [agent.id]
    assert (await agent.approve(action_id=action.id)).option_id
    assert (await agent.reply(caught.value.cursor, timeout=TIMEOUT)).text == "Approved."


async def test_a_function_answers_approvals(agent: AsyncAgent) -> None:
    asked: list[PendingAction] = []

    def by_option(action: PendingAction) -> str:
        asked.append(action)
        return next(option.id for option in action.options if option.kind == "reject_once")

    async def later(action: PendingAction) -> str:
        asked.append(action)
        return "approve"

    reply = await agent.ask("tool", timeout=TIMEOUT, on_approval=by_option)
    assert reply.text.endswith("Rejected.")
    reply = await agent.ask("tool", timeout=TIMEOUT, on_approval=later)
    assert reply.text.endswith("Approved.")
    assert ["demo.txt" in action.message for action in asked] == [True, True]
    assert (await agent.ask("edit", timeout=TIMEOUT, on_approval="reject")).status == "idle"
    cursor = (await agent.send("tool")).cursor
    assert (await agent.reply(cursor, timeout=TIMEOUT, on_approval="approve")).status == "idle"


async def test_an_approval_in_a_stream_is_answered(agent: AsyncAgent) -> None:
    streamed = agent.stream("tool", timeout=TIMEOUT, on_approval="approve")
    messages = [part async for part in streamed if isinstance(part, Message)]
    assert messages[-1].content == "Approved."
    assert messages == (await agent.chat(limit=len(messages))).messages


async def test_a_question_that_a_function_leaves_open_is_raised(agent: AsyncAgent) -> None:
    with pytest.raises(ApprovalRequired) as caught:
        await agent.ask("tool", timeout=TIMEOUT, on_approval=lambda _: None)
    with pytest.raises(ValueError, match="no answer"):
        await agent.reply(caught.value.cursor, timeout=TIMEOUT, on_approval=lambda _: "maybe")
    await agent.reject()
    await agent.reply(caught.value.cursor, timeout=TIMEOUT)


async def test_a_question_that_somebody_else_answers_first(agent: AsyncAgent) -> None:
    async def too_late(action: PendingAction) -> str:
        await agent.approve(action_id=action.id)
        return "reject"

    reply = await agent.ask("tool", timeout=TIMEOUT, on_approval=too_late)
    assert reply.text.endswith("Approved.")


async def test_an_agent_stops_with_its_context(machine: AsyncMachine, workplace: Workplace) -> None:
    async with await machine.launch("demo", dir=str(workplace.project)) as agent:
        assert (await agent.ask("Hello", timeout=TIMEOUT)).status == "idle"
    assert (await agent.chat(limit=1)).state == "ended"


async def test_an_ask_that_takes_too_long_goes_on(agent: AsyncAgent) -> None:
    with pytest.raises(AskTimeout) as caught:
        await agent.ask("silent 600", timeout=0.5)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, OutriderError)
    assert (await agent.interrupt()).status == "idle"
    assert (await agent.reply(caught.value.cursor, timeout=TIMEOUT)).status == "idle"


async def test_a_stream_has_deltas_and_then_the_message(agent: AsyncAgent) -> None:
    texts: dict[str, str] = {}
    messages: list[Message] = []
    async for part in agent.stream("stream 1", timeout=TIMEOUT):
        if isinstance(part, Delta):
            before = texts.get(part.message_id, "") if part.op == "append" else ""
            texts[part.message_id] = before + part.text
        else:
            messages.append(part)
    (message,) = messages
    assert message.content.endswith("Done streaming.")
    assert texts == {message.id: message.content}


async def test_a_stream_has_every_message_once(agent: AsyncAgent) -> None:
    parts = [part async for part in agent.stream("messages 50", timeout=TIMEOUT)]
    contents = [part.id for part in parts if isinstance(part, Message)]
    assert len(contents) == len(set(contents)) == 50


async def test_a_stream_ends_with_an_approval(agent: AsyncAgent) -> None:
    with pytest.raises(ApprovalRequired) as caught:
        [part async for part in agent.stream("edit", timeout=TIMEOUT)]
    await agent.reject()
    assert (await agent.reply(caught.value.cursor, timeout=TIMEOUT)).status == "idle"


async def test_a_stream_ends_with_its_timeout(agent: AsyncAgent) -> None:
    with pytest.raises(AskTimeout):
        [part async for part in agent.stream("stream 600", timeout=0.1)]
    await agent.interrupt()


async def test_a_reply_of_a_session_that_ends_is_an_error(
    machine: AsyncMachine, workplace: Workplace
) -> None:
    agent = await machine.launch("demo", dir=str(workplace.project))
    accepted = await agent.send("silent 600")
    asking = asyncio.create_task(agent.reply(accepted.cursor, timeout=TIMEOUT))
    await agent.stop()
    with pytest.raises(SessionEnded):
        await asking
    assert (await agent.chat()).state == "ended"
    ended = await machine.sessions(state="ended")
    assert agent.session_id in [session.id for session in ended]
    with pytest.raises(NotFound):
        await agent.status()


async def test_stopping_a_session_that_has_ended_does_nothing(
    machine: AsyncMachine, client: AsyncOutrider, workplace: Workplace
) -> None:
    agent = await machine.launch("demo", dir=str(workplace.project))
    assert (await agent.stop()).stopped == [agent.session_id]
    assert (await agent.stop()).stopped == []
    assert (await client.agent(agent.id).stop()).stopped == []
    with pytest.raises(NotFound):
        await client.agent(f"{machine.id}:session:{new_id('session')}").stop()


async def test_stopping_an_ended_session_still_removes_its_worktree(
    machine: AsyncMachine, tmp_path: Path
) -> None:
    for command in ("init --quiet", "-c user.name=T -c user.email=t@t commit -qm A --allow-empty"):
        assert (await machine.run(f"git {command}", cwd=str(tmp_path))).exit_code == 0
    agent = await machine.launch("demo", dir=str(tmp_path), worktree="try")
    workspace = (await agent.status()).workspace
    assert workspace is not None
    await agent.stop()
    assert (await machine.run(f"ls {workspace.path}")).exit_code == 0
    assert (await agent.stop(remove_worktree=True)).stopped == []
    assert (await machine.run(f"ls {workspace.path}")).exit_code != 0
    await agent.stop(remove_worktree=True)


async def test_messages_are_queued_withdrawn_rejected_or_interrupt(agent: AsyncAgent) -> None:
    await agent.send("silent 600")
    queued = await agent.send("Later")
    assert queued.queued
    assert [message.message_id for message in await agent.queue()] == [queued.message_id]
    with pytest.raises(Conflict) as busy:
        await agent.send("Now", delivery="reject")
    assert busy.value.code == "AGENT_BUSY"
    assert queued.message_id is not None
    assert (await agent.withdraw(queued.message_id)).message_id == queued.message_id
    reply = await agent.ask("Now!", delivery="interrupt", timeout=TIMEOUT)
    assert reply.text.endswith("You said: Now!")
    with pytest.raises(Conflict) as idle:
        await agent.interrupt()
    assert idle.value.code == "NOT_GENERATING"


async def test_events_from_now_on_and_after_one(client: AsyncOutrider, agent: AsyncAgent) -> None:
    async def follow(after: str | None = None) -> Event:
        names = ["agent:generating_completed"]
        async with aclosing(client.events(names, target=agent.id, after=after)) as events:
            async with asyncio.timeout(TIMEOUT):
                return await anext(events)

    before = await last_cursor(client, agent)
    following = asyncio.create_task(follow(before))
    await agent.ask("One", timeout=TIMEOUT)
    first = await following
    assert (first.event, first.target_id) == ("agent:generating_completed", agent.id)
    assert first.duration is not None
    assert first.payload["ideType"] == "demo"
    await agent.ask("Two", timeout=TIMEOUT)
    second = await follow(first.cursor)
    assert second.cursor > first.cursor
    assert await follow(before) == first


async def test_events_have_typed_payloads(client: AsyncOutrider, agent: AsyncAgent) -> None:
    before = await last_cursor(client, agent)
    await agent.ask("tool", timeout=TIMEOUT, on_approval="approve")
    await agent.ask("fail", timeout=TIMEOUT)
    seen: dict[str, Event] = {}
    async with aclosing(client.events(target=agent.id, after=before)) as events:
        async with asyncio.timeout(TIMEOUT):
            async for event in events:
                seen[event.event] = event
                if event.event == "agent:error":
                    break
    opened, resolved = seen["approval:opened"], seen["approval:resolved"]
    assert opened.action is not None
    assert opened.answer is None
    assert resolved.action == opened.action
    assert resolved.answer is not None
    assert (resolved.answer.action, resolved.answer.by.kind) == ("approve", "key")
    message = seen["chat:message"].message
    assert message is not None
    assert message.content == seen["chat:message"].payload["message"]["content"]
    assert seen["agent:error"].error
    assert seen["agent:error"].message is None


async def last_cursor(client: AsyncOutrider, agent: AsyncAgent) -> str:
    """Return the cursor of an event that has just happened."""
    async with aclosing(client.events("session:*,agent:*,chat:*", target=agent.id)) as events:
        following = asyncio.create_task(anext(events))
        while not following.done():
            await agent.ask("Say something", timeout=TIMEOUT)
        return (await following).cursor


async def test_an_unknown_cursor_is_a_gap(client: AsyncOutrider, agent: AsyncAgent) -> None:
    gaps: list[bool] = []
    received = client.events(target=agent.id, after="none", on_gap=lambda: gaps.append(True))
    async with aclosing(received) as events:
        following = asyncio.create_task(anext(events))
        while not following.done():
            await agent.ask("Say something", timeout=TIMEOUT)
        await following
    assert gaps == [True]


async def test_wrong_and_missing_keys_are_refused(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncOutrider(workplace.site.url, "ork_wrong") as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.machines.list()
        with pytest.raises(AuthenticationError):
            await anext(stranger.events())
    with pytest.raises(MissingApiKey, match="OUTRIDER_API_KEY"):
        AsyncOutrider(workplace.site.url)
    monkeypatch.setenv("OUTRIDER_URL", workplace.site.url + "/api/v1/")
    monkeypatch.setenv("OUTRIDER_API_KEY", workplace.key + "\n")
    async with AsyncOutrider() as client:
        assert await client.machines.list()


@pytest.mark.parametrize("target", ["", ".", ".."])
async def test_targets_that_would_be_another_path_are_refused(
    client: AsyncOutrider, target: str
) -> None:
    with pytest.raises(ValueError, match="ideId"):
        await client.agent(target).status()
