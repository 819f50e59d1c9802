"""Each message is typed into a real agent once, even if the daemon is killed meanwhile."""

import asyncio
import sys

import pytest

from outrider.contract.commands import SendChat
from tests.machine.agents.machine import Machine, until
from tests.machine.agents.scenario import stays

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
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
    await asyncio.wait_for(reached.wait(), box.kind.seconds)
    await box.stop()
    await box.start()
    await agent.until("idle")
    await until(lambda: not agent.machine.journal.queue(agent.id), box.kind.seconds)
    await agent.until("idle")
    sent = [message for message in await agent.messages() if message.role == "user"]
    assert [message.content for message in sent] == ["first SLOW:0.02", "second"]
    assert sent[1].id == message_id


SLOW_AIDER = """
import os, sys, time
history = sys.argv[sys.argv.index("--chat-history-file") + 1]
os.makedirs(os.path.dirname(history), exist_ok=True)
while True:
    print("─" * 120 + "\\n> ", end="", flush=True)
    line = sys.stdin.readline().strip()
    time.sleep(4)
    with open(history, "a") as file:
        file.write(f"\\n#### {line}  \\n")
    print("Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ", end="", flush=True)
    with open("answer", "a") as file:
        file.write(sys.stdin.readline())
"""


async def test_a_message_that_is_recorded_late_is_not_submitted_twice(box: Machine) -> None:
    script = box.folder / "aider.py"
    script.write_text(SLOW_AIDER)
    providers = box.folder / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "aider.toml").write_text(f'command = ["{sys.executable}", "{script}"]')
    await box.stop()
    await box.start()
    agent = await box.launch(kind="aider")
    await agent.say("do it")
    await agent.until("waiting_approval")
    await stays(agent, "waiting_approval", 1)
    await agent.resolve("reject")  # a key left over would have answered with the default, yes
    await agent.until("idle")
    assert (box.project / "answer").read_text() == "n\n"
