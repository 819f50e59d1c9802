"""A receiver of webhooks on loopback: it keeps what comes, and answers as the test says."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from outrider.sdk import webhooks
from tests.rig.waiting import TIMEOUT, eventually

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

SIGNATURE = "X-Service-Signature"


class ReceivedRequest(NamedTuple):
    """A request as it came."""

    path: str
    headers: CIMultiDict[str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)

    @property
    def event(self) -> str:
        """The event that it tells, which header and body agree on."""
        assert self.json["event"] == self.headers["X-Service-Event"]
        name: str = self.json["event"]
        return name

    def verified(self, secret: str) -> dict[str, Any]:
        """Return the event, once the signature is found to be this secret's."""
        return webhooks.verify(self.body, self.headers[SIGNATURE], secret)


class Receiver:
    """Takes deliveries on every path."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self._answer: Answer = response(200)

    def respond_with(self, answer: Answer) -> None:
        """Answer so from now on."""
        self._answer = answer

    async def wait_for(self, count: int = 1, within: float = TIMEOUT) -> list[ReceivedRequest]:
        """Wait until so many deliveries have come in all; return them. No more may have come."""
        await eventually(lambda: len(self.requests) >= count, within)
        assert len(self.requests) == count, [request.json for request in self.requests]
        return list(self.requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Keep a request and answer it."""
        body = await request.read()
        self.requests.append(ReceivedRequest(request.path, request.headers.copy(), body))
        return await self._answer(request)


def response(status: int, text: str = "", **headers: str) -> Answer:
    """Return an answer; `_` in a header's name stands for `-`."""

    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text, headers=named)

    return answer


def one_after_another(*answers: Answer) -> Answer:
    """Return an answer that is another one each time; the last one stays."""
    left = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return answer


@asynccontextmanager
async def receiving(host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Give a receiver for the length of a block."""
    receiver = Receiver()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    (address, port, *_) = runner.addresses[0]
    receiver.url = f"http://{address}:{port}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
