"""Which machines are asked for deltas, and how deltas reach the streams of other nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from outrider.contract.frames import Delta
from outrider.service.cluster.bus import Bus
from outrider.service.cluster.transport import MAX_POSTED, Transport
from outrider.service.events.deltas import DeltaRelay
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Node:
    """A node: the accounts of which its streams want deltas, and what it does."""

    def __init__(self, bus: Bus, name: str, **times: float) -> None:
        self.wanted: dict[str, int] = {}
        self.delta_accounts_changed = asyncio.Event()
        self.machines: dict[str, str] = {}
        self.connection = 1
        self.asked: list[tuple[str, bool]] = []
        self.received: list[tuple[str, str, int]] = []
        self.relay = DeltaRelay(
            Transport(bus, node=name), self, self.connections, self.ask, **times
        )

    def delta_accounts(self) -> dict[str, int]:
        return self.wanted

    def want(self, **accounts: int) -> None:
        """Have streams of these accounts, and no others."""
        self.wanted = accounts
        self.delta_accounts_changed.set()

    def delta(self, account_id: str, daemon_id: str, delta: Delta, ide_id: str) -> None:
        assert ide_id == f"{daemon_id}:cli:codex"  # here and on the other nodes
        if account_id in self.wanted:
            self.received.append((account_id, daemon_id, delta.revision))

    def connections(self, account_id: str) -> dict[str, int]:
        return {
            machine: self.connection
            for machine, account in self.machines.items()
            if account == account_id
        }

    def ask(self, machine_id: str, sessions: list[str] | None) -> None:
        self.asked.append((machine_id, sessions is None))

    def send_deltas(self, *revisions: int, account: str = "a", text: str = "") -> None:
        """Have the machine of an account send deltas."""
        for revision in revisions:
            delta = Delta(session_id="s", message_id="m", revision=revision, op="append", text=text)
            machine = f"machine of {account}"
            self.relay.receive(account, machine, delta, f"{machine}:cli:codex")


@asynccontextmanager
async def running(bus: Bus, name: str, **times: float) -> AsyncIterator[Node]:
    node = Node(bus, name, **times)
    task = asyncio.create_task(node.relay.run())
    yield node
    task.cancel()
    await asyncio.wait({task}, timeout=TIMEOUT)


@pytest_asyncio.fixture(loop_scope="session")
async def nodes() -> AsyncIterator[tuple[Node, Node]]:
    """The node of the machines, and one with streams."""
    bus = Bus(is_shared=True)
    async with running(bus, "one") as machines, running(bus, "two") as streams:
        machines.machines = {"machine of a": "a", "machine of b": "b"}
        yield machines, streams


async def test_deltas_reach_the_nodes_that_want_them(nodes: tuple[Node, Node]) -> None:
    machines, streams = nodes
    machines.send_deltas(1)
    streams.want(a=1)
    await eventually(lambda: machines.asked == [("machine of a", True)])
    machines.send_deltas(*range(2, 500))
    machines.send_deltas(1, account="b")
    await eventually(lambda: len(streams.received) == 498)
    assert streams.received == [("a", "machine of a", number) for number in range(2, 500)]
    assert machines.received == []
    machines.want(a=1)
    await eventually(lambda: len(machines.asked) == 2)
    machines.send_deltas(500)
    await eventually(lambda: len(streams.received) == 499)
    assert machines.received == [("a", "machine of a", 500)]  # once
    machines.want()
    streams.want()
    await eventually(lambda: machines.asked[2:] == [("machine of a", False)])


async def test_machines_are_asked_again_when_another_stream_begins(
    nodes: tuple[Node, Node],
) -> None:
    machines, streams = nodes
    streams.want(a=1)
    await eventually(lambda: machines.asked == [("machine of a", True)])
    streams.want(a=2)
    await eventually(lambda: machines.asked == [("machine of a", True)] * 2)


async def test_each_connection_is_asked_once_and_told_to_stop() -> None:
    async with running(Bus(), "one", watch_interval=0.01) as node:
        node.machines = {"machine of a": "a", "machine of b": "b"}
        node.want(a=1)
        await eventually(lambda: node.asked == [("machine of a", True)])
        node.connection = 2
        await eventually(lambda: node.asked == [("machine of a", True)] * 2)
        node.want()
        await eventually(lambda: node.asked[2:] == [("machine of a", False)])


SHORT = {"watch_interval": 0.05, "announce_interval": 0.1, "lease_seconds": 0.3}


async def test_a_node_that_dies_stops_asking() -> None:
    bus = Bus(is_shared=True)
    async with running(bus, "one", **SHORT) as machines:
        machines.machines = {"machine of a": "a"}
        async with running(bus, "two", **SHORT) as streams:
            streams.want(a=1)
            await eventually(lambda: ("machine of a", True) in machines.asked)
        await eventually(lambda: machines.asked[-1] == ("machine of a", False))


async def test_an_announcement_lasts_as_long_as_its_node() -> None:
    """A node that has just started learns what the others want already."""
    bus = Bus(is_shared=True)
    async with running(bus, "two", **SHORT) as streams:
        streams.want(a=1)
        await eventually(lambda: not streams.delta_accounts_changed.is_set())
        async with running(bus, "one", **SHORT) as machines:
            machines.machines = {"machine of a": "a"}
            await eventually(lambda: ("machine of a", True) in machines.asked)


async def test_deltas_without_room_are_dropped() -> None:
    """Nothing is sent between two turns of the event loop."""
    bus = Bus(is_shared=True)
    async with running(bus, "one") as machines, running(bus, "two") as streams:
        machines.machines = {"machine of a": "a"}
        streams.want(a=1)
        await eventually(lambda: bool(machines.asked))
        machines.send_deltas(*range(MAX_POSTED + 10))
        machines.send_deltas(5000)
        await eventually(lambda: len(streams.received) == MAX_POSTED)
        machines.send_deltas(*range(6000, 6100), text="x" * 60_000)
        await eventually(lambda: len(streams.received) > MAX_POSTED)
        machines.send_deltas(7000)
        await eventually(lambda: streams.received[-1][2] == 7000)
        revisions = [revision for _, _, revision in streams.received]
        assert revisions == [*range(1000), *range(6000, 6017), 7000]
