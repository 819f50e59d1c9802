"""A client of the event stream that resumes, as an EventSource does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import httpx

_PAUSE = 0.1
"""Seconds between two connections."""

_SILENCE = 30.0
"""Seconds without a byte after which the connection is taken for dead; heartbeats are faster."""


class Frame(NamedTuple):
    """A server-sent event."""

    id: str | None
    event: str
    data: Any


async def frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """Yield the complete frames of a stream."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield Frame(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}


class Follower:
    """Reads the events of an account from whichever node answers, and resumes after each end.

    Attributes:
        taken: the frames of events, in the order in which they came.
        resumes: what each connection said of where it began.
    """

    def __init__(self, node: Callable[[], str], key: str, query: str = "") -> None:
        self._node = node
        self._key = key
        self._query = query
        self.taken: list[Frame] = []
        self.resumes: list[str] = []
        self.position: str | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        timeout = httpx.Timeout(_SILENCE)
        async with httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
            while True:
                with suppress(httpx.HTTPError):  # the node is gone: resume at another
                    await self._connect(client)
                await asyncio.sleep(_PAUSE)

    async def _connect(self, client: httpx.AsyncClient) -> None:
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
        if self.position is not None:
            headers["Last-Event-ID"] = self.position
        url = f"{self._node()}/api/v1/events?{self._query}"
        async with client.stream("GET", url, headers=headers) as response:
            if response.status_code != 200:
                return
            async for frame in frames(response):
                if frame.event == "stream:ready":
                    self.resumes.append(frame.data["resume"])
                    self.position = self.position or frame.data["cursor"]
                elif frame.id is not None:
                    self.taken.append(frame)
                    self.position = frame.id
