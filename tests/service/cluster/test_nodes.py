"""A node that was declared dead takes back its machines, however often that fails."""

import pytest
from sqlalchemy.exc import OperationalError

from outrider.service.cluster import nodes
from outrider.service.cluster.nodes import Nodes
from outrider.service.database.clock import SharedClock
from outrider.service.database.engine import Database

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_revival_that_fails_is_repeated_with_the_next_heartbeat(
    database: Database,
) -> None:
    revivals: list[str] = []
    errors: list[BaseException] = [
        TimeoutError(),
        OperationalError("UPDATE", {}, Exception("the server has gone")),
    ]

    async def revived() -> None:
        if errors:
            raise errors.pop()
        revivals.append("here")

    async def take_over() -> None:
        """There is nothing to take over."""

    here = Nodes(
        database=database,
        node="here",
        take_over=take_over,
        revived=revived,
        timeout=15,
        shared_clock=SharedClock(database),
    )
    await here.join(alone=False)
    await here.beat()
    assert not revivals
    await nodes.remove(database, "here")
    with pytest.raises(OperationalError):
        await here.beat()
    with pytest.raises(TimeoutError):
        await here.beat()
    await here.beat()
    await here.beat()
    assert revivals == ["here"]
