"""A scripted machine: it speaks the daemon protocol truly, and answers as the test says.

Like a playbook: the test expects a command (`takes`), then answers it, leaves it unanswered,
or drops the socket. With `obliges` a machine answers every command by itself.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError

from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    AcknowledgeRefusals,
    Cancel,
    Change,
    Command,
    CommandResult,
    Failure,
    FromDaemon,
    FromService,
    Hello,
    Welcome,
    decode_from_service,
    encode,
)
from outrider.contract.resources import Provider, Session
from tests.rig.samples import HOUSE_PROVIDER, MACHINE, PROVIDER, RESULTS
from tests.rig.waiting import TIMEOUT

FrameT = TypeVar("FrameT", bound=FromService)


def hello(*sessions: Session, **fields: Any) -> Hello:
    """Return the hello of a machine that runs these sessions."""
    providers: list[Provider] = [PROVIDER, HOUSE_PROVIDER]
    values: dict[str, Any] = {
        "protocol": PROTOCOL_VERSION,
        "version": "9.9.9",
        "machine": MACHINE,
        "providers": providers,
        "sessions": list(sessions),
    }
    return Hello(**values | fields)


class Socket(ClientConnection):
    """A WebSocket that raises ConnectionClosed for every message sent after its end.

    websockets aborts the transport of such a connection. asyncio of Python 3.11 raises
    AttributeError then if the transport was closed with unsent data; uvloop, on which machine
    agents run, does not.
    """

    async def send(self, *args: Any, **kwargs: Any) -> None:
        """Send a message."""
        with _closed_transport():
            await super().send(*args, **kwargs)

    async def ping(self, *args: Any, **kwargs: Any) -> Awaitable[float]:
        """Send a ping; the result is done when the pong has arrived."""
        with _closed_transport():
            return await super().ping(*args, **kwargs)


@contextmanager
def _closed_transport() -> Iterator[None]:
    try:
        yield
    except AttributeError as error:
        raise ConnectionClosedError(None, None) from error


@asynccontextmanager
async def socket(url: str, token: str | None) -> AsyncIterator[ClientConnection]:
    """Open a machine's WebSocket, and say nothing yet."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = await connect(
        url,
        additional_headers=headers,
        proxy=None,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        ping_interval=None,
        open_timeout=TIMEOUT,
        close_timeout=1,
        create_connection=Socket,
    )
    try:
        yield connection
    finally:
        if not connection.transport.is_closing():  # asyncio's `abort` fails on a closed one
            connection.transport.abort()
        await connection.wait_closed()


class ScriptedMachine:
    """One connected machine; an asynchronous context, at whose end its socket is dropped."""

    def __init__(self, url: str, token: str, hello: Hello) -> None:
        self._url = url
        self._token = token
        self._hello = hello
        self._frames: asyncio.Queue[FromService | None] = asyncio.Queue()
        self._kept: list[FromService] = []
        self._obliging: dict[str, Any] | None = None
        self.take_binary: Callable[[bytes], None] = lambda _: None
        """Gets the binary messages, which belong to terminals (`rig.terminals`)."""
        self._ended: ConnectionClosed | None = None
        self.welcome: Welcome

    async def __aenter__(self) -> Self:
        self._opened = socket(self._url, self._token)
        self._socket = await self._opened.__aenter__()
        await self.say(self._hello)
        self._reader = asyncio.create_task(self._read(), name="scripted machine")
        self.welcome = await self._next(Welcome)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.__aexit__(None, None, None)
        await self._reader

    @property
    def id(self) -> str:
        """The machine's id, as its welcome says it."""
        return self.welcome.daemon_id

    @property
    def is_open(self) -> bool:
        """Whether its socket still is."""
        return self._ended is None

    async def say(self, *frames: FromDaemon) -> None:
        """Send frames."""
        for frame in frames:
            await self._socket.send(encode(frame).decode())

    async def say_raw(self, data: str | bytes) -> None:
        """Send a message that may not be a frame: text or binary."""
        await self._socket.send(data)

    async def pings(self, count: int) -> None:
        """Send empty pings, and wait for no answer."""
        for _ in range(count):
            await self._socket.ping(random.randbytes(4))

    async def settled(self) -> None:
        """Return once the service has read what was said so far."""
        async with asyncio.timeout(TIMEOUT):
            await (await self._socket.ping())

    async def reports(self, *sessions: Session, removed: list[str] | None = None) -> None:
        """Report sessions that changed or went; return once the service knows."""
        await self.say(Change(sessions=list(sessions), removed=removed or []))
        await self.settled()

    async def takes(self, kind: str | None = None, /, **payload: Any) -> Command:
        """Return the next command; fail where it is another one or lacks any of `payload`."""
        taken = await self._next(Command)
        if kind is not None:
            assert taken.command == kind
        given = payload_of(taken)
        assert {name: given.get(name) for name in payload} == payload
        return taken

    async def takes_cancel(self) -> Cancel:
        """Return the next cancel."""
        return await self._next(Cancel)

    async def hears_refusals_acknowledged(self) -> AcknowledgeRefusals:
        """Return the next acknowledgement of refusals."""
        return await self._next(AcknowledgeRefusals)

    async def answers(self, command: Command, result: Any = None) -> None:
        """Answer a command; without `result` with a good one of its kind."""
        data = RESULTS[command.command] if result is None else result
        raw = msgspec.Raw(msgspec.json.encode(data))
        await self.say(CommandResult(id=command.id, result=raw))

    async def fails(self, command: Command, failure: Failure) -> None:
        """Answer that a command could not be done."""
        await self.say(CommandResult(id=command.id, error=failure))

    def obliges(self, **results: Any) -> Self:
        """Answer every command from now on, with these results or good ones of their kind.

        A result may also be a function of the command.
        """
        self._obliging = results
        return self

    def received(self, kind: type[FrameT]) -> list[FrameT]:
        """Return the frames of a kind that have come and that no test has taken."""
        while not self._frames.empty():
            frame = self._frames.get_nowait()
            if frame is not None:
                self._kept.append(frame)
        return [frame for frame in self._kept if isinstance(frame, kind)]

    def received_nothing(self) -> bool:
        """Return whether no command has come that no test has taken."""
        return not self.received(Command)

    def stops_reading(self) -> None:
        """Take nothing more off the socket, as a machine whose program hangs."""
        self._socket.transport.pause_reading()

    def reads_again(self) -> None:
        """Read on after `stops_reading`."""
        self._socket.transport.resume_reading()

    async def drops(self) -> None:
        """Lose the connection, without a close frame."""
        self._socket.transport.abort()
        await self._reader

    async def closed(self) -> tuple[int, str]:
        """Wait until the service closes the socket; return its code and reason."""
        async with asyncio.timeout(TIMEOUT):
            await asyncio.shield(self._reader)
        assert self._ended is not None
        return closing(self._ended)

    async def waits_for_a_command(self) -> Command:
        """Return the next command, however long it takes to come."""
        return await self._next(Command, within=None)

    async def _next(self, kind: type[FrameT], within: float | None = TIMEOUT) -> FrameT:
        for index, kept in enumerate(self._kept):
            if isinstance(kept, kind):
                del self._kept[index]
                return kept
        async with asyncio.timeout(within):
            while True:
                frame = await self._frames.get()
                if isinstance(frame, kind):
                    return frame
                assert frame is not None, f"the socket ended: {self._ended}"
                self._kept.append(frame)

    async def _read(self) -> None:
        try:
            while True:
                message = await self._socket.recv()
                if isinstance(message, bytes):
                    self.take_binary(message)
                    continue
                frame = decode_from_service(message)
                if self._obliging is not None and isinstance(frame, Command):
                    result = self._obliging.get(frame.command)
                    await self.answers(frame, result(frame) if callable(result) else result)
                elif frame is not None:
                    self._frames.put_nowait(frame)
        except ConnectionClosed as end:
            self._ended = end
            self._frames.put_nowait(None)


def payload_of(command: Command) -> Any:
    """Return a command's payload, decoded."""
    return msgspec.json.decode(bytes(command.payload))


def closing(end: ConnectionClosed) -> tuple[int, str]:
    """Return the code and reason of the close that the service sent."""
    assert end.rcvd is not None, "the service sent no close"
    return end.rcvd.code, end.rcvd.reason
