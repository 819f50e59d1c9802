"""Live terminals over WebSockets: the terminal of an agent, and the named terminals of a machine.

What is typed and shown are binary messages; text messages are JSON. docs/terminals.md describes
them, the refusals and the close codes.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from outrider.contract.commands import AgentState, AgentStatusQuery, CommandType
from outrider.contract.errors import ApiError, ErrorCode, not_found
from outrider.contract.link.terminals import Open, StreamCode
from outrider.contract.structs import Wire
from outrider.contract.text import EXPLANATIONS, TERMINAL_NAME
from outrider.service.accounts.principal import Scope
from outrider.service.agents.targets import target_of
from outrider.service.cluster.bus import BusDown
from outrider.service.http.endpoint import Call, Endpoint, SocketKind
from outrider.service.http.sockets import Close, Conversation, Socket
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.machine_state import MachineState
from outrider.service.terminals.relay import TerminalRelay
from outrider.service.terminals.streams import (
    RESTART,
    TRY_AGAIN,
    UNSUPPORTED,
    TerminalStream,
    TerminalStreamClosed,
)

MAX_MESSAGE: Final = 1024 * 1024
"""The largest message of a client in bytes, such as a paste."""

_RETRY_SECONDS: Final = 1.0
_FAILED: Final = 1011

# The status of a handshake's response, by the code with which the machine closes the stream.
_REFUSALS: Final = {
    StreamCode.FORBIDDEN: 403,
    StreamCode.NOT_FOUND: 404,
    StreamCode.CONFLICT: 409,
    StreamCode.TOO_MANY: 429,
    UNSUPPORTED: 501,
    StreamCode.GOING_AWAY: 503,
    RESTART: 503,
    TRY_AGAIN: 503,
}

# The codes that are passed on to the client.
_CODES: Final = frozenset(StreamCode) | {RESTART, TRY_AGAIN}

_MESSAGES: Final = """\
Binary messages are what is typed and what is shown. A text message of the client,
`{"type": "resize", "columns": 120, "rows": 40}`, is the size of its screen; another one is answered
with `{"type": "error", "error": …}`. With 1012 and 1013 the connection to the machine was lost, and
with 1001 the node stops: connect again, the terminal is as it was. 1000: the program has ended.
1009: a message was over 1 MiB. 4401: the credential is no longer valid."""

_SOCKET: Final = SocketKind(description=_MESSAGES, max_size=MAX_MESSAGE)

_terminal_name = re.compile(TERMINAL_NAME)
_agent_state = msgspec.json.Decoder(AgentState)

Characters = Annotated[int, Meta(ge=1, le=1000)]


class ScreenSize(Wire, kw_only=True):
    """The size of the client's screen, which the terminal takes."""

    columns: Characters = 80
    """The width of the client's screen in characters."""
    rows: Characters = 24
    """The height of the client's screen in characters."""


class TerminalQuery(ScreenSize, kw_only=True):
    """How an agent's terminal is opened."""

    mode: Literal["read", "write"] = "write"
    """`read` only watches: it types nothing, and does not change the size."""


class ResizeMessage(Wire, tag="resize", tag_field="type", kw_only=True):
    """The client's screen has another size."""

    columns: Characters
    """The width of the client's screen in characters."""
    rows: Characters
    """The height of the client's screen in characters."""


class ErrorMessage(Wire, tag="error", tag_field="type", kw_only=True):
    """A message of the client was refused; the terminal goes on."""

    error: str
    """What was wrong with it."""


_text_decoder = msgspec.json.Decoder(ResizeMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalServices:
    """What the handlers of terminals use; `timeout` is how long a machine may take, in seconds."""

    dispatcher: Dispatcher
    terminals: TerminalRelay
    timeout: float


class TerminalConversation(Conversation):
    """A client at a terminal.

    Args:
        account_id: of the client; it owns the machine.
    """

    def __init__(
        self, services: TerminalServices, account_id: str, machine_id: str, request: Open
    ) -> None:
        self._services = services
        self._account_id = account_id
        self._machine_id = machine_id
        self._request = request
        self._stream: TerminalStream | None = None
        self._is_warned = False

    async def open(self) -> None:
        """Open the terminal on the machine.

        Raises:
            ApiError: 403, 404, 409 or 429, the machine refuses; 501, it cannot; 503, it cannot be
                reached; 504, it does not answer; 500, it has failed.
        """
        try:
            async with asyncio.timeout(self._services.timeout):
                self._stream = await self._open()
        except TerminalStreamClosed as error:
            raise _refusal(error) from error
        except BusDown as error:
            text = "The machine is connected to another node, which cannot be reached now"
            raise ApiError(503, text, retry_after=_RETRY_SECONDS) from error
        except TimeoutError as error:
            raise ApiError(504, "The machine did not open the terminal in time") from error

    async def run(self, socket: Socket) -> Close:
        """Pass bytes both ways until one side ends it."""
        stream = self._stream
        assert stream is not None, "it is open"
        showing = asyncio.create_task(self._show(socket, stream), name="show a terminal")
        typing = asyncio.create_task(self._type(socket, stream), name="type into a terminal")
        try:
            await asyncio.wait((showing, typing), return_when=asyncio.FIRST_COMPLETED)
            if not showing.done():
                typing.result()  # raises if the client is gone
            return await showing  # the terminal has ended: the rest of its output first
        finally:
            showing.cancel()
            typing.cancel()
            await asyncio.wait((showing, typing))

    async def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.close()

    async def _open(self) -> TerminalStream:
        """Open the stream; a machine that is being registered is waited for."""
        services = self._services
        state = await services.dispatcher.owned(self._account_id, self._machine_id)
        _refuse_offline(state)
        stream = await services.terminals.open(self._machine_id, self._request)
        if stream is None:
            async for _ in services.dispatcher.until_registered(state):
                stream = await services.terminals.open(self._machine_id, self._request)
                if stream is not None:
                    break
        if stream is None:
            text = f"The connection of the machine {state.nickname!r} has dropped: try again"
            raise ApiError(503, text, retry_after=_RETRY_SECONDS)
        return stream

    async def _show(self, socket: Socket, stream: TerminalStream) -> Close:
        """Send what the terminal shows, as fast as the client reads it."""
        try:
            while True:
                data = await stream.read()
                await socket.send(data)
                stream.consumed(len(data))
        except TerminalStreamClosed as end:
            return _close(end)

    async def _type(self, socket: Socket, stream: TerminalStream) -> None:
        """Send what the client types, as fast as the terminal takes it, to the terminal's end."""
        with suppress(TerminalStreamClosed):
            while True:
                message = await socket.receive()
                if isinstance(message, bytes):
                    await self._write(message, socket, stream)
                else:
                    await self._control(message, socket, stream)

    async def _write(self, data: bytes, socket: Socket, stream: TerminalStream) -> None:
        if self._request.mode == "write":
            await stream.write(data)
        elif not self._is_warned:  # once: a terminal in a page answers queries by itself
            self._is_warned = True
            await _warn(socket, "This terminal is only watched (mode=read): nothing is typed")

    async def _control(self, text: str, socket: Socket, stream: TerminalStream) -> None:
        try:
            size = _text_decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            example = '{"type": "resize", "columns": 120, "rows": 40}'
            await _warn(socket, f"A text message must be as {example}: {error}")
            return
        if self._request.mode == "write":
            await stream.resize(size.columns, size.rows)


async def agent_terminal(services: TerminalServices, call: Call) -> Conversation:
    """Open the terminal of an agent, live; several clients may share it.

    Only agents that run in a terminal have one (409). A client that joins gets the whole screen
    first. The size of the terminal is that of the client that typed or resized last.
    """
    query: TerminalQuery = call.query
    target = target_of(call.path("ideId"))
    _refuse_offline(await services.dispatcher.owned(call.account_id, target.daemon_id))
    session_id = target.name
    if target.kind != "session":  # only the machine knows which session the target means
        question = AgentStatusQuery()
        question.target = str(target)
        answer = await services.dispatcher.call(
            call.account_id,
            target.daemon_id,
            CommandType.AGENT_STATUS,
            msgspec.json.encode(question),
            call.client_gone,
        )
        session_id = _agent_state.decode(answer).session_id
    request = Open(session_id=session_id, mode=query.mode, columns=query.columns, rows=query.rows)
    return TerminalConversation(services, call.account_id, target.daemon_id, request)


async def named_terminal(services: TerminalServices, call: Call) -> Conversation:
    """Open a named terminal of a machine, live; several clients may share it.

    It is the shell of `POST /api/v1/daemons/{daemonId}/terminal` with this name, and is started if
    there is none.
    """
    query: ScreenSize = call.query
    name = call.path("name")
    if not _terminal_name.match(name):
        raise not_found(f"No terminal {name!r}: it is {EXPLANATIONS[TERMINAL_NAME]}")
    machine = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    request = Open(name=name, columns=query.columns, rows=query.rows)
    return TerminalConversation(services, call.account_id, machine.id, request)


def _refuse_offline(state: MachineState) -> None:
    if not state.connected:
        text = f"The machine {state.nickname!r} is offline: start `outrider daemon` on it"
        raise ApiError(503, text, retry_after=_RETRY_SECONDS)


async def _warn(socket: Socket, text: str) -> None:
    await socket.send(msgspec.json.encode(ErrorMessage(error=text)).decode())


def _refusal(error: TerminalStreamClosed) -> ApiError:
    """Return the response to a handshake whose stream the machine has closed."""
    status = _REFUSALS.get(error.code, 500)
    reason = error.reason or "The machine did not open the terminal"
    is_temporary = status in {429, 503}
    return ApiError(
        status,
        reason,
        code=ErrorCode.RATE_LIMITED if status == 429 else None,
        retry_after=_RETRY_SECONDS if is_temporary else None,
    )


def _close(end: TerminalStreamClosed) -> Close:
    """Return how to close a client's socket when its stream is closed."""
    if end.code == StreamCode.GOING_AWAY:
        return Close(RESTART, end.reason)
    return Close(end.code if end.code in _CODES else _FAILED, end.reason)


ENDPOINTS: list[Endpoint[TerminalServices]] = [
    Endpoint(
        method="GET",
        path="/api/v1/shortcuts/{ideId}/terminal",
        scope=Scope.TERMINAL_EXEC,
        read_scope=Scope.AGENT_READ,
        is_read=lambda query: query.mode == "read",
        summary="Open an agent's terminal",
        handler=agent_terminal,
        response=(),
        query=TerminalQuery,
        socket=_SOCKET,
        tag="Shortcuts",
    ),
    Endpoint(
        method="GET",
        path="/api/v1/daemons/{daemonId}/terminals/{name}",
        scope=Scope.TERMINAL_EXEC,
        summary="Open a named terminal",
        handler=named_terminal,
        response=(),
        query=ScreenSize,
        socket=_SOCKET,
        tag="Daemons",
    ),
]
