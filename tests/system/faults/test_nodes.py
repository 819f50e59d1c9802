"""A node is killed, or stands still and goes on; two sockets of one machine (docs/nodes.md)."""

import asyncio

import httpx
import pytest

from outrider.contract.frames import CloseCode
from tests.rig.errors import assert_error
from tests.rig.waiting import TIMEOUT, eventually
from tests.system.faults.cluster import GRACE, NODE_TIMEOUT, Machine, Node
from tests.system.faults.conftest import StartFleet
from tests.system.faults.steps import answered, listed

pytestmark = pytest.mark.faults

CONNECTED, DISCONNECTED = "machine:connected", "machine:disconnected"


class TestKilled:
    async def test_callers_get_a_503_and_machines_are_missed_once(
        self, start_fleet: StartFleet
    ) -> None:
        async with start_fleet(3) as three:
            dying, asking, other = three.nodes
            await three.subscribes(asking, CONNECTED, DISCONNECTED)
            machines = [await three.machine() for _ in range(6)]
            sockets = [await machine.connects(dying) for machine in machines]
            client, back, away = three.client(asking), machines[:4], machines[4:]
            asked = [asyncio.create_task(client.get(machine.status)) for machine in machines]
            for socket in sockets:
                await socket.takes("agent_status")
            await three.deliveries_are_over()  # what it has in hand comes a minute later

            await dying.dies()
            assert await listed(client) == {machine.id for machine in machines}, "the grace period"

            for number, machine in enumerate(back):
                node = (asking, other)[number % 2]
                socket = await machine.connects(node)
                for each in (asking, other):
                    await answered(three.client(each), machine, socket)
            for response in await asyncio.gather(*asked):
                assert_error(response, 503)
            for machine in away:
                gone = (DISCONNECTED, machine.id)
                await eventually(lambda gone=gone: three.events_received()[gone] > 0)  # type: ignore[misc]
            await three.every_node_looks(NODE_TIMEOUT + GRACE, [asking, other])
            await three.deliveries_are_over()

            expected = {(CONNECTED, machine.id): 1 for machine in machines}
            assert three.events_received() == expected | {
                (DISCONNECTED, machine.id): 1 for machine in away
            }
            for node in (asking, other):
                assert await listed(three.client(node)) == {machine.id for machine in back}
                assert node.errors() == []
                assert_error(await three.client(node).get(away[0].status), 500)


class TestFrozen:
    """Longer than the node's time-out and the grace period: the others have given it up."""

    async def test_a_node_that_was_suspended_releases_machines_that_have_moved(
        self, start_fleet: StartFleet
    ) -> None:
        async with start_fleet(2) as two:
            frozen, other = two.nodes
            await two.subscribes(other, CONNECTED, DISCONNECTED)
            moving, staying = await two.machine(), await two.machine()
            old = await moving.connects(frozen)
            left = await staying.connects(frozen)
            here, there = two.client(frozen), two.client(other)
            await answered(there, moving, old)
            await two.deliveries_are_over()

            frozen.freeze()
            lost = asyncio.create_task(there.get(staying.status))
            new = await moving.connects(other)
            await answered(there, moving, new)
            gone = (DISCONNECTED, staying.id)
            await eventually(lambda: two.events_received()[gone] > 0)
            assert_error(await lost, 503)
            asked = asyncio.create_task(here.get(moving.status))  # waits in its port's queue
            frozen.go_on()

            assert (await old.closed())[0] == CloseCode.REPLACED
            assert (await left.closed())[0] == CloseCode.GOING_AWAY
            await new.answers(await new.takes("agent_status"))
            assert (await asked).status_code == 200
            for client in (here, there):
                await answered(client, moving, new)
                assert await listed(client) == {moving.id}
            assert old.received_nothing()

            again = await staying.connects(frozen)
            for client in (here, there):
                await answered(client, staying, again)
                assert await listed(client) == {moving.id, staying.id}
            await two.every_node_looks(NODE_TIMEOUT + GRACE, [frozen, other])
            await two.deliveries_are_over()
            assert two.events_received() == {
                (CONNECTED, moving.id): 1,
                (CONNECTED, staying.id): 2,
                (DISCONNECTED, staying.id): 1,
            }
            assert (
                frozen.logged("this node was declared dead by its peers; releasing its machines")
                == 1
            )
            assert frozen.errors() == other.errors() == []


class TestTwoSockets:
    async def test_of_two_at_once_one_remains_wherever_they_come(
        self, start_fleet: StartFleet
    ) -> None:
        async with start_fleet(2) as two:
            machine = await two.machine()
            clients = [two.client(node) for node in two.nodes]
            for _ in range(20):
                await self._race(machine, two.nodes, clients)
            assert [node.errors() for node in two.nodes] == [[], []]

    async def _race(
        self, machine: Machine, nodes: list[Node], clients: list[httpx.AsyncClient]
    ) -> None:
        sockets = await asyncio.gather(*(machine.connects(node) for node in nodes))
        ends = [asyncio.create_task(socket.closed()) for socket in sockets]
        try:
            (ended,), _ = await asyncio.wait(
                ends, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT
            )
            assert ended.result()[0] == CloseCode.REPLACED
            (left,) = [one for one, end in zip(sockets, ends, strict=True) if end is not ended]
            (lost,) = [socket for socket in sockets if socket is not left]
            for client in clients:
                await answered(client, machine, left)
            assert lost.received_nothing()
        finally:
            for socket in sockets:
                await socket.drops()
            await asyncio.gather(*ends, return_exceptions=True)
