"""Fixtures of the webhooks' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import settings
from tests.rig.stores import Store
from tests.service.webhooks.delivery_node import DeliveryNode, delivery_nodes
from tests.service.webhooks.receiver import Receiver, receiving


@pytest.fixture
def database_url(tmp_path: Path, store: Store) -> str:
    """The address of an empty database of the test's own."""
    return settings(tmp_path / "data", store).sqlalchemy_url


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def node(database_url: str) -> AsyncIterator[DeliveryNode]:
    async with delivery_nodes(database_url) as (made,):
        await made.open()
        yield made
