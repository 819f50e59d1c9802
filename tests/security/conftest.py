"""What the attacks have in common: a service in a process of its own.

Bounds are asserted in bytes and counts, never in seconds.
Every test here is marked `security`, which `make test` leaves out.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.rig.stores import Store
from tests.security.target import Target

StartTarget = Callable[..., Awaitable[Target]]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this directory."""
    item.add_marker(pytest.mark.security)


@pytest.fixture
async def start_target(tmp_path: Path) -> AsyncIterator[StartTarget]:
    """Start a service to attack; several may run at once.

    `start_target(rate_limit_ip="300")`: with `OUTRIDER_RATE_LIMIT_IP=300`.
    `start_target(store)`: where the fixture `store` or `postgresql` says, instead of SQLite.
    """
    numbers = itertools.count()
    async with AsyncExitStack() as held:

        async def start(store: Store | None = None, **settings: str) -> Target:
            data_dir = tmp_path / f"target{next(numbers)}"
            data_dir.mkdir(mode=0o700)
            addresses = {} if store is None else store.migrated(data_dir)
            return await held.enter_async_context(Target(data_dir, addresses, **settings))

        yield start


@pytest.fixture
async def target(start_target: StartTarget) -> Target:
    """A service to attack, on SQLite, with default settings but high rate limits."""
    return await start_target()
