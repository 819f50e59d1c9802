"""The time that nodes agree on."""

import time

import pytest

from outrider.service.database.clock import SharedClock
from outrider.service.database.engine import Database
from tests.rig.stores import PostgreSQL

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_it_is_the_databases(postgresql: PostgreSQL) -> None:
    database = Database(postgresql.empty()["database_url"].replace("://", "+asyncpg://", 1))
    try:
        late = SharedClock(database, lambda: time.time() - 300)
        await late.adjust()
        assert abs(late() - time.time()) < 100
    finally:
        await database.close()


async def test_a_clock_that_agrees_is_left_alone(postgresql: PostgreSQL) -> None:
    """Asking takes a while; that alone is no difference."""
    database = Database(postgresql.empty()["database_url"].replace("://", "+asyncpg://", 1))
    try:
        moments = iter([0.0, 2e9, 5.0])
        clock = SharedClock(database, lambda: next(moments))
        await clock.adjust()
        assert clock() == 5.0
    finally:
        await database.close()
