"""What the tests of the access layer share."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.access.clock import Clock
from tests.access.people import person
from tests.service.site import Owner, Site


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture(loop_scope="session")
async def user(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service, whose user may log in."""
    async with site.visit():
        yield await person(site)
