"""The link against a scripted service on a real socket."""

import asyncio
import base64
import hashlib
import random
import uuid

import pytest
from structlog.testing import capture_logs

from outrider.contract.backoff import Backoff
from outrider.contract.commands import CommandType, Result
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Acknowledge,
    Cancel,
    CloseCode,
    CommandResult,
    Event,
    Goodbye,
    Hello,
)
from outrider.contract.link.terminals import WINDOW, Data, Open, decode
from outrider.contract.link.terminals import encode as encode_terminal
from outrider.contract.resources import Workspace
from outrider.machine.facts import describe_machine
from outrider.machine.link.connection import SocketTiming
from outrider.machine.link.journal import Journal
from outrider.machine.terminals.live import LiveTerminals, OpenableWindow
from outrider.machine.tmux.server import Tmux
from tests.contract.link.memory_log import agent_event, session
from tests.machine.agents.machine import kill_server
from tests.machine.conftest import eventually
from tests.machine.linked_machine import TOKEN, Machine, connected, status_query
from tests.machine.scripted_service import Peer, ScriptedService
from tests.rig.waiting import TIMEOUT
from tests.servers.server import free_port

# Hello


async def test_it_says_hello_with_its_token_and_all_that_runs(
    machine: Machine, service: ScriptedService
) -> None:
    machine.sessions["a"] = session("a")
    machine.outbox.event(agent_event("evt_1"))
    machine.start()
    peer = await service.connection()
    hello = await peer.hear(Hello)
    assert peer.token == f"Bearer {TOKEN}"
    assert peer.socket.request is not None
    assert peer.socket.request.path == "/api/v1/daemon/connect"
    assert hello.protocol == PROTOCOL_VERSION
    assert hello.sessions == [session("a")]
    assert hello.machine.hostname == describe_machine().hostname
    assert hello.last_event == 1


async def test_a_service_that_sends_no_welcome_is_left(
    machine: Machine, service: ScriptedService
) -> None:
    machine.start(SocketTiming(welcome_timeout=0.1))
    peer = await service.connection()
    assert await peer.closed() == CloseCode.HELLO_TIMEOUT
    # It connects again. A welcome might come too late, however soon it is sent.
    await (await service.connection()).hear(Hello)


async def test_the_token_is_never_in_the_log(machine: Machine, service: ScriptedService) -> None:
    with capture_logs() as logs:
        peer = await connected(machine, service)
        await peer.socket.close(CloseCode.GOING_AWAY)
        service.status = 500
        await eventually(lambda: len(machine.waits) >= 3)
        await machine.close()
    assert {"connected", "connection lost", "the service refused the connection"} <= {
        log["event"] for log in logs
    }
    assert TOKEN not in str(logs)


# What goes out


async def test_a_directory_that_is_not_utf8_is_told_all_the_same(
    machine: Machine, service: ScriptedService
) -> None:
    """os.fsdecode gives lone surrogates for it, which have no JSON."""
    machine.sessions["a"] = session("a", "\udcff")
    machine.sessions["a"].workspace = Workspace(path="/srv/\udcff", name="\udcff")
    machine.start()
    (reported,) = (await (await service.connection()).welcome()).sessions
    assert reported.workspace == Workspace(path="/srv/?", name="?")


# Commands


async def test_reads_are_cancelled_by_a_cancel_and_by_the_end_of_the_connection(
    machine: Machine, service: ScriptedService
) -> None:
    cancelled: list[bool] = []
    entered = 0

    async def slow(payload: object, deadline: float) -> Result:
        nonlocal entered
        entered += 1
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return Result()

    machine.handlers[CommandType.AGENT_STATUS] = slow
    peer = await connected(machine, service)
    await peer.say(status_query("cmd_1"))
    await peer.say(status_query("cmd_2"))
    await eventually(lambda: entered == 2)
    await peer.say(Cancel(id="cmd_1"))
    await eventually(lambda: len(cancelled) == 1)
    peer.socket.transport.abort()
    await eventually(lambda: len(cancelled) == 2)


# The connection's ends


async def test_it_comes_back_whenever_the_service_does(
    machine: Machine, service: ScriptedService
) -> None:
    await service.stop()
    service.port = free_port()  # nobody takes it meanwhile
    await service.start()
    machine.url = service.url
    peer = await connected(machine, service)
    machine.change(session("a"))
    await service.stop()
    await eventually(lambda: len(machine.waits) >= 3)
    machine.change(session("a", "newer"))
    await service.start()
    peer = await service.connection()
    assert (await peer.welcome()).sessions == [session("a", "newer")]
    await peer.say(status_query("cmd_1"))
    assert (await peer.hear(CommandResult)).id == "cmd_1"


def test_a_wait_is_all_chance() -> None:
    highest, lowest = Backoff(lambda: 1.0), Backoff(lambda: 0.0)
    assert [highest.next() for _ in range(8)] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert [lowest.next() for _ in range(8)] == [0] * 8


@pytest.mark.parametrize(("attempt", "within"), [(1, 2.0), (2, 4.0), (3, 8.0), (9, 60.0)])
def test_the_machines_of_a_node_that_died_come_back_spread_out(attempt: int, within: float) -> None:
    """Five thousand: no tenth of the time sees many more of them than another."""
    chance = random.Random(8).random
    waits = []
    for _ in range(5000):
        backoff = Backoff(chance)
        waits.append([backoff.next() for _ in range(attempt)][-1])
    tenths = [0] * 10
    for wait in waits:
        tenths[int(wait / within * 10)] += 1
    assert min(tenths) > 400
    assert max(tenths) < 600


def test_a_frozen_service_is_left_before_the_machine_counts_as_offline() -> None:
    """Its other nodes take it for dead after 15 s, and the machine for gone 30 s later."""
    timing = SocketTiming()
    assert timing.ping_interval + timing.ping_timeout + timing.close_timeout <= 25


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503])
async def test_an_http_refusal_is_tried_again(
    machine: Machine, service: ScriptedService, status: int
) -> None:
    service.status = status
    machine.start()
    await eventually(lambda: service.connections >= 2)
    service.status = None
    await (await service.connection()).welcome()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (CloseCode.UNAUTHORIZED, "run `outrider setup` again"),
        (CloseCode.UNSUPPORTED_VERSION, "update outrider"),
        (CloseCode.REPLACED, "run `outrider setup` on one of the two"),
    ],
)
@pytest.mark.parametrize("welcomed", [False, True])
async def test_a_refusal_for_good_ends_it_with_what_to_do(
    machine: Machine,
    service: ScriptedService,
    code: CloseCode,
    advice: str,
    welcomed: bool,
) -> None:
    machine.start()
    peer = await service.connection()
    if welcomed:
        await peer.welcome()
    await peer.socket.close(code, "the service's words")
    refusal = await machine.refused()
    assert refusal.code == code
    assert advice in str(refusal)
    assert service.connections == 1


@pytest.mark.parametrize(
    "code", [CloseCode.BAD_FRAME, CloseCode.TOO_MUCH_STATE, CloseCode.TOO_MANY_EVENTS]
)
async def test_the_log_says_which_limit_was_broken(
    machine: Machine, service: ScriptedService, code: CloseCode
) -> None:
    with capture_logs() as logs:
        peer = await connected(machine, service)
        await peer.socket.close(code, "A machine may report 1000 sessions at the most")
        await (await service.connection()).welcome()
    (log,) = [log for log in logs if log["log_level"] == "error"]
    assert (log["code"], log["reason"]) == (code, "A machine may report 1000 sessions at the most")


@pytest.mark.parametrize(
    "rubbish", ["", "{", "[]", '{"type": 5}', '{"type": "command", "id": 1}', b"\xff\x00"]
)
@pytest.mark.parametrize("welcomed", [False, True])
async def test_rubbish_ends_the_connection_and_not_the_link(
    machine: Machine, service: ScriptedService, rubbish: str | bytes, welcomed: bool
) -> None:
    machine.start()
    peer = await service.connection()
    if welcomed:
        await peer.welcome()
    await peer.socket.send(rubbish)
    assert await peer.closed() == CloseCode.BAD_FRAME
    await (await service.connection()).welcome()


async def test_an_oversize_frame_ends_the_connection_and_not_the_link(
    machine: Machine, service: ScriptedService
) -> None:
    peer = await connected(machine, service)
    await peer.socket.send("x" * (MAX_FRAME_BYTES + 1))
    assert await peer.closed() == 1009
    await (await service.connection()).welcome()


async def test_a_silent_service_is_noticed(machine: Machine, nothing_left: object) -> None:
    """A peer that is gone without a word: it shakes hands, and then answers no ping."""
    connections: list[asyncio.StreamWriter] = []

    async def shake_hands_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line.split(": ")[1]
            for line in head.splitlines()
            if line.lower().startswith("sec-websocket-key")
        )
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )
        connections.append(writer)

    server = await asyncio.start_server(shake_hands_only, "127.0.0.1", 0)
    machine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    machine.start(SocketTiming(ping_interval=0.05, ping_timeout=0.05, close_timeout=0.05))
    try:
        await eventually(lambda: len(connections) >= 2)
    finally:
        await machine.close()
        for writer in connections:
            writer.close()
        server.close()
        await server.wait_closed()


# Stopping


async def test_it_says_goodbye_when_it_stops(machine: Machine, service: ScriptedService) -> None:
    peer = await connected(machine, service)
    machine.stop.set()
    await peer.hear(Goodbye)
    assert await peer.closed() == CloseCode.GOING_AWAY


@pytest.mark.parametrize("state", ["waiting", "opening", "before the welcome"])
async def test_it_stops_at_once_in_every_state(
    machine: Machine, service: ScriptedService, state: str
) -> None:
    if state == "waiting":
        machine.woken.clear()
        await service.stop()
        machine.start()
        await eventually(lambda: len(machine.waits) == 1)
    elif state == "before the welcome":
        machine.start()
        await service.connection()
    else:
        machine.start()
        await asyncio.sleep(0)
    machine.stop.set()
    assert machine.running is not None
    async with asyncio.timeout(TIMEOUT):
        await machine.running


# Events


async def numbers(peer: Peer, count: int) -> list[tuple[int, str]]:
    events = [await peer.hear(Event) for _ in range(count)]
    return [(frame.seq, frame.event.id) for frame in events]


async def test_events_are_told_again_until_they_are_acknowledged(
    machine: Machine, service: ScriptedService, journal: Journal
) -> None:
    machine.outbox.event(agent_event("evt_a"))
    peer = await connected(machine, service)
    machine.outbox.event(agent_event("evt_b"))
    machine.outbox.event(agent_event("evt_c"))
    assert await numbers(peer, 3) == [(1, "evt_a"), (2, "evt_b"), (3, "evt_c")]
    await peer.say(Acknowledge(seq=1))
    await eventually(lambda: len(journal.events(0, 10)) == 2)
    peer.socket.transport.abort()
    peer = await service.connection()
    assert (await peer.welcome(acknowledged=2)).last_event == 3  # an acknowledgement got lost
    assert await numbers(peer, 1) == [(3, "evt_c")]
    await peer.say(Acknowledge(seq=3))
    await eventually(lambda: journal.events(0, 10) == [])


# Terminals


async def test_a_loud_terminal_holds_up_neither_commands_nor_events(
    machine: Machine, service: ScriptedService
) -> None:
    socket = f"outrider-test-{uuid.uuid4().hex[:12]}"
    tmux = Tmux(socket)

    async def window(request: Open) -> OpenableWindow:
        return OpenableWindow(await tmux.open("loud", ["yes", "y" * 100]), is_agent=False)

    async def answer(payload: object, deadline: float) -> Result:
        return Result()

    machine.handlers[CommandType.AGENT_STATUS] = answer
    machine.terminals = LiveTerminals(tmux, window, restore_seconds=0)
    machine.start()
    peer = await service.connection()
    assert (await peer.welcome()).terminals
    await peer.socket.send(encode_terminal(1, Open(name="loud")))
    for number in range(20):  # nothing is granted: the window fills while commands are answered
        await peer.say(status_query(f"cmd_{number}"))
        machine.outbox.event(agent_event(f"evt_{number}"))
        await peer.hear(Event)
        if not any(result.id == f"cmd_{number}" for result in results(peer)):
            assert (await peer.hear(CommandResult)).id == f"cmd_{number}"
    kinds = [decode(message)[1] for message in peer.binary]
    assert sum(len(kind.data) for kind in kinds if isinstance(kind, Data)) <= WINDOW
    await machine.close()
    await machine.terminals.close()
    await tmux.close()
    kill_server(socket)


def results(peer: Peer) -> list[CommandResult]:
    return [frame for frame in peer.received if isinstance(frame, CommandResult)]
