"""What a real agent is told over its terminal, whenever the daemon dies."""

import asyncio

import pytest

from outrider.contract.commands import SendChat
from tests.agents.machine import Machine, until

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(90),
    pytest.mark.xdist_group("claude-code"),
]


async def test_a_daemon_that_is_killed_just_after_it_typed_does_not_type_again(
    box: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await box.launch()
    await agent.say("first SLOW:0.02")
    reached = asyncio.Event()

    def killed(*_: object) -> None:
        reached.set()
        raise asyncio.CancelledError

    monkeypatch.setattr(box.journal, "save_message_id", killed)
    message_id = (await agent.session.send(SendChat(message="second"))).message_id
    await asyncio.wait_for(reached.wait(), 3 * box.kind.seconds)
    await box.stop()
    await box.start()
    await agent.until("idle")
    await until(lambda: not agent.machine.journal.queue(agent.id), box.kind.seconds)
    await agent.until("idle")
    sent = [message for message in await agent.messages() if message.role == "user"]
    assert [message.content for message in sent] == ["first SLOW:0.02", "second"]
    assert sent[1].id == message_id
