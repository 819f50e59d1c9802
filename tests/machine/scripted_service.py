"""A service that does what a test tells it to: a real WebSocket server on loopback."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from outrider.contract.frames import (
    PROTOCOL_VERSION,
    FromDaemon,
    FromService,
    Hello,
    Welcome,
    decode_from_daemon,
    encode,
)
from tests.rig.waiting import TIMEOUT

FrameKind = TypeVar("FrameKind", bound=FromDaemon)


class Peer:
    """The service's end of one connection."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.received: list[FromDaemon] = []
        self.binary: list[bytes] = []
        """Messages of terminals that came between the frames."""
        self._unread: deque[FromDaemon] = deque()

    @property
    def token(self) -> str:
        assert self.socket.request is not None
        return self.socket.request.headers["Authorization"]

    async def say(self, frame: FromService) -> None:
        await self.socket.send(encode(frame).decode())

    async def hear(self, kind: type[FrameKind]) -> FrameKind:
        """Return the next frame of this kind; those before it are in `received` only."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                message = await self.socket.recv()
                if isinstance(message, bytes):
                    self.binary.append(message)
                    continue
                frame = decode_from_daemon(message)
                assert frame is not None
                self.received.append(frame)
                if isinstance(frame, kind):
                    return frame

    async def welcome(self, acknowledged: int = 0) -> Hello:
        hello = await self.hear(Hello)
        await self.say(
            Welcome(
                protocol=PROTOCOL_VERSION,
                version="1",
                daemon_id="machine_1",
                nickname="box",
                acknowledged=acknowledged,
            )
        )
        return hello

    async def closed(self) -> int | None:
        """Wait for the machine to close, and return its close code."""
        async with asyncio.timeout(TIMEOUT):
            try:
                while True:
                    frame = decode_from_daemon(await self.socket.recv())
                    assert frame is not None
                    self.received.append(frame)
            except ConnectionClosed:
                return self.socket.close_code


class ScriptedService:
    """Takes connections; a test gets them one by one from `connection`."""

    def __init__(self) -> None:
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None
        self.connections = 0
        self.port = 0
        self.status: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        def refuse(connection: ServerConnection, request: object) -> object:
            if self.status is None:
                return None
            self.connections += 1
            return connection.respond(self.status, "no")

        async def handle(socket: ServerConnection) -> None:
            self.connections += 1
            self._peers.put_nowait(Peer(socket))
            await socket.wait_closed()

        refusal: Callable[..., object] = refuse
        self._server = await serve(
            handle,
            "127.0.0.1",
            self.port,
            compression=None,
            max_size=None,
            process_request=refusal,  # type: ignore[arg-type]  # it returns a response or None
            ping_interval=None,
            close_timeout=1,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def connection(self) -> Peer:
        async with asyncio.timeout(TIMEOUT):
            return await self._peers.get()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
