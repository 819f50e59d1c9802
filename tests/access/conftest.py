"""What the tests of the access layer share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.cloud.store.database import Database
from tests.access.clock import Clock
from tests.access.people import person
from tests.conftest import settings
from tests.service.site import Owner, Site


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="session")
async def user(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service, whose user may log in."""
    async with site.visit():
        yield await person(site)


@pytest_asyncio.fixture(loop_scope="session")
async def database(tmp_path: Path, migrated: Path) -> AsyncIterator[Database]:
    """A database of the test's own, with no service on it."""
    mine = Database(settings(tmp_path / "data", migrated).sqlalchemy_url)
    yield mine
    await mine.close()
