"""`outrider attach` in a terminal of its own, at the terminal of a shell."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from outrider.sdk import AsyncMachine
from tests.rig.processes import TerminalProgram
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="session")


def attached(target: str, env: dict[str, str]) -> TerminalProgram:
    """Return `outrider attach`, which `async with` starts."""
    return TerminalProgram("-m", "outrider", "attach", target, env=env)


async def detach(terminal: TerminalProgram) -> None:
    """Press Ctrl-], and wait for the end."""
    terminal.types("\x1d")
    assert await terminal.ends(TIMEOUT) == 0
    await terminal.shows(b"Detached")


class Network:
    """What lies between a client and the service, and can lose its connections.

    Attributes:
        url: the service's, through it.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._failures = 0
        self.url = ""

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Self]:
        """Carry connections while the context lasts."""
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0) as server:
            self.url = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
            yield self
            self.loses_all()

    def loses_all(self) -> None:
        """Abort every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def fails(self, status: int) -> None:
        """Answer the next connection with an error, as a proxy does without its server."""
        self._failures = status

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        failure, self._failures = self._failures, 0
        if failure:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % failure)
            writer.close()
            return
        upstream = await asyncio.open_connection(self._url.hostname, self._url.port)
        both = {writer, upstream[1]}
        self._writers |= both
        try:
            await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))
        except OSError:
            pass
        finally:
            self._writers -= both
            for side in both:
                side.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # one side has ended: the other one does too


async def test_keys_reach_the_agent_until_ctrl_bracket_detaches(
    env: dict[str, str], machine: AsyncMachine, tmp_path: Path
) -> None:
    shell = await machine.launch("shell", dir=str(tmp_path))
    try:
        async with attached(shell.id, env) as terminal:
            before = terminal.mode
            await terminal.shows(b"sh>")
            terminal.types("echo $((6 * 7))\r")
            await terminal.shows(b"42")
            assert terminal.mode != before
            await detach(terminal)
            assert terminal.mode == before
        assert (await shell.status()).status == "idle"
    finally:
        await shell.stop()


@pytest.mark.parametrize("failure", [0, 502, 504])
async def test_a_lost_connection_is_made_again(
    failure: int, env: dict[str, str], machine: AsyncMachine, tmp_path: Path
) -> None:
    shell = await machine.launch("shell", dir=str(tmp_path))
    try:
        async with (
            Network(env["OUTRIDER_URL"]).up() as network,
            attached(shell.id, env | {"OUTRIDER_URL": network.url}) as terminal,
        ):
            await terminal.shows(b"sh>")
            network.fails(failure)
            network.loses_all()
            await terminal.shows(b"sh>", after=b"connecting again")
            terminal.types("echo $((6 * 7))\r")
            await terminal.shows(b"42")
            await detach(terminal)
    finally:
        await shell.stop()
