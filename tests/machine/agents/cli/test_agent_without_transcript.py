"""An agent that only a TOML file describes: no reader, no code, no transcript."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.contract.commands import SendChat, StopCli
from tests.machine.agents.machine import Agent, Machine, kill_server, until

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("others"),
]

PYTHON = """
type = "python"
display_name = "Python"
command = ["python3", "-q"]
install = "apt install python3"
settle = 0.3
[environment]
set = { PYTHON_HISTORY = "/dev/null", PYTHON_BASIC_REPL = "1" }
[input]
quit = ["C-d"]
prompt = '(?:>>>|\\.\\.\\.)(?: |\\Z)'
[[rules]]
name = "question"
status = "waiting_approval"
screen = 'y or n\\?\\Z'
[rules.dialog]
begin = '^>>> '
choices = [
    { id = "y", label = "Yes", kind = "allow_once", keys = ["y", "Enter"] },
    { id = "n", label = "No", kind = "reject_once", keys = ["n", "Enter"] },
]
[[rules]]
name = "prompt"
status = "idle"
screen = '^>>>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""


@pytest.fixture
async def agent(tmp_path: Path, box: Machine) -> AsyncIterator[Agent]:
    """Python, as an agent."""
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "python.toml").write_text(PYTHON)
    await box.stop()
    await box.start()
    launched = await box.launch(kind="python")
    assert launched.status == "idle"
    yield launched
    await box.sessions.ending.stop(StopCli(cli_type="python"))
    (kept,) = (tmp_path / "config" / "chats").iterdir()
    assert kept.stat().st_mode & 0o077 == 0


BLOCKED = "open('gate').close()"
"""Python that ends once somebody opens the gate."""


@pytest.fixture
def gate(box: Machine) -> Path:
    """A named pipe in the project: opening it to read waits until somebody opens it to write."""
    gate = box.project / "gate"
    os.mkfifo(gate)
    return gate


async def opens(gate: Path) -> None:
    """Open the gate for Python that waits for it, or is about to."""
    await asyncio.to_thread(gate.write_text, "")


async def chat(agent: Agent) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in await agent.messages()]


async def test_python_as_an_agent(box: Machine, agent: Agent, gate: Path) -> None:
    await agent.say(BLOCKED)
    assert agent.status == "generating"
    await opens(gate)
    await agent.until("idle")
    question = "open('answer', 'w').write(input('y or n?')) and None"
    await agent.say(question)
    await agent.until("waiting_approval")
    await agent.resolve("approve")
    await agent.until("idle")
    assert (box.project / "answer").read_text() == "y"
    assert box.event_names() == [
        "generating_started", "generating_completed",
        "generating_started", "waiting_approval", "generating_completed",
    ]  # fmt: skip
    assert await chat(agent) == [
        ("user", BLOCKED),
        ("user", question),
    ]
    ids = [message.id for message in await agent.messages()]
    await until(lambda: box.messages_reported == ids)


async def test_its_chat_is_read_off_the_screen_line_for_line(agent: Agent) -> None:
    lines = [f"{number}: {'x' * (number % 300)} {number}  ünï 漢字" for number in range(10_000)]
    ids = []
    for count in (3, 200, 10_000):
        printing = (
            f"for n in range({count}): print(f\"{{n}}: {{'x' * (n % 300)}} {{n}}  ünï 漢字\")\n"
        )
        user, answer = await agent.turn(printing)
        assert (user.role, user.content) == ("user", printing)
        assert answer.role == "assistant"
        assert answer.content.split("\n") == lines[:count]
        ids += [user.id, answer.id]
    await agent.turn("print('``` \\n| a | b |\\n\\n   indented')")
    assert (await chat(agent))[-1] == ("assistant", "``` \n| a | b |\n\n   indented")
    assert [message.id for message in await agent.messages()][:6] == ids


async def test_it_is_unbroken_by_a_restart_in_the_middle_of_a_turn(
    box: Machine, agent: Agent, gate: Path
) -> None:
    await agent.turn("print('one')")
    before = await agent.messages()
    message_id = await agent.say(f"print('two'); {BLOCKED}; print('three')")
    queued = await agent.session.send(SendChat(message="print('four')"))
    await box.stop()
    await box.start()
    assert agent.status == "generating"
    await opens(gate)
    await until(lambda: len(box.named("agent:generating_completed")) == 3)
    await agent.until("idle")
    messages = await agent.messages()
    assert messages[:2] == before
    assert [message.content for message in messages[2:]] == [
        f"print('two'); {BLOCKED}; print('three')", "two\nthree",
        "print('four')", "four",
    ]  # fmt: skip
    assert (messages[2].id, messages[4].id) == (message_id, queued.message_id)
    await box.stop()
    await box.start()
    assert await agent.messages() == messages


async def test_its_chat_stays_when_its_terminal_is_gone(box: Machine, agent: Agent) -> None:
    await agent.turn("print('one')")
    kill_server(box.socket)
    await agent.until("error")
    assert await chat(agent) == [("user", "print('one')"), ("assistant", "one")]


async def test_the_last_words_of_an_agent_that_ends_are_in_its_chat(agent: Agent) -> None:
    await agent.say("import time; time.sleep(0.5); print('last words'); exit(3)")
    await agent.until("error")
    assert (await chat(agent))[-1] == ("assistant", "last words")
