"""Two nodes of one service: one PostgreSQL, one Redis, one secret key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import settings
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL
from tests.system.nodes.pair import Pair


@asynccontextmanager
async def two_nodes(
    directory: Path, store: PostgreSQL, grace_period: float
) -> AsyncIterator[tuple[Site, Site]]:
    shared = settings(directory / "one", store, secret_key="k" * 32, grace_period=grace_period)
    sites = (Site(shared), Site(shared.model_copy(update={"data_dir": directory / "two"})))
    for site in sites:
        await site.start()
    yield sites
    for site in sites:
        await site.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nodes(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgreSQL
) -> AsyncIterator[tuple[Site, Site]]:
    """The nodes that tests share. Their grace period ends while a test waits for that."""
    async with two_nodes(tmp_path_factory.mktemp("nodes"), postgresql, grace_period=1) as sites:
        yield sites


@pytest_asyncio.fixture(loop_scope="session")
async def pair(nodes: tuple[Site, Site]) -> AsyncIterator[Pair]:
    """An account with a client at each node; what it connects ends with the test."""
    here, there = nodes
    async with here.visit(), there.visit():
        yield await Pair.of(here, there)


@pytest_asyncio.fixture(loop_scope="session")
async def patient_pair(tmp_path: Path, postgresql: PostgreSQL) -> AsyncIterator[Pair]:
    """An account at two nodes of its own, whose grace period does not end during a test."""
    async with two_nodes(tmp_path, postgresql, grace_period=600) as sites:
        here, there = sites
        async with here.visit(), there.visit():
            yield await Pair.of(here, there)
