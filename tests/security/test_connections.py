"""Attacks on a connection, mostly before anybody knows who is at its other end."""

import asyncio
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from outrider.contract.frames import MAX_HELLO_BYTES
from tests.conftest import early_in_a_window
from tests.rig.machine import ScriptedMachine, hello, socket
from tests.rig.samples import CHAT
from tests.security.attacks import (
    CHUNKED,
    PINGS,
    POST,
    TRAILER_LINES,
    TRAILER_VALUE,
    send_repeatedly,
    upgrade,
)
from tests.security.conftest import StartTarget
from tests.security.target import MB, Target

TIMEOUT = 60.0
"""Seconds for what takes the service 20: a head, or a body without progress."""


async def flood(target: Target, begin: bytes, endless: bytes, most: int) -> int:
    """Open a connection, send `begin` and then `endless` again and again.

    Returns the bytes that the service took until it dropped the connection, or `most`.
    """
    _, writer = await target.connect()
    writer.write(begin)
    return await send_repeatedly(writer, endless, most)


async def until_ended(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the service ends the connection."""
    data = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(TIMEOUT):
            while part := await reader.read(65536):
                data += part
    return data


class TestWhatFollowsTheHead:
    """Trailers of one connection took the service from 105 to 1,975 MB."""

    @pytest.mark.parametrize(
        ("begin", "endless"),
        [
            pytest.param(*TRAILER_LINES, id="trailers"),
            pytest.param(*TRAILER_VALUE, id="one trailer's value"),
            pytest.param(CHUNKED + b"0\r\n", b"z" * 64_000, id="one trailer's name"),
            pytest.param(CHUNKED + b"1;", b"z" * 64_000, id="a chunk's extension"),
            pytest.param(CHUNKED, b"1;zzzzzzzzzzzzzzzzzzzz\r\nx\r\n" * 2560, id="every extension"),
            pytest.param(b"\r\n", b"\r\n" * 32_000, id="blank lines"),
            pytest.param(POST.encode(), TRAILER_LINES[1], id="headers"),
            pytest.param(POST.encode() + b"X: ", b"z" * 64_000, id="one header's value"),
        ],
    )
    async def test_endless(self, target: Target, begin: bytes, endless: bytes) -> None:
        most = 200 * MB
        async with target.grows_at_most(10 * MB):
            sent = await flood(target, begin, endless, most)
        # The network's buffers hold some of it.
        assert sent < 20 * MB

    async def test_on_many_connections_at_once(self, target: Target) -> None:
        floods = [flood(target, *TRAILER_LINES, 5 * MB) for _ in range(100)]
        async with target.grows_at_most(60 * MB):
            assert await target.healthy_meanwhile(asyncio.gather(*floods)) >= 1

    async def test_a_head_of_many_small_headers(self, target: Target) -> None:
        request = POST.encode() + b"a:b\r\n" * 50_000 + b"\r\n"
        async with target.grows_at_most(30 * MB):
            for _ in range(20):
                _, writer = await target.connect()
                writer.write(request)
                await asyncio.sleep(0)

    async def test_requests_that_wait_for_an_earlier_one(self, target: Target) -> None:
        """Thousands in one packet: each would be kept until those before it are answered."""
        request = f"GET /readyz HTTP/1.1\r\nHost: {'x' * 20}\r\n\r\n".encode() * 5000
        async with target.grows_at_most(30 * MB):
            for _ in range(50):
                _, writer = await target.connect()
                writer.write(request)
                await asyncio.sleep(0)


class TestSlow:
    """Every connection has a time limit for a request's head and for its body's progress."""

    BEGUN = (
        b"",
        b"GET /api",
        POST.encode() + b"X-A: b\r\n",
        (POST + "Content-Length: 1000\r\n\r\nx").encode(),
        CHUNKED + b"1\r\nx\r\n",
        CHUNKED + b"0\r\nX: y\r\n",
    )

    async def test_connections_that_do_not_go_on(self, target: Target) -> None:
        connections = [(begun, await target.connect()) for begun in self.BEGUN * 50]
        for begun, (_, writer) in connections:
            writer.write(begun)
        async with target.grows_at_most(20 * MB):
            ends = [until_ended(reader) for _, (reader, _) in connections]
            assert await target.healthy_meanwhile(asyncio.gather(*ends)) > 1

    async def test_connections_that_drip(self, target: Target) -> None:
        """A byte now and then is no progress: a head and a body have limits as a whole."""
        connections = [await target.connect() for _ in self.BEGUN[2:]]
        ended = [asyncio.create_task(until_ended(reader)) for reader, _ in connections]
        for begun, (_, writer) in zip(self.BEGUN[2:], connections, strict=True):
            writer.write(begun)
        while not all(task.done() for task in ended):
            for _, writer in connections:
                writer.write(b"x")
            await asyncio.sleep(0.2)


class TestFramesWithoutACredential:
    """What is sent on a socket whose token is worth nothing is not even read."""

    @pytest.mark.parametrize("token", [None, "omt_" + "x" * 43], ids=["none", "unknown"])
    async def test_tiny_frames(self, target: Target, token: str | None) -> None:
        reader, writer = await target.connect()
        writer.write(upgrade(token))
        received = asyncio.create_task(until_ended(reader))

        async def pings() -> None:
            with suppress(ConnectionError):
                while not received.done():
                    writer.write(PINGS)
                    await writer.drain()
                    await asyncio.sleep(0.05)

        async with target.grows_at_most(10 * MB):
            assert await target.healthy_meanwhile(pings()) >= 1
        head, _, frames = (await received).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert frames[0] & 0x0F == Opcode.CLOSE
        assert frames[2:4] == (4401).to_bytes(2, "big")
        assert len(frames) == 2 + frames[1], "a close, and no pong"

    async def test_frames_of_many_megabytes(self, target: Target) -> None:
        """16 MiB were kept of each, of any number."""
        large = Frame(Opcode.TEXT, b" " * 15 * MB).serialize(mask=True, extensions=[])
        connections = [await target.connect() for _ in range(50)]
        async with target.grows_at_most(20 * MB):
            for _, writer in connections:
                writer.write(upgrade() + large)
            ends = [until_ended(reader) for reader, _ in connections]
            assert await target.healthy_meanwhile(asyncio.gather(*ends)) >= 1

    async def test_handshakes_of_one_address(self, start_target: StartTarget) -> None:
        target = await start_target(rate_limit_ip="30")
        await early_in_a_window()
        statuses = []
        for _ in range(60):
            reader, writer = await target.connect()
            writer.write(upgrade())
            statuses.append((await reader.readline()).split()[1])
            writer.transport.abort()
        assert statuses.count(b"101") == 30
        assert statuses[30:] == [b"429"] * 30


class TestFramesOfAMachine:
    """By a machine with a token: it is bounded, too, before its welcome and after."""

    async def test_tiny_frames(self, target: Target) -> None:
        machine = await target.machine()
        bystander = await target.machine()
        async with target.grows_at_most(10 * MB):
            with suppress(ConnectionClosed):
                await machine.pings(10_000)
            assert (await machine.closed())[0] == 1008
        await bystander.settled()

    async def test_hellos_that_do_not_end(self, target: Target) -> None:
        """Of all the connections of a machine that are not welcome yet, one is open."""
        token = await target.token()
        part = Frame(Opcode.TEXT, b" " * (MAX_HELLO_BYTES - 1000), fin=False)
        data = part.serialize(mask=True, extensions=[])
        async with target.grows_at_most(4 * MAX_HELLO_BYTES):
            connections = [await target.connect() for _ in range(20)]
            for _, writer in connections:
                writer.write(upgrade(token))
                with suppress(ConnectionError):
                    await writer.drain()
            for (reader, writer), _ in zip(connections, range(20), strict=True):
                await reader.readuntil(b"\r\n\r\n")
                with suppress(ConnectionError):
                    writer.write(data)
                    await writer.drain()
            ends = [until_ended(reader) for reader, _ in connections[:-1]]
            await asyncio.gather(*ends)

    async def test_an_endless_hello(self, target: Target) -> None:
        token = await target.token()
        async with target.grows_at_most(4 * MAX_HELLO_BYTES):
            for _ in range(5):
                async with socket(target.gateway, token) as connection:
                    with suppress(ConnectionClosed):
                        await connection.send([b"x" * MB] * 16)
                    with pytest.raises(ConnectionClosed):
                        await connection.recv()
        machine = ScriptedMachine(target.gateway, token, hello())
        async with machine:
            await machine.settled()

    async def test_a_hello_in_parts_of_a_byte(self, target: Target) -> None:
        """A list of them is fifty times as large."""
        part = Frame(Opcode.CONT, b" ", fin=False).serialize(mask=True, extensions=[])
        begin = Frame(Opcode.TEXT, b" ", fin=False).serialize(mask=True, extensions=[])
        reader, writer = await target.connect()
        token = await target.token()
        ping = Frame(Opcode.PING, b"last").serialize(mask=True, extensions=[])
        async with target.grows_at_most(8 * MB):
            writer.write(upgrade(token))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            for _ in range(100):
                writer.write(part * 4000)
                await writer.drain()
            writer.write(ping)
            await reader.readuntil(b"last")


class TestUnreadResponses:
    """Large results of an attacker's own machine, requested and not read."""

    async def test_of_many_connections(self, target: Target) -> None:
        account = await target.account()
        machine = await target.machine(account=account)
        message = {"id": "msg_1", "index": 0, "role": "assistant", "kind": "text", "timestamp": 1}
        chat = CHAT | {"messages": [message | {"content": "x" * (12 * MB)}]}
        request = (
            f"GET /api/v1/shortcuts/{machine.id}:cli:claude-code/chat HTTP/1.1\r\n"
            f"Host: localhost\r\nAuthorization: Bearer {account.key}\r\n\r\n"
        ).encode()
        async with target.grows_at_most(400 * MB):
            for _ in range(60):
                reader, writer = await target.connect()
                writer.write(request)
                await machine.answers(await machine.takes("read_chat"), chat)
                assert b" 200 " in await reader.readline()


class TestDocuments:
    """`/docs` took 22 ms each time it was asked for, by anybody."""

    async def test_a_thousand_times(self, target: Target) -> None:
        client = target.site.client()
        (await client.get("/docs")).raise_for_status()

        async def ask() -> None:
            for _ in range(250):
                for path in ("/docs", "/openapi.json"):
                    assert (await client.get(path)).status_code == 200

        async with target.grows_at_most(20 * MB):
            assert await target.healthy_meanwhile(asyncio.gather(ask(), ask())) > 1


class TestRebinding:
    """A page whose name leads here, with the credential of a user of this machine."""

    @pytest.mark.parametrize("path", ["/", "/docs", "/device", "/api/v1/daemons", "/api/v1/x"])
    async def test_another_host(self, target: Target, path: str) -> None:
        client = await target.login()
        for host in ("evil.example", f"evil.example:{target.port}", "localhost.evil.example"):
            assert (await client.get(path, headers={"Host": host})).status_code == 421
        assert (await client.get(path)).status_code in {200, 404}
