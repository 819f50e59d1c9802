"""An agent that draws before it takes keys, or long after: what a real one does when it is busy."""

import sys
from pathlib import Path

import pytest

from outrider.contract.commands import StopCli
from tests.machine.agents.machine import Machine
from tests.machine.agents.scenario import stays

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("others"),
]

PROVIDER = """
type = "late"
display_name = "Late"
command = ["{python}", "-S", "{program}"]
install = "-"
settle = 0.1
[input]
empty = '^> \\Z'
prompt = '> '
[[rules]]
name = "question"
status = "waiting_approval"
screen = 'Trust it\\? y/n\\Z'
[rules.dialog]
choices = [
    {{ id = "y", label = "Yes", kind = "allow_once", keys = ["y"] }},
    {{ id = "n", label = "No", kind = "reject_once", keys = ["n"] }},
]
[[rules]]
name = "prompt"
status = "idle"
screen = '^{prompt}\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""

BEGIN = """
import sys, termios, time, tty
print({shown!r}, end="", flush=True)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
tty.setraw(0)
termios.tcflush(0, termios.TCIFLUSH)  # what was typed until now is lost
def key():
    return sys.stdin.buffer.raw.read(1).decode()
"""
START = BEGIN.format(shown="> ")

TAKES = """
text = ""
while True:
    typed = key()
    if typed == "\\r":
        print(f"\\r\\nyou said {text}\\r\\n> ", end="", flush=True)
        text = ""
    else:
        text += typed
        print(typed, end="", flush=True)
"""

ASKS = """
print("\\r\\nTrust it? y/n", end="", flush=True)
"""

WAITS = """
print("\\r\\n> " if key() == "y" else "\\r\\nno", end="", flush=True)
"""


WORKS = """
while (typed := key()) != "\\r":
    print(typed, end="", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    pass
print("\\r\\nTrust it? y/n", end="", flush=True)
print("\\r\\n> " if key() == "n" else "\\r\\ndone", end="", flush=True)
key()
"""


async def launch(box: Machine, program: str, prompt: str = ">") -> None:
    """Start the daemon's part again with one more provider, whose agent is this program."""
    script = box.folder / "late.py"
    script.write_text(program)
    providers = box.folder / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "late.toml").write_text(
        PROVIDER.format(python=sys.executable, program=Path(script), prompt=prompt)
    )
    await box.stop()
    await box.start()


async def test_a_message_right_after_the_launch_is_taken(box: Machine) -> None:
    await launch(box, START + TAKES)
    agent = await box.launch(kind="late")
    assert agent.status == "idle"
    added = await agent.turn("hello")
    assert [(message.role, message.content) for message in added] == [
        ("user", "hello"),
        ("assistant", "you said hello"),
    ]
    await box.sessions.ending.stop(StopCli(cli_type="late"))


@pytest.mark.parametrize(
    "begins", [START + ASKS, BEGIN.format(shown="Trust it? y/n")], ids=["late", "before it listens"]
)
async def test_a_dialog_is_what_the_launch_tells_and_an_answer_is_taken(
    box: Machine, begins: str
) -> None:
    await launch(box, begins + WAITS + TAKES)
    agent = await box.launch(kind="late")
    assert agent.status == "waiting_approval"
    await agent.resolve("approve")
    await agent.until("idle")
    await box.sessions.ending.stop(StopCli(cli_type="late"))


async def test_a_message_that_is_drawn_late_is_not_submitted_twice(box: Machine) -> None:
    await launch(box, START + WORKS, prompt=r">[^\n]*")
    agent = await box.launch(kind="late")
    await agent.say("do it")
    await agent.until("waiting_approval")
    await stays(agent, "waiting_approval", 1)  # a second Enter would have answered
    await agent.resolve("reject")
    await agent.until("idle")
    await box.sessions.ending.stop(StopCli(cli_type="late"))
