"""The nodes of the service, and which of them sees to a machine."""

from collections.abc import Mapping

from sqlalchemy import delete, insert, select, update

from outrider.cloud.store import tables
from outrider.cloud.store.database import Database

_nodes = tables.nodes


async def beat(database: Database, node: str) -> bool:
    """Count this node's beats up; False if it was not there (any more), and is now."""
    async with database.begin() as connection:
        counted = await connection.execute(
            update(_nodes).where(_nodes.c.id == node).values(beats=_nodes.c.beats + 1)
        )
        if counted.rowcount:
            return True
        await connection.execute(insert(_nodes).values(id=node, beats=1))
        return False


async def beats(database: Database) -> Mapping[str, int]:
    """Return the beats of every node, by its id."""
    async with database.read() as connection:
        rows = await connection.execute(select(_nodes.c.id, _nodes.c.beats))
        return {row[0]: row[1] for row in rows}


async def remove(database: Database, node: str, beats: int | None = None) -> None:
    """Remove a node. With `beats`, only if it has not beaten since."""
    statement = delete(_nodes).where(_nodes.c.id == node)
    if beats is not None:
        statement = statement.where(_nodes.c.beats == beats)
    async with database.begin() as connection:
        await connection.execute(statement)


async def remove_others(database: Database, node: str) -> None:
    """Remove every node but this one."""
    async with database.begin() as connection:
        await connection.execute(delete(_nodes).where(_nodes.c.id != node))
