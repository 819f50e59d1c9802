"""A machine with scripted agents that speak the protocol."""

import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import Machine, kill_server, running_in, until

AGENT = Path(__file__).with_name("scripted_agent.py")


def provider_file(folder: Path, *flags: str, kind: str = "scripted", more: str = "") -> None:
    """Describe a scripted agent in a machine's configuration directory."""
    providers = folder / "config" / "providers"
    providers.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, str(AGENT), str(folder / "known"), *flags]
    command = ", ".join(f"'{word}'" for word in words)
    (providers / f"{kind}.toml").write_text(
        f'type = "{kind}"\ncategory = "acp"\ndisplay_name = "Scripted"\n'
        f'command = [{command}]\ninstall = "-"\nlogin = "say please"\n{more}\n'
    )


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Machine]:
    """A machine that knows the provider `scripted`."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    provider_file(tmp_path)
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "OUTRIDER_SECRET_KEY": "must not reach the agent",
    }
    socket = f"outrider-test-{uuid.uuid4().hex[:8]}"
    kind = AgentKind("scripted", seed=lambda *_: None, environment=lambda _: {})
    made = Machine(kind, tmp_path, environment, socket, project)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        kill_server(socket)
        await until(lambda: not running_in(home), why=lambda: str(running_in(home)))
