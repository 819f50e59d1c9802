"""Fixtures: servers that only the tests of faults use, for they break them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.rig.private import private
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.system.faults.cluster import Fleet, Servers, fleet

StartFleet = Callable[..., AbstractAsyncContextManager[Fleet]]


@pytest.fixture(scope="session")
def all_servers() -> Iterator[Servers]:
    with private(Postgres) as postgres, private(Redis) as redis:
        yield Servers(postgres, redis)


@pytest.fixture
def servers(all_servers: Servers) -> Iterator[Servers]:
    """The servers; whatever a test does to them, they run again at its end."""
    yield all_servers
    all_servers.mend()


@pytest.fixture
def start_fleet(servers: Servers, tmp_path: Path) -> StartFleet:
    """Run nodes on an empty database for a block; see `cluster.fleet`."""
    return partial(fleet, tmp_path, servers.empty(tmp_path))
