"""What the tests of the access layer share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.conftest import settings
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL


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
