"""A client of the event stream, and the events that it gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from tests.rig.waiting import TIMEOUT

PATH = "/api/v1/events"
STREAM = {"Accept": "text/event-stream"}


class Frame(NamedTuple):
    """A frame of a stream; `id` is None for those without one."""

    event: str
    id: str | None
    data: dict[str, Any]


class EventStreamClient:
    """An open stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.frames: list[Frame] = []
        self._lines = response.aiter_lines()

    async def next(self, *skipped: str) -> Frame:
        """Return the next frame, but for heartbeats and those with these names.

        Raises:
            StopAsyncIteration: the stream has ended.
        """
        async with asyncio.timeout(TIMEOUT):
            while True:
                frame = await self._frame()
                self.frames.append(frame)
                if frame.event not in {"stream:heartbeat", *skipped}:
                    return frame

    async def until(self, name: str) -> Frame:
        """Return the next frame with this name; `frames` has those before it."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                frame = await self._frame()
                self.frames.append(frame)
                if frame.event == name:
                    return frame

    async def events(self, count: int) -> list[Frame]:
        """Return the next events."""
        return [await self.next() for _ in range(count)]

    async def ended(self) -> bool:
        """Return whether the response is complete now."""
        try:
            await self.next()
        except StopAsyncIteration:
            return True
        return False

    async def _frame(self) -> Frame:
        fields: dict[str, str] = {}
        while line := await anext(self._lines):
            name, _, value = line.partition(": ")
            fields[name] = value
        return Frame(fields["event"], fields.get("id"), json.loads(fields["data"]))


@asynccontextmanager
async def event_stream(
    client: httpx.AsyncClient, after: str | None = None, **query: str
) -> AsyncIterator[EventStreamClient]:
    """Open a stream; `after` is sent as `Last-Event-ID`."""
    headers = STREAM if after is None else STREAM | {"Last-Event-ID": after}
    async with client.stream("GET", PATH, headers=headers, params=query) as response:
        yield EventStreamClient(response)
