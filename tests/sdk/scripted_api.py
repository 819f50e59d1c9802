"""A server that behaves as badly as a test wants: it plays one step for each request."""

import asyncio
import ssl
from collections.abc import Iterable
from typing import NamedTuple, Self

OK = b'{"success":true,"daemons":[]}'


class Received(NamedTuple):
    """A request: its method and path with the query, its headers in lower case, its body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Step(NamedTuple):
    """What a request gets: these bytes, then the end of the connection unless it stays open."""

    data: bytes
    stays_open: bool = False


def answer(status: int, body: bytes = OK, **headers: str) -> Step:
    """Return a complete response."""
    fields = {"content-type": "application/json", "content-length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return Step(f"HTTP/1.1 {status} X\r\n{head}connection: close\r\n\r\n".encode() + body)


CLOSES = Step(b"")
HANGS = Step(b"", stays_open=True)
HALF_A_BODY = Step(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + OK[:10])
HALF_A_HEAD = Step(b"HTTP/1.1 200 OK\r\ncontent-le")
NOT_HTTP = Step(b"SSH-2.0-OpenSSH_9.2\r\n")


def stream(*frames: str, stays_open: bool = False) -> Step:
    """Return a stream of server-sent events."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Step(head + "".join(frames).encode(), stays_open)


class ScriptedApi:
    """The server. Further requests than there are steps get the last step again."""

    def __init__(self, steps: Iterable[Step], tls: ssl.SSLContext | None = None) -> None:
        self._steps = list(steps)
        self._tls = tls
        self.requests: list[Received] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._ended = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = "{}://{}:{}".format(scheme, *self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = lines[0].split(" ")
            pairs = (line.split(": ", 1) for line in lines[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            step = self._steps[min(len(self.requests), len(self._steps) - 1)]
            self.requests.append(Received(method, path, headers, body))
            writer.write(step.data)
            await writer.drain()
            if step.stays_open:
                await self._ended.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
