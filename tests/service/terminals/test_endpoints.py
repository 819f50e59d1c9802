"""Live terminals through a running service, with a real WebSocket client and a scripted machine."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from outrider.contract.frames import CloseCode
from outrider.contract.link.terminals import (
    WINDOW,
    Closed,
    Data,
    MessageType,
    Open,
    StreamCode,
    encode,
)
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.people import person
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.sockets import refused, resize, viewer
from tests.rig.terminals import ScriptedTerminals, terminal_machine
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

V1 = "/api/v1"


def agent_path(terminals: ScriptedTerminals, session_id: str = "session_1") -> str:
    return f"{V1}/shortcuts/{terminals.machine.id}:session:{session_id}/terminal"


def named_path(terminals: ScriptedTerminals, name: str = "build") -> str:
    return f"{V1}/daemons/{terminals.machine.id}/terminals/{name}"


async def received(socket: ClientConnection, count: int) -> bytes:
    """Return the next `count` bytes of a terminal."""
    data = b""
    async with asyncio.timeout(TIMEOUT):
        while len(data) < count:
            message = await socket.recv()
            assert isinstance(message, bytes), message
            data += message
    return data


async def end_of(socket: ClientConnection) -> tuple[int | None, str | None]:
    """Read to the close; return its code and reason."""
    async with asyncio.timeout(TIMEOUT):
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return socket.close_code, socket.close_reason


class Opened:
    """An open terminal: the client's socket, and the machine's stream."""

    def __init__(self, owner: Owner, terminals: ScriptedTerminals, path: str) -> None:
        self._viewing = viewer(owner, path)
        self._terminals = terminals

    async def __aenter__(self) -> tuple[ClientConnection, int, Open]:
        opening = asyncio.create_task(self._terminals.opens())
        socket = await self._viewing.__aenter__()
        stream, request = await opening
        return socket, stream, request

    async def __aexit__(self, *exception: Any) -> None:
        await self._viewing.__aexit__(*exception)


class TestAgentTerminal:
    async def test_bytes_go_both_ways(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, stream, request):
            assert request == Open(session_id="session_1")
            await terminals.shows(stream, b"\x1b[1mhi\xff\x00")
            assert await received(socket, 8) == b"\x1b[1mhi\xff\x00"
            await socket.send(b"l")
            await socket.send(b"s\r")
            await eventually(lambda: terminals.typed[stream] == b"ls\r")
            await socket.send(resize(120, 40))
            assert await terminals.resized() == (120, 40)
        number, left = await terminals.left()
        assert (number, left.code) == (stream, StreamCode.ENDED)

    @pytest.mark.one_store
    async def test_its_size_may_be_given_at_once(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        path = f"{agent_path(terminals)}?columns=100&rows=30"
        async with Opened(owner, terminals, path) as (_, _, request):
            assert (request.columns, request.rows, request.mode) == (100, 30, "write")
        for query in ("columns=0", "rows=1001", "columns=x", "mode=write2"):
            response = await refused(owner, f"{agent_path(terminals)}?{query}")
            assert_error(response, 400)

    @pytest.mark.one_store
    async def test_a_target_by_type_is_resolved_by_the_machine(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        path = f"{V1}/shortcuts/{terminals.machine.id}:cli:claude-code/terminal"
        async with Opened(owner, terminals, path) as (_, _, request):
            assert request.session_id == "session_1"  # as the machine's status says

    @pytest.mark.one_store
    async def test_several_clients(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        path = agent_path(terminals)
        async with (
            Opened(owner, terminals, path) as (first_socket, first, _),
            Opened(owner, terminals, path) as (two, second, _),
        ):
            await terminals.shows(first, b"1")
            await terminals.shows(second, b"2")
            assert await received(first_socket, 1) == b"1"
            assert await received(two, 1) == b"2"

    async def test_watching_needs_agent_read_alone(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        path = agent_path(terminals)
        reader = {"Authorization": f"Bearer {await owner.site.key(owner.id, ['agent:read'])}"}
        assert_error(await refused(owner, path, reader), 403, "AUTH_FORBIDDEN")
        assert_error(await refused(owner, named_path(terminals), reader), 403, "AUTH_FORBIDDEN")
        opening = asyncio.create_task(terminals.opens())
        async with viewer(owner, f"{path}?mode=read", reader) as socket:
            stream, request = await opening
            assert request.mode == "read"
            await socket.send(resize(10, 10))
            for _ in range(3):
                await socket.send(b"rm -rf /\r")
            await terminals.shows(stream, b"screen")
            warning = json.loads(await socket.recv())
            assert warning["type"] == "error"
            assert "mode=read" in warning["error"]
            assert await received(socket, 6) == b"screen"
            assert not terminals.typed[stream]
        assert (await terminals.left())[0] == stream


@pytest.mark.one_store
class TestNamedTerminal:
    async def test_it_is_opened_by_its_name(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, named_path(terminals)) as (socket, stream, request):
            assert request == Open(name="build")
            await socket.send(b"make\r")
            await eventually(lambda: terminals.typed[stream] == b"make\r")

    async def test_a_name_that_none_can_have(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        assert_error(await refused(owner, named_path(terminals, "a%20b")), 404)


@pytest.mark.one_store
class TestRefusal:
    @pytest.mark.parametrize(
        ("code", "status", "error_code"),
        [
            (StreamCode.NOT_FOUND, 404, None),
            (StreamCode.CONFLICT, 409, None),
            (StreamCode.FORBIDDEN, 403, None),
            (StreamCode.TOO_MANY, 429, "RATE_LIMITED"),
            (StreamCode.GOING_AWAY, 503, None),
            (StreamCode.FAILED, 500, None),
            (StreamCode.ENDED, 500, None),
        ],
    )
    async def test_by_the_machine(
        self, owner: Owner, code: StreamCode, status: int, error_code: str | None
    ) -> None:
        terminals = await terminal_machine(owner)
        refusing = asyncio.create_task(terminals.refuses(code, "This agent has no terminal"))
        response = await refused(owner, agent_path(terminals))
        assert "no terminal" in assert_error(response, status, error_code)["error"]
        await refusing

    async def test_another_account_s_is_as_what_does_not_exist(
        self, site: Site, owner: Owner
    ) -> None:
        terminals = await terminal_machine(owner)
        other = await person(site)
        for path in (agent_path(terminals), named_path(terminals)):
            theirs = assert_error(await refused(other, path), 404)
            nobody = path.replace(terminals.machine.id, "machine_none")
            none = assert_error(await refused(owner, nobody), 404)
            assert theirs["error"] == none["error"].replace("machine_none", terminals.machine.id)
        assert len(terminals) == 0

    async def test_a_machine_that_is_offline(self, owner: Owner) -> None:
        enrolled = await owner.enrolls()
        for kind in ("session:session_1", "cli:claude-code"):
            path = f"{V1}/shortcuts/{enrolled.daemon_id}:{kind}/terminal"
            response = await refused(owner, path)
            assert "offline" in assert_error(response, 503)["error"]
            assert response.headers["retry-after"]

    async def test_a_machine_agent_without_terminals(self, owner: Owner) -> None:
        machine = (await owner.machine(session())).obliges()
        response = await refused(owner, f"{V1}/daemons/{machine.id}/terminals/build")
        assert "update it" in assert_error(response, 501)["error"]

    async def test_a_machine_that_does_not_answer(self, start_site: StartSite) -> None:
        site = await start_site(command_timeout=0.2)
        owner = await site.account()
        terminals = await terminal_machine(owner)
        assert_error(await refused(owner, agent_path(terminals)), 504)
        assert (await terminals.left())[1].code == StreamCode.ENDED


@pytest.mark.one_store
class TestWindow:
    async def test_a_client_that_does_not_read_stalls_only_its_own_stream(
        self, owner: Owner
    ) -> None:
        """What the service and the sockets hold is bounded: the machine runs out of room."""
        terminals = await terminal_machine(owner)
        path = agent_path(terminals)
        async with (
            Opened(owner, terminals, path) as (slow, stalled, _),
            Opened(owner, terminals, path) as (quick, other, _),
        ):
            slow.transport.pause_reading()
            shown = 0
            loop = asyncio.get_running_loop()
            still_since = loop.time()
            while loop.time() - still_since < 0.5:  # full: no room has come for a while
                room = terminals.room(stalled)
                if room:
                    await terminals.shows(stalled, b"y" * room)
                    shown, still_since = shown + room, loop.time()
                assert shown < 64 * 1024 * 1024, "somebody keeps it all"
                await asyncio.sleep(0)
            await terminals.shows(other, b"prompt")
            assert await received(quick, 6) == b"prompt"
            status = f"{V1}/shortcuts/{terminals.machine.id}:cli:claude-code/status"
            assert (await owner.api.get(status)).status_code == 200
            slow.transport.resume_reading()
            assert await received(slow, shown) == b"y" * shown
            await terminals.shows(stalled, b"on")
            assert await received(slow, 2) == b"on"

    async def test_a_paste_waits_for_the_terminal_that_takes_it(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, stream, _):
            terminals.reads = False
            paste = bytes(range(256)) * 3000  # three windows
            await socket.send(paste)
            await eventually(lambda: len(terminals.typed[stream]) == WINDOW)
            await terminals.reads_again(stream)
            await eventually(lambda: terminals.typed[stream] == paste)


@pytest.mark.one_store
class TestEnd:
    async def test_the_program_ends_after_its_last_output(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, stream, _):
            await terminals.shows(stream, b"x" * 100_000)
            await terminals.closes(stream, StreamCode.ENDED, "The program has ended")
            assert len(await received(socket, 100_000)) == 100_000
            assert await end_of(socket) == (1000, "The program has ended")

    @pytest.mark.parametrize(
        ("code", "expected"), [(1001, 1012), (4404, 4404), (4500, 4500), (4999, 1011)]
    )
    async def test_the_machine_closes_it(self, owner: Owner, code: int, expected: int) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, stream, _):
            await terminals.machine.say_raw(encode(stream, Closed(code=code, reason="why")))
            assert await end_of(socket) == (expected, "why")

    async def test_the_machine_is_lost_and_comes_back(self, owner: Owner) -> None:
        enrolled = await owner.enrolls()
        machine = await owner.machine(session(), enrolled=enrolled, terminals=True)
        terminals = ScriptedTerminals(machine)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, _, _):
            await machine.drops()
            assert (await end_of(socket))[0] == 1013
        again = await owner.machine(session(), enrolled=enrolled, terminals=True)
        terminals = ScriptedTerminals(again)
        async with Opened(owner, terminals, agent_path(terminals)) as (_, stream, _):
            assert stream == 1

    async def test_a_newer_connection_of_the_machine(self, owner: Owner) -> None:
        enrolled = await owner.enrolls()
        machine = await owner.machine(session(), enrolled=enrolled, terminals=True)
        terminals = ScriptedTerminals(machine)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, _, _):
            newer = await owner.machine(session(), enrolled=enrolled, terminals=True)
            assert (await end_of(socket))[0] == 1013
            terminals = ScriptedTerminals(newer)
        async with Opened(owner, terminals, agent_path(terminals)) as (_, stream, _):
            assert stream == 1

    async def test_a_text_that_is_not_a_size(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, _, _):
            for text in ("ls", resize(0, 10), resize(10, 1001), '{"type":"bell"}', "[" * 10_000):
                await socket.send(text)
                answer = json.loads(await socket.recv())
                assert answer["type"] == "error"
                assert "columns" in answer["error"]
            await socket.send(resize(10, 1000))
            assert await terminals.resized() == (10, 1000)

    async def test_a_message_that_is_too_large(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, _, _):
            await socket.send(b"x" * (1024 * 1024 + 1))
            assert (await end_of(socket))[0] == 1009
        await terminals.left()


HOSTILE = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda kind, stream, payload: bytes([kind]) + stream.to_bytes(4, "big") + payload,
        st.integers(0, 7),
        st.integers(0, 3),
        st.binary(max_size=16),
    ),
)


@pytest.mark.one_store
class TestHostileMachine:
    async def test_more_than_the_window_closes_that_stream_alone(self, owner: Owner) -> None:
        terminals = await terminal_machine(owner)
        path = agent_path(terminals)
        async with (
            Opened(owner, terminals, path) as (flooded, first, _),
            Opened(owner, terminals, path) as (socket, second, _),
        ):
            flooded.transport.pause_reading()
            for _ in range(2000):
                await terminals.machine.say_raw(encode(first, Data(b"x" * 16_384)))
            await terminals.machine.settled()
            flooded.transport.resume_reading()
            assert (await end_of(flooded))[0] == StreamCode.BAD_MESSAGE
            await terminals.shows(second, b"fine")
            assert await received(socket, 4) == b"fine"

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"\x03\x00",
            bytes([MessageType.OPEN, 0, 0, 0, 9]) + b'{"name":"x"}',
            b"\x03" * 70_000,
        ],
    )
    async def test_what_closes_the_connection(self, owner: Owner, message: bytes) -> None:
        terminals = await terminal_machine(owner)
        async with Opened(owner, terminals, agent_path(terminals)) as (socket, _, _):
            await terminals.machine.say_raw(message)
            assert (await terminals.machine.closed())[0] == CloseCode.BAD_FRAME
            assert (await end_of(socket))[0] == 1013

    @pytest.mark.fuzz
    @given(messages=st.lists(HOSTILE, max_size=8))
    @settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
    async def test_the_service_goes_on(self, owner: Owner, messages: list[bytes]) -> None:
        async with owner.site.visit():
            hostile = await terminal_machine(owner)
            good = await terminal_machine(owner)
            async with (
                Opened(owner, hostile, agent_path(hostile)),
                Opened(owner, good, agent_path(good)) as (socket, stream, _),
            ):
                for message in messages:
                    if hostile.machine.is_open:
                        await hostile.machine.say_raw(message)
                await good.shows(stream, b"fine")
                assert await received(socket, 4) == b"fine"
