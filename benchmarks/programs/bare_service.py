"""The bare baseline: the least that answers these requests, as fast as its parts allow.

Starlette and msgspec on the service's own server flags; a dictionary for the keys, one
machine, its socket, and a future for each command. It checks nothing, bounds nothing, stores
nothing: what the service costs above it is the price of everything that the service is for.

Run as `python -m benchmarks.programs.bare_service PORT DAEMON_ID`, with the key in `KEY` and the
answer to `GET /daemons` in `DAEMONS`.
"""

import asyncio
import itertools
import os
import sys

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
    Welcome,
)


class CommandRequest(msgspec.Struct):
    """The body of `POST …/command`."""

    type: str
    payload: Raw = Raw(b"{}")


_encode = msgspec.json.Encoder().encode
_frame = msgspec.json.Decoder(FromDaemon)
_command = msgspec.json.Decoder(CommandRequest)


class Bare:
    """The state of the baseline: its keys, its one machine, and the commands in flight."""

    def __init__(self, key: str, daemon_id: str, daemons: bytes) -> None:
        self._accounts = {key: "acct"}
        self._daemon_id = daemon_id
        self._daemons = daemons
        self._send: Send | None = None
        self._waiting: dict[str, asyncio.Future[CommandResult]] = {}
        self._numbers = itertools.count()

    def application(self) -> Starlette:
        """Return the baseline as an application."""
        return Starlette(
            routes=[
                Route("/api/v1/daemons", self._list_daemons),
                Route("/api/v1/daemons/{daemonId}/command", self._run_command, methods=["POST"]),
                Route("/api/v1/shortcuts/{ideId}/status", self._status),
                # An instance, so that Starlette calls it without its own WebSocket class.
                WebSocketRoute("/api/v1/daemon/connect", self),
            ]
        )

    async def _list_daemons(self, request: Request) -> Response:
        if not self._is_known(request):
            return Response(status_code=401)
        return Response(self._daemons, media_type="application/json")

    async def _status(self, request: Request) -> Response:
        return await self._ask(request, "agent_status", Raw(b"{}"))

    async def _run_command(self, request: Request) -> Response:
        wanted = _command.decode(await request.body())
        return await self._ask(request, wanted.type, wanted.payload)

    def _is_known(self, request: Request) -> bool:
        header = request.headers.get("authorization", "")
        return header.removeprefix("Bearer ") in self._accounts

    async def _ask(self, request: Request, command: str, payload: Raw) -> Response:
        """Send a command to the machine and return its result as a response."""
        if not self._is_known(request):
            return Response(status_code=401)
        if self._send is None:
            return Response(status_code=503)
        number = str(next(self._numbers))
        future: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        frame = Command(id=number, command=command, payload=payload, timeout_ms=60_000)
        await self._send({"type": "websocket.send", "text": _encode(frame).decode()})
        return Response(bytes((await future).result), media_type="application/json")

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the machine's socket."""
        await receive()
        await send({"type": "websocket.accept"})
        await receive()  # its hello
        welcome = Welcome(
            protocol=PROTOCOL_VERSION,
            version=__version__,
            daemon_id=self._daemon_id,
            nickname="bench",
        )
        await send({"type": "websocket.send", "text": _encode(welcome).decode()})
        self._send = send
        while (message := await receive())["type"] == "websocket.receive":
            frame = _frame.decode(message["text"])
            if isinstance(frame, CommandResult):
                self._waiting.pop(frame.id).set_result(frame)
        self._send = None


def main(port: int, bare: Bare) -> None:
    """Serve until a signal comes, with the flags of `outrider.service.server`."""
    config = uvicorn.Config(
        bare.application(),
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
    daemons = os.environ["DAEMONS"].encode()
    main(int(sys.argv[1]), Bare(os.environ["KEY"], sys.argv[2], daemons))
