"""Fixtures: `outrider up` on a machine of its own."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outrider.machine.settings import DaemonSettings
from tests.machine.agents.conftest import agents_bin, install  # noqa: F401  # fixtures
from tests.machine.agents.kinds.claude_code import environment as claude_environment
from tests.machine.agents.kinds.claude_code import seed_claude
from tests.machine.agents.machine import StubModel, agent_environment, kill_server
from tests.rig.processes import environment
from tests.rig.stores import SQLite
from tests.system.up import Up


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The HOME of the user who starts `outrider up`, with a project in it."""
    folder = tmp_path / "home"
    (folder / "project").mkdir(parents=True)
    seed_claude(folder, folder / "project")
    return folder


@pytest.fixture
def tmux_socket(tmp_path: Path) -> Iterator[str]:
    """The name of the tmux server of `up`, which is killed at the end."""
    name = DaemonSettings(tmp_path / "config").tmux_socket
    yield name
    kill_server(name)


@pytest.fixture
def env(
    tmp_path: Path,
    home: Path,
    tmux_socket: str,  # for the end of its server
    agents_bin: Path,  # noqa: F811
    model: StubModel,
    sqlite: SQLite,
) -> dict[str, str]:
    """An environment with Claude Code installed and a stub model behind it."""
    sqlite.migrated(tmp_path / "data")
    env = environment(tmp_path / "data", port="0")
    env |= agent_environment(home, agents_bin, claude_environment(model.url))
    env["OUTRIDER_SECRET_KEY"] = "long enough, and it must not reach the agent"
    return env


@pytest.fixture
async def up(env: dict[str, str]) -> AsyncIterator[Up]:
    """`outrider up`, which has said that it is."""
    async with Up("-m", "outrider", "up", env=env) as running:
        await running.greeting()
        yield running
        running.signal(signal.SIGINT)
        assert await running.ends() == 0
