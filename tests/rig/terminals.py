"""The terminals of a scripted machine: they show what the test says, within their windows."""

import asyncio
from collections import defaultdict
from typing import TypeVar

from outrider.contract.link.terminals import (
    Closed,
    Data,
    Grant,
    Open,
    Resize,
    StreamCode,
    StreamEvent,
    StreamMessage,
    TerminalStreams,
)
from outrider.contract.resources import Session
from tests.rig.machine import ScriptedMachine
from tests.rig.samples import session
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT

MessageT = TypeVar("MessageT", bound=StreamMessage)


class ScriptedTerminals:
    """The machine's end of its terminal streams, for one machine.

    Attributes:
        typed: what was typed on each stream.
        reads: whether what is typed is consumed, so that more may be typed.
    """

    def __init__(self, machine: ScriptedMachine) -> None:
        machine.take_binary = self._receive
        self.machine = machine
        self.typed: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.reads = True
        self._streams = TerminalStreams(is_machine=True)
        self._events: list[StreamEvent] = []
        self._changed = asyncio.Condition()
        self._sender: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    async def requested(self) -> tuple[int, Open]:
        """Return the next request to open a stream."""
        return await self.next(Open)

    async def opens(self) -> tuple[int, Open]:
        """Open the next stream that is requested."""
        stream, request = await self.requested()
        self._streams.opened(stream, request.columns, request.rows)
        await self.flush()
        return stream, request

    async def refuses(self, code: StreamCode, reason: str) -> None:
        """Refuse the next stream that is requested."""
        stream, _ = await self.requested()
        await self.closes(stream, code, reason)

    async def shows(self, stream: int, data: bytes) -> None:
        """Send output as far as the window has room, then wait for more room."""
        async with asyncio.timeout(TIMEOUT):
            while data:
                sent, data = data[: self.room(stream)], data[self.room(stream) :]
                self._streams.send(stream, sent)
                await self.flush()
                if data:
                    await self.next(Grant)

    def room(self, stream: int) -> int:
        """Return how many bytes of output the window has room for."""
        return self._streams.room(stream)

    async def closes(
        self, stream: int, code: StreamCode = StreamCode.ENDED, reason: str = ""
    ) -> None:
        """Close a stream."""
        self._streams.close(stream, code, reason)
        await self.flush()

    async def resized(self) -> tuple[int, int]:
        """Return the next size of a viewer's screen."""
        _, size = await self.next(Resize)
        return size.columns, size.rows

    async def reads_again(self, stream: int) -> None:
        """Consume what was typed on the only stream while `reads` was false, and read on."""
        self.reads = True
        self._streams.consumed(stream, len(self.typed[stream]))
        await self.flush()

    async def left(self) -> tuple[int, Closed]:
        """Return the next stream that the service closes."""
        return await self.next(Closed)

    async def next(self, kind: type[MessageT]) -> tuple[int, MessageT]:
        """Return the stream and the message of the next event of a kind."""
        async with asyncio.timeout(TIMEOUT), self._changed:
            while True:
                for event in self._events:
                    if isinstance(event.message, kind):
                        self._events.remove(event)
                        return event.stream, event.message
                await self._changed.wait()

    async def flush(self) -> None:
        """Send what waits."""
        while (message := self._streams.next_message()) is not None:
            await self.machine.say_raw(message)

    def _receive(self, message: bytes) -> None:
        self._streams.receive(message)
        for event in self._streams.events():
            if isinstance(event.message, Data):
                self.typed[event.stream] += event.message.data
                if self.reads:
                    self._streams.consumed(event.stream, len(event.message.data))
            else:
                self._events.append(event)
        self._sender = asyncio.create_task(self._react())

    async def _react(self) -> None:
        async with self._changed:
            self._changed.notify_all()
        await self.flush()


async def terminal_machine(owner: Owner, *sessions: Session) -> ScriptedTerminals:
    """Connect a machine with live terminals, which answers all commands; one agent runs on it."""
    running = sessions or (session(),)
    machine = await owner.machine(*running, terminals=True)
    return ScriptedTerminals(machine.obliges())
