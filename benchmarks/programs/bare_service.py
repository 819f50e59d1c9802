"""The bare baseline: the least that answers these requests, as fast as its parts allow.

Starlette and msgspec on the service's own server flags; a dictionary for the keys, one
machine, its socket, and a future for each command. It checks nothing, bounds nothing, stores
nothing: what the service costs above it is the price of everything that the service is for.

Run as `python -m benchmarks.programs.bare_service PORT DAEMON_ID`, with the key in `KEY`.
"""

import asyncio
import itertools
import os
import sys
from dataclasses import dataclass, field

import msgspec
import uvicorn
import uvloop
from msgspec import Raw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from outrider import __version__
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PING_INTERVAL,
    PROTOCOL_VERSION,
    Command,
    CommandResult,
    FromDaemon,
    Hello,
    Welcome,
)
from outrider.contract.resources import CliEntry, Daemon, DaemonList


class CommandRequest(msgspec.Struct):
    """The body of `POST …/command`."""

    type: str
    payload: Raw = Raw(b"{}")


_encode = msgspec.json.Encoder().encode
_frame = msgspec.json.Decoder(FromDaemon)
_command = msgspec.json.Decoder(CommandRequest)
_STATUS_PAYLOAD = Raw(b"{}")


@dataclass
class Bare:
    """The state of the baseline: its keys, its one machine, and the commands in flight."""

    accounts: dict[str, str]
    daemon_id: str
    send: Send | None = None
    waiting: dict[str, asyncio.Future[CommandResult]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    daemons: bytes = b'{"daemons":[]}'

    def known(self, request: Request) -> bool:
        """Return whether the request has a key."""
        header = request.headers.get("authorization", "")
        return header.removeprefix("Bearer ") in self.accounts

    async def ask(self, command: str, payload: Raw) -> Response:
        """Send a command to the machine and return its result as a response."""
        if self.send is None:
            return Response(status_code=503)
        number = str(next(self.numbers))
        future: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        frame = Command(id=number, command=command, payload=payload, timeout_ms=60_000)
        await self.send({"type": "websocket.send", "text": _encode(frame).decode()})
        answer = await future
        return Response(bytes(answer.result), media_type="application/json")

    async def list_daemons(self, request: Request) -> Response:
        """Answer `GET /daemons`: encoded once, when the machine came."""
        if not self.known(request):
            return Response(status_code=401)
        return Response(self.daemons, media_type="application/json")

    async def status(self, request: Request) -> Response:
        """Answer `GET /shortcuts/{ideId}/status`."""
        if not self.known(request):
            return Response(status_code=401)
        return await self.ask("agent_status", _STATUS_PAYLOAD)

    async def command(self, request: Request) -> Response:
        """Answer `POST /daemons/{daemonId}/command`."""
        if not self.known(request):
            return Response(status_code=401)
        wanted = _command.decode(await request.body())
        return await self.ask(wanted.type, wanted.payload)

    async def machine(self, receive: Receive, send: Send) -> None:
        """Serve the machine's socket."""
        await receive()
        await send({"type": "websocket.accept"})
        hello = _frame.decode((await receive())["text"])
        assert isinstance(hello, Hello)
        self.daemons = _encode(DaemonList(daemons=[_daemon(self.daemon_id, hello)]))
        welcome = Welcome(
            protocol=PROTOCOL_VERSION,
            version=__version__,
            daemon_id=self.daemon_id,
            nickname=hello.machine.hostname,
        )
        await send({"type": "websocket.send", "text": _encode(welcome).decode()})
        self.send = send
        while (message := await receive())["type"] == "websocket.receive":
            frame = _frame.decode(message["text"])
            if isinstance(frame, CommandResult):
                self.waiting.pop(frame.id).set_result(frame)
        self.send = None


class _Socket:
    """The machine's route: straight to the socket, past Starlette's own WebSocket class."""

    def __init__(self, bare: Bare) -> None:
        self._bare = bare

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await self._bare.machine(receive, send)


def application(bare: Bare) -> Starlette:
    """Return the baseline as an application."""
    return Starlette(
        routes=[
            Route("/api/v1/daemons", bare.list_daemons),
            Route("/api/v1/daemons/{daemonId}/command", bare.command, methods=["POST"]),
            Route("/api/v1/shortcuts/{ideId}/status", bare.status),
            WebSocketRoute("/api/v1/daemon/connect", _Socket(bare)),
        ]
    )


def _daemon(daemon_id: str, hello: Hello) -> Daemon:
    """Return the machine as the service's list shows it, so that both answer the same."""
    entries: dict[str, list[CliEntry]] = {"cli": [], "acp": []}
    for session in hello.sessions:
        entries[session.kind].append(
            CliEntry(
                id=f"{daemon_id}:{session.kind}:{session.type}",
                type=session.type,
                name=session.name,
                session_id=session.id,
                status=session.status,
                title=session.title,
                workspace=session.workspace,
                last_activity_at=session.last_activity_at,
            )
        )
    return Daemon(
        id=daemon_id,
        hostname=hello.machine.hostname,
        nickname=hello.machine.hostname,
        platform=hello.machine.platform,
        cdp_connected=False,
        ides=[],
        clis=entries["cli"],
        acps=entries["acp"],
        version=hello.version,
        connected_at=1_750_000_000_000,
        last_seen_at=1_750_000_000_000,
    )


def main(port: int, daemon_id: str, key: str) -> None:
    """Serve until a signal comes, with the flags of `outrider.cloud.server`."""
    config = uvicorn.Config(
        application(Bare(accounts={key: "acct"}, daemon_id=daemon_id)),
        host="127.0.0.1",
        port=port,
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_INTERVAL,
        ws_ping_timeout=60.0,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        backlog=2048,
    )
    uvloop.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], os.environ["KEY"])
