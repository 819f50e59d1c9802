"""Which machines are asked for deltas, and when."""

import pytest

from outrider.cloud.live.deltas import DeltaWatch

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_each_connection_is_asked_once_while_a_stream_wants_deltas() -> None:
    accounts: set[str] = set()
    connections = {"a": {"machine_1": 1}, "b": {"machine_2": 1}}
    asked: list[tuple[str, bool]] = []

    async def ask(machine_id: str, sessions: list[str] | None) -> None:
        asked.append((machine_id, sessions is None))

    watch = DeltaWatch(lambda: accounts, lambda account: connections[account], ask)
    await watch.update()
    assert asked == []
    accounts.add("a")
    await watch.update()
    await watch.update()
    assert asked == [("machine_1", True)]
    connections["a"] = {"machine_1": 2}
    await watch.update()
    assert asked == [("machine_1", True)] * 2
    accounts.clear()
    await watch.update()
    assert asked[2:] == [("machine_1", False)]
