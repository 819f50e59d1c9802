"""Two nodes of one service: one PostgreSQL, one Redis, one secret key."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import settings
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL
from tests.system.nodes.pair import Pair

GRACE_SECONDS = 1


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nodes(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgreSQL
) -> AsyncIterator[tuple[Site, Site]]:
    """The nodes that tests share."""
    directory = tmp_path_factory.mktemp("nodes")
    shared = settings(
        directory / "one", postgresql, secret_key="k" * 32, grace_period=GRACE_SECONDS
    )
    sites = (Site(shared), Site(shared.model_copy(update={"data_dir": directory / "two"})))
    for site in sites:
        await site.start()
    yield sites
    for site in sites:
        await site.close()


@pytest_asyncio.fixture(loop_scope="session")
async def pair(nodes: tuple[Site, Site]) -> AsyncIterator[Pair]:
    """An account with a client at each node; what it connects ends with the test."""
    here, there = nodes
    async with here.visit(), there.visit():
        yield await Pair.of(here, there)
