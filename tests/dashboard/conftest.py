"""Fixtures: the built dashboard, and one Chromium for all tests of a process."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.dashboard.browser_client import TIMEOUT_MS
from tests.dashboard.home import Home, at_home
from tests.rig.browser import chromium
from tests.rig.stores import SQLite

ROOT = Path(__file__).parents[2]
MARKS = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]
"""Of the tests of `make test-dashboard`."""


@pytest.fixture(scope="session")
def built() -> None:
    """The dashboard is built from its present sources. `make` has done so before the tests."""
    subprocess.run([ROOT / "scripts" / "build-dashboard"], check=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(built: None) -> AsyncIterator[Browser]:
    """A Chromium; each test has a context of its own in it."""
    async with chromium() as browser:
        from playwright.async_api import expect

        expect.set_options(timeout=TIMEOUT_MS)
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home(
    built: None, tmp_path_factory: pytest.TempPathFactory, sqlite: SQLite
) -> AsyncIterator[Home]:
    """`outrider up`, which the tests of a module share."""
    folder = tmp_path_factory.mktemp("home")
    sqlite.migrated(folder / "data")
    async with at_home(folder) as running:
        yield running
