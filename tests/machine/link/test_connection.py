"""The link against a scripted service on a real socket."""

import asyncio
import base64
import hashlib
import random
import uuid
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from outrider.contract.backoff import Backoff
from outrider.contract.commands import CommandType, Result
from outrider.contract.events import Refused
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Acknowledge,
    AcknowledgeRefusals,
    Cancel,
    Change,
    CloseCode,
    Command,
    CommandResult,
    Event,
    Goodbye,
    Hello,
    Refusal,
    Snapshot,
    Welcome,
)
from outrider.contract.limits import TokenBucket
from outrider.contract.link.outbox import Outbox
from outrider.contract.link.terminals import WINDOW, Data, Open, decode
from outrider.contract.link.terminals import encode as encode_terminal
from outrider.contract.resources import Provider, Workspace
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
from tests.rig.patience import PATIENCE
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


async def test_nothing_but_the_hello_before_the_welcome(
    machine: Machine, service: ScriptedService
) -> None:
    machine.start()
    peer = await service.connection()
    await peer.hear(Hello)
    machine.change(session("a", "while it waits"))
    machine.outbox.event(agent_event("evt_1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await peer.socket.recv()
    await peer.say(Welcome(protocol=1, version="1", daemon_id="machine_1", nickname="box"))
    assert (await peer.hear(Change)).sessions == [session("a", "while it waits")]


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


async def test_a_session_that_changes_often_is_told_as_it_is_now(
    machine: Machine, service: ScriptedService
) -> None:
    peer = await connected(machine, service)
    for index in range(1000):
        machine.change(session("a", str(index)))
        machine.change(session("b", str(index)))
    machine.outbox.session_removed("b")
    change = await peer.hear(Change)
    assert change.sessions == [session("a", "999")]
    assert change.removed == ["b"]


async def test_a_change_is_told_before_the_result_that_it_led_to(
    machine: Machine, service: ScriptedService
) -> None:
    async def busy(payload: object, deadline: float) -> Result:
        machine.change(session("a", "busy"))
        return Result()

    machine.handlers[CommandType.AGENT_STATUS] = busy
    peer = await connected(machine, service)
    for index in range(20):
        await peer.say(status_query(f"cmd_{index}"))
    frame_names: list[str] = []
    for _ in range(20):
        await peer.hear(CommandResult)
    for frame in peer.received[1:]:
        frame_names.append(type(frame).__name__)
        if isinstance(frame, CommandResult):
            assert "Change" in frame_names
    assert frame_names[0] == "Change"


async def test_what_a_hello_tells_is_not_told_again(
    machine: Machine, service: ScriptedService
) -> None:
    machine.start()
    peer = await service.connection()
    await peer.hear(Hello)
    machine.woken.clear()
    await peer.socket.close(CloseCode.GOING_AWAY)
    await eventually(lambda: len(machine.waits) == 1)
    machine.change(session("a"))
    machine.woken.set()
    peer = await service.connection()
    assert (await peer.welcome()).sessions == [session("a")]
    await peer.say(status_query("cmd_1"))
    await peer.hear(CommandResult)
    assert [type(frame) for frame in peer.received] == [Hello, CommandResult]


async def test_the_machines_figures_are_told_from_time_to_time(
    machine: Machine, service: ScriptedService
) -> None:
    peer = await connected(machine, service, SocketTiming(report_interval=0.05))
    change = await peer.hear(Change)
    assert change.machine is not None
    assert change.machine.total_mem > 0
    codex = Provider(
        type="codex",
        category="cli",
        display_name="Codex",
        installed=True,
        path="/usr/bin/codex",
        verified=True,
    )
    machine.providers = [codex]
    assert (await peer.hear(Snapshot)).providers == [codex]


async def test_what_an_agent_shows_is_cut_to_what_the_service_takes(
    machine: Machine, service: ScriptedService
) -> None:
    """A title of any length must not have the service close the connection."""
    machine.sessions["a"] = session("a", "x" * 100_000)
    machine.start()
    peer = await service.connection()
    (reported,) = (await peer.welcome()).sessions
    assert reported.title == "x" * 1023 + "…"
    machine.change(session("a", "two\nlines\x1b[2J"))
    (reported,) = (await peer.hear(Change)).sessions
    assert reported.title == "two�lines�[2J"
    machine.outbox.event(msgspec.structs.replace(agent_event("evt_1"), message="y" * 10_000))
    message = (await peer.hear(Event)).event.message
    assert message == "y" * 4095 + "…"


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


async def test_a_result_goes_only_where_its_command_came_from(
    machine: Machine, service: ScriptedService
) -> None:
    opened, entered = asyncio.Event(), asyncio.Event()

    async def slow(payload: object, deadline: float) -> Result:
        entered.set()
        await opened.wait()
        return Result()

    machine.handlers[CommandType.STOP_CLI] = slow
    first = await connected(machine, service)
    await first.say(
        Command(
            id="cmd_old",
            command="stop_cli",
            payload=msgspec.Raw(b'{"cliType":"codex"}'),
            timeout_ms=9000,
        )
    )
    await entered.wait()
    first.socket.transport.abort()
    second = await service.connection()
    await second.welcome()
    opened.set()
    await second.say(
        Command(id="cmd_new", command="nothing", payload=msgspec.Raw(b"{}"), timeout_ms=9000)
    )
    assert (await second.hear(CommandResult)).id == "cmd_new"
    assert [type(frame) for frame in second.received] == [Hello, CommandResult]


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


async def test_the_waits_grow_and_begin_anew_after_a_good_connection(
    machine: Machine, service: ScriptedService
) -> None:
    service.status = 503
    machine.start(SocketTiming(stable_after=0))
    await eventually(lambda: len(machine.waits) >= 8)
    assert machine.waits[:8] == [1, 2, 4, 8, 16, 30, 30, 30]
    service.status = None
    peer = await service.connection()
    await peer.welcome()
    machine.waits.clear()
    await peer.socket.close(CloseCode.DISCONNECTED)
    await service.connection()
    assert machine.waits == [1]


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


async def test_a_welcome_of_another_version_ends_it(
    machine: Machine, service: ScriptedService
) -> None:
    machine.start()
    peer = await service.connection()
    await peer.say(Welcome(protocol=2, version="9", daemon_id="machine_1", nickname="box"))
    assert (await machine.refused()).code == CloseCode.UNSUPPORTED_VERSION


async def test_a_forced_disconnect_is_followed_by_a_reconnect(
    machine: Machine, service: ScriptedService
) -> None:
    peer = await connected(machine, service)
    await peer.socket.close(CloseCode.DISCONNECTED, "from the dashboard")
    await (await service.connection()).welcome()
    assert machine.waits == [1]


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


@pytest.mark.parametrize(("asked_ms", "wait"), [(30_000, 15.0), (0, 1.0), (86_400_000, 300.0)])
async def test_a_goodbye_says_within_what_time_to_come_back(
    machine: Machine, service: ScriptedService, asked_ms: int, wait: float
) -> None:
    peer = await connected(machine, service)
    machine.woken.clear()
    await peer.say(Goodbye(reason="maintenance", reconnect_ms=asked_ms))
    await peer.socket.close(CloseCode.GOING_AWAY)
    machine.woken.set()
    await service.connection()
    assert machine.waits == [wait]


async def test_a_goodbye_instead_of_a_welcome(machine: Machine, service: ScriptedService) -> None:
    machine.start()
    peer = await service.connection()
    await peer.hear(Hello)
    await peer.say(Goodbye(reason="The service is stopping", reconnect_ms=8000))
    await peer.socket.close(CloseCode.GOING_AWAY)
    await (await service.connection()).welcome()
    assert machine.waits == [4.0]


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


async def test_an_unknown_frame_is_ignored(machine: Machine, service: ScriptedService) -> None:
    machine.start()
    peer = await service.connection()
    await peer.socket.send('{"type": "news", "of": "later versions"}')
    await peer.welcome()
    await peer.socket.send('{"type": "news"}')
    await peer.say(status_query("cmd_1"))
    assert (await peer.hear(CommandResult)).id == "cmd_1"


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
    async with asyncio.timeout(PATIENCE):
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


async def test_an_acknowledgement_deletes_only_what_was_told(
    machine: Machine, service: ScriptedService, journal: Journal
) -> None:
    for index in range(3):
        machine.outbox.event(agent_event(f"evt_{index}"))
    machine.outbox.resume(1)
    machine.outbox.events_acknowledged(2**53 - 1)  # no event was sent yet
    assert len(journal.events(0, 10)) == 3
    peer = await connected(machine, service)
    assert len(await numbers(peer, 3)) == 3
    await peer.say(Acknowledge(seq=2**53 - 1))
    await eventually(lambda: journal.events(0, 10) == [])


async def test_many_events_are_replayed_in_order(
    machine: Machine, service: ScriptedService
) -> None:
    for index in range(1, 501):
        machine.outbox.event(agent_event(f"evt_{index}"))
    peer = await connected(machine, service)
    assert await numbers(peer, 500) == [(i, f"evt_{i}") for i in range(1, 501)]


async def test_a_flood_of_events_is_spread_over_time(
    machine: Machine, service: ScriptedService, journal: Journal
) -> None:
    """The service takes so many at once; the others wait, and commands do not wait for them."""
    machine.outbox = Outbox(journal, allowance=TokenBucket(rate=2, burst=100))
    for index in range(1, 106):
        machine.outbox.event(agent_event(f"evt_{index}"))
    peer = await connected(machine, service)
    await numbers(peer, 100)
    await peer.say(status_query("cmd_1"))
    await peer.hear(CommandResult)
    sequence = [frame.seq for frame in peer.received if isinstance(frame, Event)]
    assert sequence == list(range(1, len(sequence) + 1))
    assert len(sequence) < 105
    assert (await numbers(peer, 105 - len(sequence)))[-1] == (105, "evt_105")


# RefusalSink


def refused(target: str) -> Refused:
    return Refused(session_id="s", action="agent.fs_read_refused", target=target, timestamp=1)


async def targets(peer: Peer, count: int) -> list[str]:
    return [(await peer.hear(Refusal)).refused.target for _ in range(count)]


async def test_refusals_are_told_again_until_they_are_acknowledged(
    machine: Machine, service: ScriptedService, journal: Journal
) -> None:
    machine.outbox.refused(refused("/a"))
    peer = await connected(machine, service)
    machine.outbox.refused(refused("/b"))
    first = await peer.hear(Refusal)
    assert first.refused == refused("/a")
    assert await targets(peer, 1) == ["/b"]
    await peer.say(AcknowledgeRefusals(seq=first.seq))
    await eventually(lambda: len(journal.refusals(0, 10)) == 1)
    peer.socket.transport.abort()
    peer = await service.connection()
    await peer.welcome()
    again = await peer.hear(Refusal)
    assert again.refused.target == "/b"
    await peer.say(AcknowledgeRefusals(seq=again.seq))
    await eventually(lambda: journal.refusals(0, 10) == [])
    machine.outbox.refused(refused("/c"))
    assert (await peer.hear(Refusal)).seq > again.seq


async def test_a_service_that_acknowledges_no_refusals_is_no_harm(
    machine: Machine, service: ScriptedService, tmp_path: Path
) -> None:
    with closing(Journal(tmp_path / "small.db", max_refusals=100)) as journal:
        machine.outbox = Outbox(journal)
        for index in range(150):
            machine.outbox.refused(refused(str(index)))
        peer = await connected(machine, service)
        assert await targets(peer, 100) == [str(index) for index in range(50, 150)]
        machine.outbox.event(agent_event("evt_a"))
        assert (await peer.hear(Event)).seq == 1
        await machine.close()


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
