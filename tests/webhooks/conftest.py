"""Fixtures of the webhooks' tests."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.webhooks.office import Office, offices
from tests.webhooks.receiver import Receiver, receiving


@pytest.fixture
def database_path(tmp_path: Path, migrated: Path) -> Path:
    """An empty database of the test's own."""
    return Path(shutil.copy(migrated, tmp_path / "webhooks.db"))


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="session")
async def office(database_path: Path) -> AsyncIterator[Office]:
    async with offices(database_path) as (one,):
        await one.open()
        yield one
