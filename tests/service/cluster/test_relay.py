"""Commands whose node dies or whose machine moves, without processes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from outrider.contract.frames import MAX_COMMANDS_IN_FLIGHT, Cancel, Command, CommandResult
from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.relay import CommandRelay
from outrider.service.cluster.transport import MAX_RETRIED_BYTES, Transport
from tests.rig.waiting import eventually

MACHINE = "machine_1"
OTHER = "machine_2"
LOST_AFTER = 0.3


class Node:
    """A node's relay, the results of its commands, and those of them that were lost."""

    def __init__(self, bus: Bus, max_retried_bytes: int = MAX_RETRIED_BYTES) -> None:
        self.bus = bus
        transport = Transport(
            bus, retry_interval=LOST_AFTER / 10, max_retried_bytes=max_retried_bytes
        )
        self.relay = CommandRelay(
            transport, lambda *_: None, report_interval=LOST_AFTER / 10, lost_after=LOST_AFTER
        )
        self.results: list[str] = []
        self.lost: list[str] = []
        self.sent: list[Command | Cancel] = []

    async def send(self, frame: Command | Cancel) -> None:
        """Take a frame, as a machine's socket does."""
        self.sent.append(frame)

    def expect(self, machine: str = MACHINE) -> str:
        """Expect the result of a new command; return its id."""
        command_id = self.relay.new_command_id()

        def on_done(future: asyncio.Future[CommandResult]) -> None:
            (self.results if future.exception() is None else self.lost).append(command_id)
            self.relay.completed(machine, command_id)

        self.relay.expect(machine, command_id).add_done_callback(on_done)
        return command_id

    async def request(self, machine: str = MACHINE, traceparent: str | None = None) -> str:
        """Send a command to a machine, and return its id."""
        command = Command(
            id=self.expect(machine),
            command="terminal",
            payload=Raw(b"{}"),
            timeout_ms=1,
            traceparent=traceparent,
        )
        assert await self.relay.send(machine, command)
        return command.id


async def loses_another(node: Node) -> None:
    """Return once a node has lost a command of a dead node, and nothing else.

    Earlier commands that nobody reported would be lost by then.
    """
    dead = Node(node.bus)  # it receives messages and never reports
    await dead.relay.register(OTHER, dead, 1)
    lost = await node.request(OTHER)
    await eventually(lambda: node.lost != [])
    assert node.lost == [lost]


Start = Callable[[], Node]


@asynccontextmanager
async def nodes() -> AsyncIterator[Start]:
    """Start nodes of one service, which live until the end."""
    bus, running = Bus(is_shared=True), list[asyncio.Task[None]]()

    def start() -> Node:
        node = Node(bus)
        running.append(asyncio.create_task(node.relay.run()))
        return node

    try:
        yield start
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


@pytest.mark.asyncio
@pytest.mark.parametrize("frozen", [0, 2 * LOST_AFTER])
async def test_a_command_in_flight_is_not_lost(frozen: float) -> None:
    """Nor by a node that was frozen: the reports of the other node wait to be read."""
    async with nodes() as start:
        here, there = start(), start()
        await there.relay.register(MACHINE, there, 1)
        command = await here.request()
        await eventually(lambda: len(there.sent) == 1)
        time.sleep(frozen)  # noqa: ASYNC251  # as SIGSTOP does
        await loses_another(here)
        await there.relay.deliver_result(MACHINE, CommandResult(id=command))
        await eventually(lambda: here.results == [command])


@pytest.mark.asyncio
@pytest.mark.parametrize("traceparent", [None, "malformed"])
async def test_a_node_without_tracing_passes_a_trace_on(traceparent: str | None) -> None:
    async with nodes() as start:
        here, there = start(), start()
        await there.relay.register(MACHINE, there, 1)
        await here.request(traceparent=traceparent)
        await eventually(lambda: len(there.sent) == 1)
        (sent,) = there.sent
        assert isinstance(sent, Command)
        assert sent.traceparent == traceparent


@pytest.mark.asyncio
async def test_a_command_of_a_dead_node_is_lost_although_its_machine_is_back() -> None:
    """The machine dropped it when its connection was lost: it will not answer."""
    async with nodes() as start:
        here, third = start(), start()
        dead = Node(here.bus)  # it receives messages and never reports
        await dead.relay.register(MACHINE, dead, 1)
        before = await here.request()
        await dead.relay.unregister(MACHINE, dead, has_moved=True)  # its subscription ends
        await here.relay.register(MACHINE, here, 2)
        after = await here.request()
        await eventually(lambda: here.lost == [before])
        await here.relay.unregister(MACHINE, here, has_moved=False)
        await third.relay.register(MACHINE, third, 3)
        await third.relay.deliver_result(MACHINE, CommandResult(id=after))
        await eventually(lambda: here.results == [after])


@pytest.mark.asyncio
async def test_a_command_whose_machine_moved_is_answered_over_its_new_node() -> None:
    async with nodes() as start:
        here, there, third = start(), start(), start()
        await there.relay.register(MACHINE, there, 1)
        command = await here.request()
        await eventually(lambda: len(there.sent) == 1)
        await third.relay.register(MACHINE, third, 2)
        await there.relay.unregister(MACHINE, there, has_moved=True)
        await loses_another(here)
        await third.relay.deliver_result(MACHINE, CommandResult(id=command))
        await eventually(lambda: here.results == [command])


@pytest.mark.asyncio
async def test_a_cancelled_command_is_not_in_flight() -> None:
    async with nodes() as start:
        here, there = start(), start()
        await there.relay.register(MACHINE, there, 1)
        command = await here.request()
        await eventually(lambda: there.relay.in_flight(MACHINE) == 1)
        assert await here.relay.send(MACHINE, Cancel(id=command))
        await eventually(lambda: there.relay.in_flight(MACHINE) == 0)
        assert [type(frame) for frame in there.sent] == [Command, Cancel]


@pytest.mark.asyncio
async def test_results_that_nobody_requested_are_dropped_beyond_a_limit() -> None:
    """A machine can send any number of them, with the id of any node."""
    async with nodes() as start:
        here, there = start(), start()
        await there.relay.register(MACHINE, there, 1)
        command = await here.request()
        await eventually(lambda: len(there.sent) == 1)
        invented = [here.expect() for _ in range(MAX_COMMANDS_IN_FLIGHT + 10)]
        for command_id in [invented[0], *invented, command]:
            await there.relay.deliver_result(MACHINE, CommandResult(id=command_id))
        await asyncio.sleep(0)
        assert here.results == [*invented[:MAX_COMMANDS_IN_FLIGHT], command]


@pytest.mark.asyncio
async def test_a_result_may_overtake_the_handover_of_its_command() -> None:
    """The command is not in flight then, although the handover names it."""
    async with nodes() as start:
        here, there, third = start(), start(), start()
        await there.relay.register(MACHINE, there, 1)
        command, other = await here.request(), await here.request()
        await eventually(lambda: len(there.sent) == 2)
        await third.relay.register(MACHINE, third, 2)
        await third.relay.deliver_result(MACHINE, CommandResult(id=command))
        await eventually(lambda: here.results == [command])
        await there.relay.unregister(MACHINE, there, has_moved=True)
        assert third.relay.in_flight(MACHINE) == 1
        await third.relay.deliver_result(MACHINE, CommandResult(id=other))
        await eventually(lambda: here.results == [command, other])


class BreakingBus(Bus):
    """A bus on which nothing can be published while `is_broken`."""

    is_broken = False

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message, or raise."""
        if self.is_broken:
            raise BusDown("broken")
        return await super().publish(channel, message)


@pytest.mark.asyncio
async def test_results_that_wait_for_the_bus_have_a_limit() -> None:
    bus = BreakingBus(is_shared=True)
    here, there = Node(bus), Node(bus, max_retried_bytes=10_000)
    running = [asyncio.create_task(node.relay.run()) for node in (here, there)]
    await there.relay.register(MACHINE, there, 1)
    commands = [await here.request() for _ in range(3)]
    await eventually(lambda: len(there.sent) == 3)
    large = Raw(b'"' + b"x" * 8000 + b'"')
    bus.is_broken = True
    for command in commands[:2]:
        await there.relay.deliver_result(MACHINE, CommandResult(id=command, result=large))
    bus.is_broken = False
    await eventually(lambda: here.results == commands[:1])
    await eventually(lambda: here.lost == commands[1:2])  # nobody reports it as in flight
    bus.is_broken = True
    await there.relay.deliver_result(MACHINE, CommandResult(id=commands[2], result=large))
    bus.is_broken = False
    await eventually(lambda: here.results == [commands[0], commands[2]])
    for task in running:
        task.cancel()
    await asyncio.wait(running)
