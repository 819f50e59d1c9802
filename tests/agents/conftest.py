"""Fixtures for tests with real agents: an installation, a stub model, a machine."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.agents.machine import Machine, StubModel, machine, stub_model

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def agents_bin() -> Path:
    """The folder with the agents' commands, installed if need be (minutes, the first time)."""
    missing = [program for program in ("tmux", "npm", "node") if shutil.which(program) is None]
    if missing:
        reason = f"real agents need {' and '.join(missing)} on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    cache = Path(os.environ.get("OUTRIDER_TEST_AGENTS") or REPOSITORY / ".cache" / "agents")
    script = Path(__file__).with_name("install.sh")
    installed = subprocess.run(
        ["sh", str(script), str(cache)], check=False, capture_output=True, text=True
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return cache / "claude" / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubModel]:
    """The stub model."""
    with stub_model(tmp_path_factory.mktemp("stub")) as running:
        yield running


@pytest.fixture
async def box(tmp_path: Path, agents_bin: Path, model: StubModel) -> AsyncIterator[Machine]:
    """A machine on which agents can be launched."""
    async with machine(tmp_path, agents_bin, model.url) as running:
        yield running
