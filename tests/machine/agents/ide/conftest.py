"""Fixtures for tests with IDEs."""

import subprocess
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from tests.machine.agents.ide.desk import CACHE, Desk, faulty_desk, programs_of, real_desk
from tests.machine.agents.ide.kinds import JUPYTERLAB
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import StubModel
from tests.rig.browser import chromium_program

Install = Callable[[AgentKind], list[Path]]
"""Installs an IDE, once, and returns the folders with its programs."""


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Debian's Chromium, and Playwright to speak to it."""
    return chromium_program()


@pytest.fixture(scope="session")
def install_ide() -> Install:
    """What installs an IDE if need be (minutes, the first time)."""
    script = Path(__file__).with_name("install.sh")

    @cache
    def install(kind: AgentKind) -> list[Path]:
        CACHE.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(  # one test process at a time
            ["flock", str(CACHE / "installing"), "sh", str(script), str(CACHE), kind.type],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return programs_of(kind)

    return install


@pytest.fixture
def kind() -> AgentKind:
    """The IDE that a test is about, where it does not run with all of them."""
    return JUPYTERLAB


@pytest.fixture
async def box(
    tmp_path: Path, kind: AgentKind, chromium: Path, install_ide: Install, model: StubModel
) -> AsyncIterator[Desk]:
    """A machine on which the IDE can be launched."""
    async with real_desk(tmp_path, kind, install_ide(kind), model.url) as running:
        yield running


@pytest.fixture
async def faulty(tmp_path: Path, chromium: Path) -> AsyncIterator[Desk]:
    """A machine on which the IDE that plays faults can be launched."""
    async with faulty_desk(tmp_path) as running:
        yield running
