"""A terminal whose client is on one node and whose machine is on the other."""

import asyncio

import pytest
from websockets.asyncio.client import ClientConnection

from outrider.contract.link.terminals import StreamCode
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.samples import session
from tests.rig.sockets import resize, viewer
from tests.rig.terminals import ScriptedTerminals
from tests.rig.waiting import TIMEOUT, eventually
from tests.system.nodes.pair import V1, Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def terminals_there(pair: Pair) -> ScriptedTerminals:
    """Connect the machine to the other node."""
    said = hello(session(), terminals=True)
    machine = ScriptedMachine(pair.other.gateway, pair.enrolled.token, said)
    return ScriptedTerminals(await pair.other.hold(machine))


async def received(socket: ClientConnection, count: int) -> bytes:
    data = b""
    async with asyncio.timeout(TIMEOUT):
        while len(data) < count:
            message = await socket.recv()
            assert isinstance(message, bytes)
            data += message
    return data


async def test_bytes_go_both_ways_until_the_machine_is_lost(pair: Pair) -> None:
    terminals = await terminals_there(pair)
    opening = asyncio.create_task(terminals.opens())
    async with viewer(pair.owner, f"{V1}/daemons/{pair.id}/terminals/build") as socket:
        stream, _ = await opening
        typed, shown = b"ls\r" * 100_000, bytes(range(256)) * 3000
        await socket.send(typed)
        await eventually(lambda: terminals.typed[stream] == typed)
        showing = asyncio.create_task(terminals.shows(stream, shown))
        assert await received(socket, len(shown)) == shown
        await showing
        await socket.send(resize(100, 50))
        assert await terminals.resized() == (100, 50)
        await terminals.machine.drops()
        async with asyncio.timeout(TIMEOUT):
            await socket.wait_closed()
        assert socket.close_code == 1013


async def test_the_client_leaves(pair: Pair) -> None:
    terminals = await terminals_there(pair)
    opening = asyncio.create_task(terminals.opens())
    async with viewer(pair.owner, f"{V1}/daemons/{pair.id}/terminals/build"):
        stream, _ = await opening
    number, left = await terminals.left()
    assert (number, left.code) == (stream, StreamCode.ENDED)
