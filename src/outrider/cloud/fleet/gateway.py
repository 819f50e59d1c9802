"""The machines' WebSockets: who may connect, hello and welcome, and every frame after it.

docs/protocol.md describes the protocol. The pings are the server's (`ws_ping_interval`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from starlette.types import Receive, Scope, Send

from outrider import __version__
from outrider.cloud.fleet.bus import MemoryBus
from outrider.cloud.fleet.dispatch import Dispatcher
from outrider.cloud.fleet.presence import MachineState, Presence, TooManySessions
from outrider.cloud.store import machines
from outrider.cloud.store.database import Database
from outrider.contract.events import AgentEvent, Refused
from outrider.contract.frames import (
    HELLO_TIMEOUT,
    PROTOCOL_VERSION,
    Acknowledge,
    Change,
    CloseCode,
    CommandResult,
    DecodeError,
    Event,
    FromService,
    Goodbye,
    Hello,
    Noted,
    Refusal,
    Snapshot,
    Welcome,
    decode_from_daemon,
    encode,
    hello_protocol,
)

_log = structlog.get_logger(__name__)


class TakeEvent(Protocol):
    """Takes a machine's event, and calls `stored` once it will not be lost any more."""

    async def __call__(
        self,
        account_id: str,
        daemon_id: str,
        seq: int,
        event: AgentEvent,
        stored: Callable[[], None],
    ) -> None:
        """Take the event; waits while too many of them wait."""


class _Refused(Exception):
    """The connection is to be closed."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """The service's end of one machine's WebSocket."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.closed = False
        self._stored = 0
        self._acknowledging: asyncio.Task[None] | None = None

    async def send(self, frame: FromService) -> None:
        """Send a frame; waits while the machine takes none.

        Raises:
            ConnectionError: the socket has gone.
        """
        if self.closed:
            raise ConnectionResetError("The socket is closed")
        try:
            await self._send({"type": "websocket.send", "text": encode(frame).decode()})
        except OSError as error:  # uvicorn's ClientDisconnected is one
            self.closed = True
            raise ConnectionResetError("The socket has gone") from error

    async def receive(self) -> str | bytes | None:
        """Return the next message, None once the socket has gone."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.closed = True
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes", b"")

    def acknowledge(self, seq: int) -> None:
        """Tell the machine that its events up to `seq` are stored; one frame may tell of many."""
        self._stored = max(self._stored, seq)
        if self._acknowledging is None or self._acknowledging.done():
            self._acknowledging = asyncio.create_task(self._acknowledge(), name="acknowledge")

    async def _acknowledge(self) -> None:
        told = 0
        while told < self._stored and not self.closed:
            told = self._stored
            try:
                await self.send(Acknowledge(seq=told))
            except ConnectionError:
                return  # the next welcome tells it

    def end(self) -> None:
        """Stop what goes on beside the connection."""
        if self._acknowledging is not None:
            self._acknowledging.cancel()

    async def close(self, code: CloseCode, reason: str) -> None:
        """Close the socket, telling why. Harmless if it has gone already."""
        if not self.closed:
            self.closed = True
            try:
                async with asyncio.timeout(5):
                    await self._send(
                        {"type": "websocket.close", "code": code, "reason": reason[:120]}
                    )
            except (OSError, TimeoutError):
                _log.debug("socket gone before its close", code=code)


class Gateway:
    """The ASGI application behind `/api/v1/daemon/connect`.

    Args:
        owner_of: returns the machine that a connection token opens.
        take_event: stores the events of machines.
        note_refusal: takes what a machine (account, machine) refused an agent.
    """

    def __init__(
        self,
        *,
        database: Database,
        presence: Presence,
        dispatcher: Dispatcher,
        bus: MemoryBus,
        owner_of: Callable[[str], Awaitable[machines.Machine | None]],
        take_event: TakeEvent,
        note_refusal: Callable[[str, str, Refused], None],
    ) -> None:
        self._note_refusal = note_refusal
        self._take_event = take_event
        self._owner_of = owner_of
        self._database = database
        self._presence = presence
        self._dispatcher = dispatcher
        self._bus = bus
        self._connections: dict[str, Connection] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        connection = Connection(receive, send)
        try:
            row = await self._machine(scope)
            hello = await self._hello(connection)
            if hello is not None:
                await self._serve(scope, hello, connection, row.id)
        except _Refused as refusal:
            _log.info("machine refused", code=refusal.code, reason=refusal.reason)
            await connection.close(refusal.code, refusal.reason)

    def count(self) -> int:
        """Return how many machines have a socket here."""
        return len(self._connections)

    async def disconnect(self, machine_id: str) -> None:
        """Close the machine's socket; it is offline at once, and may come back by itself."""
        await self._end(machine_id, CloseCode.DISCONNECTED, "Disconnected from the dashboard")

    async def token_replaced(self, machine_id: str) -> None:
        """Close a socket that the machine's old token opened: it was enrolled again."""
        if machine_id in self._connections:
            reason = "This machine was set up again: start its agent with the new token"
            await self._end(machine_id, CloseCode.UNAUTHORIZED, reason)

    async def revoke(self, machine_id: str) -> None:
        """Make the machine's token worthless and close its socket for good."""
        await machines.revoke_token(self._database, machine_id)
        await self._end(
            machine_id, CloseCode.UNAUTHORIZED, "This token was revoked: run `outrider setup` again"
        )

    async def close(self) -> None:
        """Tell every machine that the service stops, and close its socket."""
        closing: list[Awaitable[None]] = [
            self._goodbye(connection) for connection in self._connections.values()
        ]
        await asyncio.gather(*closing)

    async def _machine(self, scope: Scope) -> machines.Machine:
        header = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        scheme, _, token = header.decode("latin-1").partition(" ")
        row = await self._owner_of(token.strip()) if scheme.lower() == "bearer" else None
        if row is None:
            raise _Refused(
                CloseCode.UNAUTHORIZED,
                "This token is unknown or was revoked: run `outrider setup` again",
            )
        return row

    async def _hello(self, connection: Connection) -> Hello | None:
        """Return the machine's hello; None where it went away instead."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                data = await connection.receive()
        except TimeoutError:
            raise _Refused(
                CloseCode.HELLO_TIMEOUT, f"No hello within {HELLO_TIMEOUT:g} seconds"
            ) from None
        if data is None:
            return None
        version = hello_protocol(data)
        if version is not None and version != PROTOCOL_VERSION:
            raise _Refused(
                CloseCode.UNSUPPORTED_VERSION,
                f"This service speaks protocol {PROTOCOL_VERSION}, not {version}: "
                f"update the {'service' if version > PROTOCOL_VERSION else 'machine agent'}",
            )
        try:
            frame = decode_from_daemon(data)
        except DecodeError as error:
            raise _Refused(CloseCode.BAD_FRAME, str(error)) from error
        if not isinstance(frame, Hello):
            raise _Refused(CloseCode.BAD_FRAME, "The first frame must be a hello")
        return frame

    async def _serve(
        self, scope: Scope, hello: Hello, connection: Connection, machine: str
    ) -> None:
        older = self._connections.get(machine)
        self._connections[machine] = connection
        if older is not None:
            self._dispatcher.dropped(machine)  # what was asked over it will not be answered
            await older.close(CloseCode.REPLACED, "A newer connection of this machine took over")
        try:
            # Asked again, now that `revoke` finds this connection: the token may have become
            # worthless while the hello was on its way.
            row = await self._machine(scope)
            state = await self._presence.connected(row, hello)
            _log.info(
                "machine connected",
                machine=machine,
                account=row.account_id,
                version=hello.version,
                sessions=len(hello.sessions),
            )
            await connection.send(
                Welcome(
                    protocol=PROTOCOL_VERSION,
                    version=__version__,
                    daemon_id=machine,
                    nickname=row.nickname,
                    acknowledged=row.event_seq,
                )
            )
            self._bus.hold(machine, connection)
            await self._listen(state, connection)
        except (DecodeError, TooManySessions) as error:
            raise _Refused(CloseCode.BAD_FRAME, str(error)) from error
        except ConnectionError:
            _log.info("machine went away during its welcome", machine=machine)
        finally:
            connection.end()
            self._bus.release(machine, connection)
            if self._connections.get(machine, connection) is connection:  # no newer one is there
                self._connections.pop(machine, None)
                self._presence.dropped(machine)
                self._dispatcher.dropped(machine)
            _log.info("machine dropped", machine=machine)

    async def _listen(self, state: MachineState, connection: Connection) -> None:
        while (data := await connection.receive()) is not None:
            match frame := decode_from_daemon(data):
                case CommandResult():
                    self._dispatcher.settle(state.id, frame)
                case Snapshot() | Change():
                    self._presence.reported(state, frame)
                case Event(seq=seq, event=event):
                    await self._take(state, connection, seq, event)
                case Refusal(seq=seq, refused=refused):
                    self._note_refusal(state.account_id, state.id, refused)
                    await connection.send(Noted(seq=seq))
                case Goodbye():
                    _log.info("machine says goodbye", machine=state.id, why=frame.reason)
                case _:
                    pass  # a frame of a newer version

    async def _take(
        self, state: MachineState, connection: Connection, seq: int, event: AgentEvent
    ) -> None:
        """Take an event in, and acknowledge it once it is stored."""
        if seq <= state.event_seq:
            connection.acknowledge(state.event_seq)
            return

        def stored() -> None:
            state.event_seq = max(state.event_seq, seq)
            connection.acknowledge(seq)

        await self._take_event(state.account_id, state.id, seq, event, stored)

    async def _end(self, machine_id: str, code: CloseCode, reason: str) -> None:
        connection = self._connections.pop(machine_id, None)
        await self._presence.gone(machine_id)
        self._dispatcher.dropped(machine_id)
        if connection is not None:
            self._bus.release(machine_id, connection)
            await connection.close(code, reason)

    async def _goodbye(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(0.5):  # a frozen machine must not hold the service up
                await connection.send(Goodbye(reason="The service is stopping"))
                await connection.close(CloseCode.GOING_AWAY, "The service is stopping")
        except (ConnectionError, TimeoutError):
            _log.debug("machine did not hear that the service stops")
