"""`outrider attach` in a terminal of its own, at the terminal of a shell."""

import asyncio
import os
import pty
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from outrider.sdk import AsyncMachine
from tests.rig.patience import PATIENCE, eventually
from tests.rig.processes import PROCESS_PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Attached:
    """`outrider attach` in a terminal; killed at the end at the latest.

    Attributes:
        shown: what the terminal has got.
    """

    def __init__(self, target: str, env: dict[str, str]) -> None:
        self._target = target
        self._env = env | {"TERM": "xterm-256color"}
        self.shown = bytearray()

    async def __aenter__(self) -> Self:
        self._leader, self._follower = pty.openpty()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._leader, lambda: self.shown.extend(os.read(self._leader, 65536)))
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "outrider", "attach", self._target,
            env=self._env,
            stdin=self._follower, stdout=self._follower, stderr=self._follower,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._leader)
        os.close(self._leader)
        os.close(self._follower)

    @property
    def mode(self) -> list[Any]:
        """The settings of the terminal."""
        return termios.tcgetattr(self._follower)

    def types(self, text: str) -> None:
        """Type keys."""
        os.write(self._leader, text.encode())

    async def shows(self, text: bytes, after: bytes = b"") -> None:
        """Wait until the terminal has got a text, behind another one where that is given."""
        await eventually(
            lambda: after in self.shown and text in self.shown[self.shown.index(after) :],
            PROCESS_PATIENCE,
        )

    async def detaches(self) -> None:
        """Press Ctrl-], and wait for the end."""
        self.types("\x1d")
        async with asyncio.timeout(PATIENCE):
            assert await self.process.wait() == 0
        await self.shows(b"Detached")


class Network:
    """What lies between a client and the service, and can lose its connections.

    Attributes:
        url: the service's, through it.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
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

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(self._url.hostname, self._url.port)
        both = {writer, upstream[1]}
        self._writers |= both
        try:
            await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))
        except OSError:
            pass
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # one side has ended: the other one does too


async def test_a_live_terminal(env: dict[str, str], machine: AsyncMachine, tmp_path: Path) -> None:
    shell = await machine.launch("shell", dir=str(tmp_path))
    try:
        async with Attached(shell.id, env) as attached:
            before = attached.mode
            await attached.shows(b"sh>")
            attached.types("echo $((6 * 7))\r")
            await attached.shows(b"42")
            assert attached.mode != before
            await attached.detaches()
            assert attached.mode == before
        assert (await shell.status()).status == "idle"
    finally:
        await shell.stop()


async def test_a_connection_that_is_lost(
    env: dict[str, str], machine: AsyncMachine, tmp_path: Path
) -> None:
    shell = await machine.launch("shell", dir=str(tmp_path))
    try:
        async with (
            Network(env["OUTRIDER_URL"]).up() as network,
            Attached(shell.id, env | {"OUTRIDER_URL": network.url}) as attached,
        ):
            await attached.shows(b"sh>")
            network.loses_all()
            await attached.shows(b"sh>", after=b"connecting again")
            attached.types("echo $((6 * 7))\r")
            await attached.shows(b"42")
            await attached.detaches()
    finally:
        await shell.stop()
