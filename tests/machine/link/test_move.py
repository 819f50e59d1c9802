"""A service that stops asks its machines to move: the next connection before the old one goes."""

import asyncio

import pytest

from outrider.contract.commands import CommandType, Result
from outrider.contract.frames import (
    Acknowledge,
    Change,
    CloseCode,
    CommandResult,
    Event,
    Goodbye,
    Hello,
)
from outrider.machine.link.connection import SocketTiming
from outrider.machine.link.journal import Journal
from tests.contract.link.memory_log import agent_event, session
from tests.machine.conftest import eventually
from tests.machine.linked_machine import Machine, connected, status_query
from tests.machine.scripted_service import Peer, ScriptedService
from tests.rig.waiting import TIMEOUT

GOODBYE = Goodbye(reason="The service is stopping", reconnect_ms=8000)


class Handler:
    """Carries out agent_status, which only reads, once it is let."""

    def __init__(self, machine: Machine) -> None:
        self.begun = 0
        self.cut = 0
        self.let = asyncio.Event()
        machine.handlers[CommandType.AGENT_STATUS] = self

    async def __call__(self, payload: object, deadline: float) -> Result:
        self.begun += 1
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cut += 1
            raise
        return Result()

    async def under_way(self, count: int) -> None:
        await eventually(lambda: self.begun == count)


async def at_work(machine: Machine, service: ScriptedService, command: str) -> tuple[Handler, Peer]:
    """Have the machine connected, with a command under way."""
    handler = Handler(machine)
    peer = await connected(machine, service)
    await peer.say(status_query(command))
    await handler.under_way(1)
    return handler, peer


async def answered(peer: Peer, command: str) -> None:
    """Have a command carried out over this connection."""
    await peer.say(status_query(command))
    assert (await peer.hear(CommandResult)).id == command


async def moved(peer: Peer, service: ScriptedService) -> Peer:
    """Have the machine move from this connection to the next one, and return that."""
    await peer.say(GOODBYE)
    newer = await service.connection()
    await newer.welcome()
    return newer


async def says_nothing(peer: Peer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            pytest.fail(str(await peer.socket.recv()))


async def test_the_next_connection_is_made_while_the_old_one_serves(
    machine: Machine, service: ScriptedService
) -> None:
    older = await connected(machine, service)
    machine.woken.clear()
    await older.say(GOODBYE)
    await eventually(lambda: machine.waits == [4.0])  # chance is a half here
    await answered(older, "cmd_1")
    machine.woken.set()
    newer = await service.connection()
    assert older.socket.close_code is None
    await newer.welcome()
    await answered(newer, "cmd_2")


async def test_everything_goes_out_over_the_new_one_whichever_asked(
    machine: Machine, service: ScriptedService
) -> None:
    handler, older = await at_work(machine, service, "cmd_before")
    newer = await moved(older, service)
    await older.say(status_query("cmd_late"))
    await newer.say(status_query("cmd_new"))
    await handler.under_way(3)
    machine.change(session("a", "changed"))
    handler.let.set()
    assert (await newer.hear(Change)).sessions == [session("a", "changed")]
    result_ids = {(await newer.hear(CommandResult)).id for _ in range(3)}
    assert result_ids == {"cmd_before", "cmd_late", "cmd_new"}
    await says_nothing(older)
    assert handler.cut == 0


async def test_nothing_goes_out_between_the_hello_and_its_welcome_and_nothing_is_lost(
    machine: Machine, service: ScriptedService
) -> None:
    """The service may close the old connection at any moment of it, unread."""
    handler, older = await at_work(machine, service, "cmd_1")
    await older.say(GOODBYE)
    newer = await service.connection()
    assert (await newer.hear(Hello)).sessions == []
    machine.change(session("a"))
    handler.let.set()
    await says_nothing(older)
    await newer.say(machine.welcome())
    assert (await newer.hear(Change)).sessions == [session("a")]
    assert (await newer.hear(CommandResult)).id == "cmd_1"


@pytest.mark.parametrize("welcomed", [False, True])
async def test_the_old_one_is_replaced_by_the_new_one_and_that_is_no_refusal(
    machine: Machine, service: ScriptedService, welcomed: bool
) -> None:
    handler, older = await at_work(machine, service, "cmd_1")
    await older.say(GOODBYE)
    newer = await service.connection()
    await newer.hear(Hello)
    if welcomed:
        await newer.say(machine.welcome())
        await newer.say(status_query("cmd_2"))
        await handler.under_way(2)
    await older.socket.close(CloseCode.REPLACED)
    if not welcomed:
        await says_nothing(newer)
        await newer.say(machine.welcome())
    handler.let.set()
    assert (await newer.hear(CommandResult)).id == "cmd_1"
    assert handler.cut == 0
    assert service.connections == 2


async def test_replaced_before_its_own_hello_it_is_somebody_else(
    machine: Machine, service: ScriptedService
) -> None:
    older = await connected(machine, service)
    machine.woken.clear()
    await older.say(GOODBYE)
    await eventually(lambda: machine.waits == [4.0])
    await older.socket.close(CloseCode.REPLACED)
    assert (await machine.refused()).code == CloseCode.REPLACED


async def test_the_new_one_is_replaced_by_somebody_else(
    machine: Machine, service: ScriptedService
) -> None:
    newer = await moved(await connected(machine, service), service)
    await newer.socket.close(CloseCode.REPLACED)
    assert (await machine.refused()).code == CloseCode.REPLACED


async def test_an_old_connection_that_nobody_closes_is_left(
    machine: Machine, service: ScriptedService
) -> None:
    older = await connected(machine, service, SocketTiming(linger=0.05))
    newer = await moved(older, service)
    assert await older.closed() == CloseCode.GOING_AWAY
    await answered(newer, "cmd_1")


async def test_events_go_on_behind_the_acknowledged_one(
    machine: Machine, service: ScriptedService, journal: Journal
) -> None:
    older = await connected(machine, service)
    for name in ("evt_a", "evt_b"):
        machine.outbox.event(agent_event(name))
    assert [(await older.hear(Event)).seq for _ in range(2)] == [1, 2]
    await older.say(GOODBYE)
    newer = await service.connection()
    machine.outbox.event(agent_event("evt_c"))
    await newer.welcome(acknowledged=1)
    assert [(await newer.hear(Event)).seq for _ in range(2)] == [2, 3]
    await older.say(Acknowledge(seq=2))  # stored by the old node: it is true everywhere
    await eventually(lambda: [seq for seq, _ in journal.events(0, 9)] == [3])
    await newer.say(Acknowledge(seq=3))
    await eventually(lambda: journal.events(0, 9) == [])


@pytest.mark.parametrize("state", ["before the hello", "before the welcome", "moved"])
async def test_it_stops_at_once_in_the_midst_of_a_move(
    machine: Machine, service: ScriptedService, state: str
) -> None:
    older = await connected(machine, service)
    if state == "before the hello":
        machine.woken.clear()
    await older.say(GOODBYE)
    await eventually(lambda: len(machine.waits) == 1)
    current = older
    if state != "before the hello":
        newer = await service.connection()
        await newer.hear(Hello)
        if state == "moved":
            await newer.say(machine.welcome())
            await newer.say(status_query("cmd_1"))
            await newer.hear(CommandResult)
            current = newer
    machine.stop.set()
    await current.hear(Goodbye)
    assert await older.closed() == CloseCode.GOING_AWAY
    assert machine.running is not None
    async with asyncio.timeout(TIMEOUT):
        await machine.running
