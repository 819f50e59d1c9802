"""What becomes of commands whose node dies or whose machine moves, told without processes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from outrider.cloud.fleet import routes
from outrider.cloud.fleet.bus import Bus, MemoryBus
from outrider.cloud.fleet.routes import Routes
from outrider.contract.frames import Cancel, Command, CommandResult
from tests.service.patience import eventually

MACHINE = "machine_1"
SILENT = 0.3


class Node:
    """A node's routes, and what they told."""

    def __init__(self, bus: Bus) -> None:
        self.routes = Routes(bus)
        self.answered: list[str] = []
        self.forgotten: list[str] = []
        self.sent: list[Command | Cancel] = []
        self.routes.serve(
            answered=lambda _, result: self._over(self.answered, result.id),
            lost=lambda _: None,
            forgotten=lambda command_id: self._over(self.forgotten, command_id),
            ended=lambda *_: None,
        )

    async def send(self, frame: Command | Cancel) -> None:
        """Take a frame, as a machine's socket does."""
        self.sent.append(frame)

    async def asks(self) -> str:
        """Send a command to the machine, and return its id."""
        command = Command(
            id=self.routes.new_command_id(), command="terminal", payload=Raw(b"{}"), timeout_ms=1
        )
        assert await self.routes.send(MACHINE, command)
        return command.id

    def _over(self, told: list[str], command_id: str) -> None:
        told.append(command_id)
        self.routes.settled(MACHINE, command_id)


Start = Callable[[], Node]


@asynccontextmanager
async def nodes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start nodes of one service, which live until the end."""
    monkeypatch.setattr(routes, "_REMIND_SECONDS", SILENT / 10)
    monkeypatch.setattr(routes, "_SILENT_SECONDS", SILENT)
    bus, running = MemoryBus(is_shared=True), list[asyncio.Task[None]]()

    def start() -> Node:
        node = Node(bus)
        running.append(asyncio.create_task(node.routes.run()))
        return node

    try:
        yield start
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


@pytest.mark.asyncio
async def test_a_command_under_way_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes(monkeypatch) as start:
        here, there = start(), start()
        await there.routes.hold(MACHINE, there, 1)
        command = await here.asks()
        await eventually(lambda: len(there.sent) == 1)
        await asyncio.sleep(SILENT * 3)
        assert here.forgotten == []
        await there.routes.answer(MACHINE, CommandResult(id=command))
        await eventually(lambda: here.answered == [command])


@pytest.mark.asyncio
async def test_one_that_a_dead_node_had_is_forgotten_though_its_machine_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine let go of it when its connection broke: it will not answer."""
    async with nodes(monkeypatch) as start:
        here, third = start(), start()
        dead = Node(here.routes._bus)  # it hears, and tells nothing
        await dead.routes.hold(MACHINE, dead, 1)
        before = await here.asks()
        await dead.routes.release(MACHINE, dead, has_moved=True)  # its subscription ends
        await here.routes.hold(MACHINE, here, 2)
        after = await here.asks()
        await eventually(lambda: here.forgotten == [before])
        await here.routes.release(MACHINE, here, has_moved=False)
        await third.routes.hold(MACHINE, third, 3)
        await third.routes.answer(MACHINE, CommandResult(id=after))
        await eventually(lambda: here.answered == [after])


@pytest.mark.asyncio
async def test_one_whose_machine_moved_is_answered_over_its_new_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with nodes(monkeypatch) as start:
        here, there, third = start(), start(), start()
        await there.routes.hold(MACHINE, there, 1)
        command = await here.asks()
        await eventually(lambda: len(there.sent) == 1)
        await third.routes.hold(MACHINE, third, 2)
        await there.routes.release(MACHINE, there, has_moved=True)
        await asyncio.sleep(SILENT * 3)
        assert here.forgotten == []
        await third.routes.answer(MACHINE, CommandResult(id=command))
        await eventually(lambda: here.answered == [command])


@pytest.mark.asyncio
async def test_one_that_is_cancelled_is_owed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes(monkeypatch) as start:
        here, there = start(), start()
        await there.routes.hold(MACHINE, there, 1)
        command = await here.asks()
        await eventually(lambda: there.routes.owed(MACHINE) == 1)
        assert await here.routes.send(MACHINE, Cancel(id=command))
        await eventually(lambda: there.routes.owed(MACHINE) == 0)
        assert [type(frame) for frame in there.sent] == [Command, Cancel]
