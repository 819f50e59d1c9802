"""Fixtures for tests with IDEs."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.agents.kind import AgentKind
from tests.agents.kinds.claude_code import environment, seed_claude
from tests.agents.machine import StubModel, stub_model
from tests.ides.desk import Desk, desk, free_port, program_path

REPOSITORY = Path(__file__).parents[2]
JUPYTERLAB = AgentKind(type="jupyterlab", seed=seed_claude, environment=environment)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Debian's Chromium, and Playwright to speak to it."""
    pytest.importorskip("playwright.async_api")
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("IDEs need chromium on PATH")
        pytest.skip("IDEs need chromium on PATH (apt-get install chromium)")
    return Path(found)


@pytest.fixture(scope="session")
def jupyterlab(chromium: Path) -> Path:
    """The folder into which JupyterLab is installed, if need be."""
    cached = Path(os.environ.get("OUTRIDER_TEST_AGENTS") or REPOSITORY / ".cache" / "agents")
    script = Path(__file__).with_name("install.sh")
    done = subprocess.run(
        ["sh", str(script), str(cached)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return cached / "jupyterlab"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubModel]:
    """The stub model."""
    with stub_model(tmp_path_factory.mktemp("stub")) as running:
        yield running


@pytest.fixture
async def lab(tmp_path: Path, jupyterlab: Path, model: StubModel) -> AsyncIterator[Desk]:
    """A machine on which JupyterLab can be launched."""
    seed_claude(tmp_path / "home", tmp_path / "project")
    path = program_path(jupyterlab / "venv" / "bin", jupyterlab / "node_modules" / ".bin")
    async with desk(tmp_path, JUPYTERLAB, path, environment(model.url)) as running:
        yield running


@pytest.fixture
async def faulty(tmp_path: Path, chromium: Path) -> AsyncIterator[Desk]:
    """A machine on which the IDE that plays faults can be launched."""
    here = Path(__file__).parent
    described = (here / "faulty.toml").read_text()
    described = described.replace("@python@", sys.executable)
    described = described.replace("@program@", str(here / "faulty_ide.py"))
    described = described.replace("@port@", str(free_port()))
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "faulty.toml").write_text(described)
    kind = AgentKind("faulty", seed=lambda *_: None, environment=lambda _: {})
    async with desk(tmp_path, kind, program_path(), {}) as running:
        yield running
