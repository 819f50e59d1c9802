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
    first = Site(settings(tmp_path, postgresql))
    second = Site(first.settings)
    await first.start()
    try:
        await second.start()
        yield first, second
    finally:
        await second.close()
        await first.close()
