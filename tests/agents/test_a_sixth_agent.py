"""An agent that only a TOML file describes: no reader, no code of its own."""

from pathlib import Path

import pytest

from outrider.contract.commands import StopCli
from tests.agents.machine import Machine

pytestmark = [pytest.mark.real_agent, pytest.mark.timeout(60)]

PYTHON = """
type = "python"
display_name = "Python"
command = ["python3", "-q", "-i", "-S"]
install = "apt install python3"
settle = 0.3
[input]
quit = ["C-d"]
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


async def test_python_as_an_agent(tmp_path: Path, box: Machine) -> None:
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "python.toml").write_text(PYTHON)
    await box.stop()
    await box.start()
    agent = await box.launch(kind="python")
    assert agent.status == "idle"
    await agent.say("import time; time.sleep(1.5)")
    assert agent.status == "generating"
    await agent.until("idle")
    await agent.say("open('answer', 'w').write(input('y or n?')) and None")
    await agent.until("waiting_approval")
    await agent.resolve("approve")
    await agent.until("idle")
    assert (box.project / "answer").read_text() == "y"
    assert [event.event.removeprefix("agent:") for event in box.events] == [
        "generating_started", "generating_completed",
        "generating_started", "waiting_approval", "generating_completed",
    ]  # fmt: skip
    await box.sessions.stop(StopCli(cli_type="python"))
