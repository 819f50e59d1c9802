"""What the tests of the access layer share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.access.clock import Clock
from tests.access.people import person
from tests.conftest import settings
from tests.service.site import Owner, Site
from tests.service.stores import PostgreSQL


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="session")
async def user(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service, whose user may log in."""
    async with site.visit():
        yield await person(site)


@pytest_asyncio.fixture(loop_scope="session")
async def two_nodes(tmp_path: Path, postgresql: PostgreSQL) -> AsyncIterator[tuple[Site, Site]]:
    """Two nodes of one service; SQLite is for one alone."""
    one = Site(settings(tmp_path, postgresql))
    two = Site(one.settings)
    await one.start()
    try:
        await two.start()
        yield one, two
    finally:
        await two.close()
        await one.close()
