"""Terminals of machines on another node: windows, lost messages and dead nodes, without sockets."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from outrider.contract.link.terminals import (
    WINDOW,
    Closed,
    Data,
    Open,
    Resize,
    StreamCode,
    TerminalStreams,
)
from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.transport import Transport
from outrider.service.terminals.relay import TerminalRelay
from outrider.service.terminals.streams import (
    TRY_AGAIN,
    UNSUPPORTED,
    LocalTerminals,
    MachineTerminals,
    TerminalStream,
    TerminalStreamClosed,
)
from tests.rig.waiting import TIMEOUT, eventually

MACHINE = "machine_1"
NAMED = Open(name="build")
LOST_AFTER = 0.3

pytestmark = pytest.mark.asyncio


class FaultyBus(Bus):
    """A bus that may lose, repeat or refuse messages."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.copies = 1
        self.published = 0
        self.is_broken = False

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message `copies` times."""
        if self.is_broken:
            raise BusDown("broken")
        self.published += 1
        receivers = 1
        for _ in range(self.copies):
            receivers = await super().publish(channel, message)
        return receivers


class Machine:
    """The machine's end of its socket: it opens what is requested, and keeps what is typed."""

    def __init__(self) -> None:
        self.streams = TerminalStreams(is_machine=True)
        self.terminals = MachineTerminals(self.take)
        self.typed = bytearray()
        self.reads = True
        self.sizes: list[tuple[int, int]] = []
        self.closed: list[int] = []

    async def take(self, message: bytes) -> None:
        """Take a message of the service."""
        self.streams.receive(message)
        for stream, content in self.streams.events():
            match content:
                case Open():
                    self.streams.opened(stream, 80, 24)
                case Data(data):
                    self.typed += data
                    if self.reads:
                        self.streams.consumed(stream, len(data))
                case Resize(columns=columns, rows=rows):
                    self.sizes.append((columns, rows))
                case Closed(code=code):
                    self.closed.append(code)
        self.flush()

    def show(self, data: bytes, stream: int = 1) -> None:
        """Send output."""
        self.streams.send(stream, data)
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        while (message := self.streams.next_message()) is not None:
            self.terminals.receive(message)


class Node:
    """A node with its terminals and its relay."""

    def __init__(self, bus: FaultyBus, name: str, where: dict[str, str]) -> None:
        async def node_of(machine: str) -> str | None:
            return where.get(machine)

        self.name = name
        self.terminals = LocalTerminals()
        self.relay = TerminalRelay(
            Transport(bus, node=name),
            node_of,
            self.terminals,
            report_interval=LOST_AFTER / 10,
            lost_after=LOST_AFTER,
        )
        self.task = asyncio.create_task(self.relay.run())

    async def open(self) -> TerminalStream:
        """Open a terminal of the machine."""
        async with asyncio.timeout(TIMEOUT):
            stream = await self.relay.open(MACHINE, NAMED)
        assert stream is not None
        return stream

    async def stop(self) -> None:
        """End the node's part on the bus, as if it had died."""
        self.task.cancel()
        await asyncio.wait((self.task,))


class TwoNodes:
    """Two nodes; the machine is connected to `there`."""

    def __init__(self) -> None:
        self.bus = FaultyBus()
        self.where = {MACHINE: "there"}
        self.here = Node(self.bus, "here", self.where)
        self.there = Node(self.bus, "there", self.where)
        self.machine = Machine()
        self.there.terminals.attach(MACHINE, self.machine.terminals)


@asynccontextmanager
async def nodes() -> AsyncIterator[TwoNodes]:
    pair = TwoNodes()
    await asyncio.sleep(0)  # both have subscribed
    yield pair
    for node in (pair.here, pair.there):
        await node.stop()


async def read(stream: TerminalStream, count: int) -> bytes:
    """Return the next bytes, and report them as consumed."""
    data = b""
    async with asyncio.timeout(TIMEOUT):
        while len(data) < count:
            part = await stream.read()
            stream.consumed(len(part))
            data += part
    return data


async def end_of(work: Callable[[], Awaitable[object]]) -> TerminalStreamClosed:
    with pytest.raises(TerminalStreamClosed) as closed:
        async with asyncio.timeout(TIMEOUT):
            await work()
    return closed.value


async def test_bytes_go_both_ways_in_order() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        typed = bytes(range(256)) * 4096  # four windows
        writing = asyncio.create_task(stream.write(typed))
        await eventually(lambda: len(pair.machine.typed) == len(typed))
        await writing
        assert pair.machine.typed == typed
        for part in range(20):
            pair.machine.show(bytes([part]) * 20_000)
            assert await read(stream, 20_000) == bytes([part]) * 20_000
        await stream.resize(100, 50)
        await eventually(lambda: pair.machine.sizes == [(100, 50)])
        stream.close()
        await eventually(lambda: pair.machine.closed == [StreamCode.ENDED])
        await eventually(lambda: pair.here.relay.count() + pair.there.relay.count() == 0)


async def test_a_client_that_does_not_read_fills_one_window() -> None:
    async with nodes() as pair:
        slow, quick = await pair.here.open(), await pair.here.open()
        pair.machine.show(b"y" * WINDOW, 1)
        assert pair.machine.streams.room(1) == 0
        pair.machine.show(b"prompt", 2)
        assert await read(quick, 6) == b"prompt"
        assert pair.machine.streams.room(1) == 0, "nobody has read it"
        assert await read(slow, WINDOW) == b"y" * WINDOW
        await eventually(lambda: pair.machine.streams.room(1) >= WINDOW // 2)


async def test_a_terminal_that_takes_no_input_fills_one_window() -> None:
    async with nodes() as pair:
        pair.machine.reads = False
        stream = await pair.here.open()
        writing = asyncio.create_task(stream.write(b"x" * (WINDOW + 1)))
        await eventually(lambda: len(pair.machine.typed) == WINDOW)
        assert not writing.done()
        pair.machine.reads = True
        pair.machine.streams.consumed(1, WINDOW)
        pair.machine.flush()
        async with asyncio.timeout(TIMEOUT):
            await writing
        await eventually(lambda: len(pair.machine.typed) == WINDOW + 1)


async def test_the_machine_closes_it_after_its_last_output() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        pair.machine.show(b"bye")
        pair.machine.streams.close(1, StreamCode.ENDED, "it has ended")
        pair.machine.flush()
        assert await read(stream, 3) == b"bye"
        end = await end_of(stream.read)
        assert (end.code, end.reason) == (StreamCode.ENDED, "it has ended")


async def test_it_is_refused() -> None:
    async with nodes() as pair:
        old = MachineTerminals(pair.machine.take, is_supported=False)
        pair.there.terminals.attach(MACHINE, old)
        assert (await end_of(pair.here.open)).code == UNSUPPORTED
        pair.there.terminals.detach(MACHINE, old, moved=True)
        assert (await end_of(pair.here.open)).code == TRY_AGAIN, "it is between two nodes"
        pair.where[MACHINE] = "nobody"  # a dead node, or one of an older release
        assert (await end_of(pair.here.open)).code == TRY_AGAIN
        pair.where.clear()
        assert await pair.here.relay.open(MACHINE, NAMED) is None


async def test_a_machine_that_is_lost() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        pair.there.terminals.detach(MACHINE, pair.machine.terminals, moved=False)
        assert (await end_of(stream.read)).code == TRY_AGAIN


async def test_a_node_of_a_machine_that_dies() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        await pair.there.stop()
        assert (await end_of(stream.read)).code == TRY_AGAIN


async def test_a_node_that_was_frozen_loses_no_stream() -> None:
    """What the other node reports waits to be read."""
    async with nodes() as pair:
        stream = await pair.here.open()
        time.sleep(2 * LOST_AFTER)  # noqa: ASYNC251  # as SIGSTOP does
        before = pair.bus.published
        await eventually(lambda: pair.bus.published > before + 4)
        pair.machine.show(b"on")
        assert await read(stream, 2) == b"on"
        assert pair.here.relay.count() == pair.there.relay.count() == 1


async def test_a_node_of_a_client_that_dies() -> None:
    async with nodes() as pair:
        await pair.here.open()
        await pair.here.stop()
        await eventually(lambda: pair.machine.closed == [StreamCode.ENDED])


async def test_a_node_that_does_not_know_the_stream() -> None:
    """Its Alive messages do not name it."""
    async with nodes() as pair:
        stream = await pair.here.open()
        await pair.there.stop()
        again = Node(pair.bus, "there", pair.where)
        assert (await end_of(stream.read)).code == TRY_AGAIN
        await again.stop()


async def test_a_message_that_the_bus_repeats() -> None:
    async with nodes() as pair:
        pair.bus.copies = 2
        stream = await pair.here.open()
        await stream.write(b"once")
        pair.machine.show(b"once")
        assert await read(stream, 4) == b"once"
        await eventually(lambda: pair.machine.typed == b"once")
        stream.close()
        await eventually(lambda: pair.machine.closed == [StreamCode.ENDED])


async def test_a_message_that_the_bus_loses() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        pair.bus.copies, before = 0, pair.bus.published
        pair.machine.show(b"lost")
        await eventually(lambda: pair.bus.published > before)
        pair.bus.copies = 1
        pair.machine.show(b"after")
        assert (await end_of(stream.read)).code == TRY_AGAIN
        await eventually(lambda: pair.machine.closed == [StreamCode.ENDED])


async def test_a_bus_that_is_down() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        pair.here.relay.bus_down()
        assert (await end_of(stream.read)).code == TRY_AGAIN
        another = await pair.here.open()
        pair.bus.is_broken = True
        await another.write(b"x")
        assert (await end_of(another.read)).code == TRY_AGAIN


async def test_a_message_of_a_newer_release_is_dropped() -> None:
    async with nodes() as pair:
        stream = await pair.here.open()
        await pair.bus.publish("terminals here", b"\x92\xa5other\x01")
        pair.machine.show(b"fine")
        assert await read(stream, 4) == b"fine"
