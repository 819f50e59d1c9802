"""Fixtures for tests with real agents: an installation, a stub model, a machine."""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.claude_code import CLAUDE_CODE
from tests.machine.agents.machine import Machine, StubModel, install_agent, machine

Install = Callable[[AgentKind], Path]
"""Installs an agent, once, and returns the folder with its command."""


@pytest.fixture(scope="session")
def install() -> Install:
    """What installs an agent if need be (minutes, the first time)."""
    missing = [program for program in ("tmux", "npm", "node") if shutil.which(program) is None]
    if missing:
        reason = f"real agents need {' and '.join(missing)} on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return cache(install_agent)


@pytest.fixture(scope="session")
def agents_bin(install: Install) -> Path:
    """The folder with the command of Claude Code."""
    return install(CLAUDE_CODE)


@pytest.fixture
def kind() -> AgentKind:
    """The kind of agent that a test is about, where it does not run with all of them."""
    return CLAUDE_CODE


@pytest.fixture
async def box(
    tmp_path: Path, kind: AgentKind, install: Install, model: StubModel
) -> AsyncIterator[Machine]:
    """A machine on which agents can be launched."""
    async with machine(tmp_path, kind, install(kind), model.url) as running:
        yield running
