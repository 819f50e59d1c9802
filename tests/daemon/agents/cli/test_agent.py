"""One agent in a terminal, as its session drives it: what goes wrong around it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.contract.errors import ApiError
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.machine import Machine, machine

pytestmark = pytest.mark.timeout(120)

ECHO = """
type = "echo"
display_name = "Echo"
command = ["sh", "-c", 'exec python3 -S "$HOME/echo.py"']
install = "-"
settle = 0.1
[input]
prompt = '> '
[[rules]]
name = "exponential"
status = "error"
screen = '^you said (a|aa)+!'
[[rules]]
name = "prompt"
status = "idle"
screen = '^>\\Z'
[[rules]]
name = "no prompt"
status = "generating"
screen = '.'
"""

SCRIPT = """
while True:
    print("you said", input("> "))
"""


def seed(home: Path, project: Path, model: str) -> None:
    """Put the program of the agent into its HOME."""
    home.mkdir()
    (home / "echo.py").write_text(SCRIPT)


KIND = AgentKind(type="echo", seed=seed, environment=lambda model: {})


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine with an agent that says what it is told."""
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "echo.toml").write_text(ECHO)
    async with machine(tmp_path, KIND, tmp_path, "") as running:
        yield running


async def test_a_screen_that_a_pattern_cannot_read_in_time_is_an_error(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    await agent.say("a" * 70)
    await agent.until("error")
    error = agent.session.describe().error
    assert error is not None
    assert "'^you said (a|aa)+!' takes too long" in error
    with pytest.raises(ApiError, match="takes too long"):  # it might answer a question
        await agent.say("more")
