"""The nodes of the service and their heartbeats."""

from collections.abc import Mapping

from sqlalchemy import delete, insert, select, update

from outrider.service.database import tables
from outrider.service.database.engine import Database

_nodes = tables.nodes


async def beat(database: Database, node: str) -> bool:
    """Increment this node's heartbeat; return False if the node had to be added (again)."""
    async with database.begin() as connection:
        updated = await connection.execute(
            update(_nodes).where(_nodes.c.id == node).values(beats=_nodes.c.beats + 1)
        )
        if updated.rowcount:
            return True
        await connection.execute(insert(_nodes).values(id=node, beats=1))
        return False


async def beats(database: Database) -> Mapping[str, int]:
    """Return the heartbeat count of every node, by id."""
    async with database.read() as connection:
        rows = await connection.execute(select(_nodes.c.id, _nodes.c.beats))
        return {row[0]: row[1] for row in rows}


async def remove(database: Database, node: str, beats: int | None = None) -> None:
    """Remove a node; with `beats`, only if its heartbeat count is still that."""
    statement = delete(_nodes).where(_nodes.c.id == node)
    if beats is not None:
        statement = statement.where(_nodes.c.beats == beats)
    async with database.begin() as connection:
        await connection.execute(statement)


async def remove_others(database: Database, node: str) -> None:
    """Remove every node but this one."""
    async with database.begin() as connection:
        await connection.execute(delete(_nodes).where(_nodes.c.id != node))
