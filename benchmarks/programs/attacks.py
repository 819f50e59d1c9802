"""The attacks. Run as `python -m benchmarks.programs.attacks NAME SECONDS RESULT`, `AIM` in JSON.

Each ends after `SECONDS` and sends `BYTES_PER_SECOND` at most. The address is always 127.0.0.1.
`RESULT` is created when the attack begins, and holds its counts, as JSON, when it has ended.
"""

import asyncio
import itertools
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from tests.security.attacks import PINGS, TRAILER_LINES, TRAILER_VALUE, send_repeatedly, upgrade
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from benchmarks.scripted_machine import connected, event, sessions
from outrider.contract.frames import MAX_FRAME_BYTES, Change, Event, Welcome, encode
from outrider.contract.ids import new_id

MAX_SECONDS: Final = 60
BYTES_PER_SECOND: Final = 50_000_000

_HOST: Final = "127.0.0.1"
_BLOCK: Final = 65_536
_PAUSE: Final = 0.05
"""Seconds before an attacker connects again."""

_LARGE_FRAME: Final = b"\x81\xff" + MAX_FRAME_BYTES.to_bytes(8, "big") + b"\0\0\0\0"
"""The beginning of a text frame that is as long as one may be, masked with zeros."""


class Aim(msgspec.Struct, frozen=True):
    """What an attack needs to know.

    Attributes:
        token: of a machine that does not connect otherwise; `key` of its account.
        target: the path prefix of a session that runs, for attacks on a machine.
        daemon_id: the machine that it runs on.
    """

    url: str
    key: str
    token: str = ""
    daemon_id: str = ""
    target: str = ""


class Attack:
    """An attack; `counts` has its outcomes."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.counts: Counter[str] = Counter()
        self._began = time.monotonic()

    async def trailer_lines(self) -> None:
        """Send requests whose chunked bodies end in trailer lines without end."""
        await self._at_once(4, lambda: self._flood(*TRAILER_LINES))

    async def trailer_value(self) -> None:
        """Send requests whose chunked bodies end in one trailer without end."""
        await self._at_once(4, lambda: self._flood(*TRAILER_VALUE))

    async def pings(self) -> None:
        """Send empty WebSocket pings on sockets without a token."""
        await self._at_once(4, lambda: self._flood(b"", PINGS, upgraded=True))

    async def sockets(self) -> None:
        """Hold sockets without a token, each with a megabyte of a frame that does not end."""
        block = b"a" * _BLOCK
        await self._at_once(
            150, lambda: self._flood(_LARGE_FRAME, block, 1_000_000, upgraded=True), pause=1
        )

    async def titles(self) -> None:
        """Report, as a machine, sessions with titles of a megabyte."""
        large = [msgspec.structs.replace(one, title="t" * 1_000_000) for one in sessions() * 5]

        async def flood(socket: ClientConnection, _: Welcome) -> None:
            while True:
                new = [msgspec.structs.replace(one, id=new_id("session")) for one in large]
                await self._send(socket, encode(Change(sessions=new)))

        await self._as_machine(flood)

    async def events(self) -> None:
        """Report, as a machine, events as fast as the service reads them."""

        async def flood(socket: ClientConnection, welcome: Welcome) -> None:
            for seq in itertools.count(welcome.acknowledged + 1):
                await self._send(socket, encode(Event(seq=seq, event=event(self.aim.daemon_id))))
                self.counts["events"] += 1

        await self._as_machine(flood)

    async def timeouts(self) -> None:
        """Run 200 commands at once that have children, until they time out, again and again."""
        command = {"command": "for i in 1 2 3; do sleep 30 & done; wait"}
        # The machine takes 256 at once, and needs the pause to end them.
        await self._post(f"daemons/{self.aim.daemon_id}/terminal", command, 200, pause=1)

    async def redaction(self) -> None:
        """Ask for debug bundles with a text that is slow to look through for secrets."""
        text = "a\n" * 10_000 + "-----END PRIVATE KEY-----" * 800
        body = {"frontendSnapshot": {"text": text}}
        await self._post(f"shortcuts/{self.aim.target}/chat/debug", body, 2)

    async def _post(self, path: str, body: object, at_once: int, pause: float = 0) -> None:
        headers = {"Authorization": f"Bearer {self.aim.key}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, connector=connector) as client:

            async def post() -> None:
                async with client.post(f"{self.aim.url}/api/v1/{path}", json=body) as answer:
                    self.counts[f"answers {answer.status}"] += 1
                    await answer.read()

            while True:
                await asyncio.gather(*(post() for _ in range(at_once)))
                await asyncio.sleep(pause)

    async def _count(self, size: int) -> None:
        """Count bytes that are about to be sent; wait while there were too many."""
        self.counts["bytes"] += size
        due = self._began + self.counts["bytes"] / BYTES_PER_SECOND
        await asyncio.sleep(max(0, due - time.monotonic()))

    async def _send(self, socket: ClientConnection, data: bytes) -> None:
        await self._count(len(data))
        await socket.send(data, text=True)

    async def _at_once(
        self, number: int, attack: Callable[[], Awaitable[None]], pause: float = _PAUSE
    ) -> None:
        async def again_and_again() -> None:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await attack()
                self.counts["connections ended"] += 1
                await asyncio.sleep(pause)

        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(again_and_again())

    async def _flood(
        self, head: bytes, block: bytes, most: float = math.inf, *, upgraded: bool = False
    ) -> None:
        """Send `head`, then blocks up to `most` bytes; return once the connection has ended."""
        reader, writer = await asyncio.open_connection(_HOST, urlsplit(self.aim.url).port)
        try:
            if upgraded:
                writer.write(upgrade())
                answer = await reader.readuntil(b"\r\n\r\n")
                status = answer.split(b" ", 2)[1].decode()
                self.counts[f"handshakes {status}"] += 1
                if status != "101":
                    return
            writer.write(head)
            sending = asyncio.create_task(send_repeatedly(writer, block, most, self._count))
            try:
                while await reader.read(_BLOCK):  # pongs, answers
                    pass
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        finally:
            writer.transport.abort()

    async def _as_machine(
        self, flood: Callable[[ClientConnection, Welcome], Awaitable[None]]
    ) -> None:
        while True:
            try:
                url = f"{self.aim.url.replace('http', 'ws')}/api/v1/daemon/connect"
                async with connected(url, self.aim.token) as (socket, welcome):
                    await flood(socket, welcome)
            except ConnectionClosed as end:
                self.counts[f"closed with {end.rcvd.code if end.rcvd else 'nothing'}"] += 1
            except (OSError, WebSocketException):
                self.counts["connections refused"] += 1
            await asyncio.sleep(_PAUSE)


async def run(attack: Attack, name: str, seconds: float) -> None:
    """Run an attack for so many seconds, at most `MAX_SECONDS`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(min(seconds, MAX_SECONDS)):
            await getattr(attack, name)()


def main(name: str, seconds: str, result: Path) -> None:
    """Run an attack at a low priority, so that the prober is not delayed by it on its processor."""
    os.nice(10)
    attack = Attack(msgspec.json.decode(os.environ["AIM"], type=Aim))
    result.touch()
    began = time.monotonic()
    asyncio.run(run(attack, name, float(seconds)))
    attack.counts["milliseconds"] = int((time.monotonic() - began) * 1000)
    result.write_bytes(msgspec.json.encode(attack.counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
