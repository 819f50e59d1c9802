"""The machines' WebSockets: who may connect, and what each frame of a machine means here.

    socket ── messages ─▶ ServiceLink ── events ─▶ Gateway ─▶ presence, relay, event intake, audit
    socket ◀─ frames ──── ServiceLink ◀─ welcome, event_stored, move, close ── Gateway

`contract.link.service` decides what the protocol (contributing/protocol.md) says; this module
reads and writes the sockets. The pings are the server's (`websocket.Keepalive`).

Crash windows. A machine may be gone, or connected to another node, before its registration here
is committed: then it is registered only if it still answers (`_register`). Events that still wait
to be stored when the machine connects elsewhere are stored, but do not change the number of its
newest event (`event_intake`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from typing import Final, Protocol

import structlog
from starlette.types import Message, Receive, Scope, Send

from outrider import __version__
from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.events import AgentEvent, Refused
from outrider.contract.frames import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    Change,
    CloseCode,
    CommandResult,
    DecodeError,
    Delta,
    Event,
    FromDaemon,
    FromService,
    Goodbye,
    Hello,
    Refusal,
    Snapshot,
    close_reason,
    encode,
)
from outrider.contract.link.service import LinkTable, ServiceLink
from outrider.service.cluster.relay import CommandRelay
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.http.error_response import respond
from outrider.service.machines import views
from outrider.service.machines.machine_state import MachineState, TooMuchState
from outrider.service.machines.presence import Presence
from outrider.service.machines.store import machines
from outrider.service.terminals.streams import LocalTerminals, MachineTerminals

_MOVES_PER_SECOND: Final = 500
_LONGEST_MOVE: Final = 10.0
_PONG_SECONDS: Final = 5.0
_REGISTRATIONS: Final = 3
"""How often a machine is registered again because another node has stored a connection of it."""

_MOVE_SECONDS: Final = 3.0
"""Seconds that a machine has for its move, in addition to the spread."""

_MOVE: Final = "This node is stopping: connect to another"

_UNAUTHORIZED: Final = "This token is unknown or was revoked: run `outrider setup` again"

_REASONS: Final = {
    machines.AttachFailure.TOKEN_INVALID: (CloseCode.UNAUTHORIZED, _UNAUTHORIZED),
    machines.AttachFailure.SUPERSEDED: (
        CloseCode.TRY_AGAIN_LATER,
        "Another node has accepted a connection of this machine meanwhile",
    ),
}

_log = structlog.get_logger(__name__)


class Handshakes(Protocol):
    """Counts handshakes; see `access.handshakes`."""

    def wait(self, scope: Scope) -> float:
        """Return the seconds that an address has to wait before it may try again; 0 for none."""

    def refused(self, scope: Scope) -> None:
        """Count a handshake that was refused."""

    def accepted(self, machine_id: str) -> float:
        """Count a connection of a machine; return the seconds that it has to wait, 0 for none."""


OwnerOf = Callable[[str], Awaitable[tuple[machines.Machine, bytes] | None]]
"""Returns the machine that a connection token opens, and the token's digest."""


class TakeEvent(Protocol):
    """Accepts a machine's event, and calls `stored` once it is stored."""

    async def __call__(
        self,
        account_id: str,
        daemon_id: str,
        connection: int,
        seq: int,
        event: AgentEvent,
        *,
        stored: Callable[[], None],
    ) -> None:
        """Accept the event `seq` of a connection; waits while too many events wait."""


class Connection:
    """This node's end of one machine's WebSocket: carries out what its `ServiceLink` decides."""

    __slots__ = (
        "_is_accepted",
        "_is_gone",
        "_receive",
        "_send",
        "_sending",
        "link",
        "terminals",
    )

    def __init__(self, receive: Receive, send: Send, link: ServiceLink | None = None) -> None:
        self._receive = receive
        self._send = send
        self._is_accepted = False
        self._is_gone = False
        """The socket is lost, or its close frame is sent."""
        self._sending: asyncio.Task[None] | None = None
        self.link = link or ServiceLink()
        self.terminals: MachineTerminals | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the socket is lost, or closed by this side."""
        return self._is_gone

    async def accept(self) -> None:
        """Accept the upgrade, and a hello from then on.

        Raises:
            ConnectionError: the socket is lost.
        """
        self._is_accepted = True
        await self._send({"type": "websocket.accept", "max_size": MAX_HELLO_BYTES})
        self.link.accepted(_now())

    async def deny(self, error: ApiError) -> None:
        """Answer the request for the upgrade with an error."""
        self._is_gone = True
        self.link.lost()
        await respond(self._send, error, kind="websocket.http")

    async def hello(self) -> Hello | None:
        """Return the machine's hello; None if the connection has ended or is to be closed."""
        link = self.link
        try:
            async with asyncio.timeout_at(link.deadline):
                message = await self.receive()
        except TimeoutError:
            link.tick(max(_now(), link.deadline or 0.0))  # timers may fire a moment early
            return None
        if message is not None:
            link.receive(message, _now())
        for event in link.events():
            if isinstance(event, Hello):
                return event
        return None

    async def is_alive(self) -> bool:
        """Return whether the machine answers a ping: it has not given this connection up."""
        try:
            async with asyncio.timeout(_PONG_SECONDS):
                await self._send({"type": "outrider.ping"})
        except (ConnectionError, TimeoutError):
            return False
        return not self.link.is_closed

    async def expect_frames(self) -> None:
        """Accept frames of the full size from now on: the machine is welcome.

        Raises:
            ConnectionError: the socket is lost.
        """
        await self._send({"type": "outrider.max_size", "max_size": MAX_FRAME_BYTES})

    async def receive(self) -> str | bytes | None:
        """Return the next message, None once the socket is lost."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_gone = True
            self.link.lost()
            return None
        text: str | None = message.get("text")
        return text if text is not None else message.get("bytes", b"")

    async def send(self, frame: FromService) -> None:
        """Send a frame; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        if self.link.is_closed:
            raise ConnectionResetError("The socket is closed")
        await self._write(frame)

    async def flush(self) -> None:
        """Send the frames of the link. If it is cancelled, frames may be lost.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        for frame in self.link.frames():
            await self._write(frame)

    def event_stored(self, seq: int) -> None:
        """Acknowledge the events up to `seq` soon; one frame may acknowledge many."""
        self.link.event_stored(seq)
        self._send_soon()

    def watch_deltas(self, sessions: list[str] | None) -> None:
        """Ask the machine for deltas soon; see `ServiceLink.watch_deltas`."""
        self.link.watch_deltas(sessions)
        self._send_soon()

    def _send_soon(self) -> None:
        """Send the frames of the link without waiting for a machine that does not read."""
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_frames(), name="send frames")

    async def _send_frames(self) -> None:
        try:
            while frames := self.link.frames():
                for frame in frames:
                    await self._write(frame)
        except ConnectionError:
            pass  # the next welcome has the number; a new connection is asked for deltas again

    async def close(self) -> None:
        """Send the last frames and close the socket as the link says. Idempotent.

        The upgrade is accepted first if it is not yet: the response to a handshake has no room for
        a code, and could be that of a proxy.
        """
        closing = self.link.closing
        if closing is None or self._is_gone:
            return
        try:
            async with asyncio.timeout(5):
                if not self._is_accepted:
                    await self.accept()
                await self.flush()
                self._is_gone = True
                reason = close_reason(closing.reason)
                await self._send(
                    {"type": "websocket.close", "code": closing.code, "reason": reason}
                )
        except (OSError, TimeoutError):
            _log.debug("socket lost before its close", code=closing.code)
        finally:
            self._is_gone = True

    def end(self) -> None:
        """Cancel the task that sends frames."""
        if self._sending is not None:
            self._sending.cancel()

    def _write(self, frame: FromService) -> Awaitable[None]:
        return self._write_message({"type": "websocket.send", "text": encode(frame).decode()})

    async def send_terminal(self, message: bytes) -> None:
        """Send a binary message of a terminal; waits while the machine does not read.

        Raises:
            ConnectionError: the socket is closed or lost.
        """
        await self._write_message({"type": "websocket.send", "bytes": message})

    async def _write_message(self, message: Message) -> None:
        if self._is_gone:
            raise ConnectionResetError("The socket is lost")
        try:
            await self._send(message)
        except OSError as error:  # uvicorn's ClientDisconnected is one
            self._is_gone = True
            self.link.lost()
            raise ConnectionResetError("The socket is lost") from error


class Gateway:
    """The ASGI application behind `/api/v1/daemon/connect`.

    Args:
        owner_of: returns the machine that a connection token opens, and the token's digest.
        take_event: stores the events of machines.
        terminals: gets the binary messages of machines.
        note_refusal: called with account, machine and refusal when a machine refused an agent.
        take_delta: called with account, machine and each delta that was asked for, and the target
            id by type of its session; empty if the machine has not reported that session yet.
    """

    def __init__(
        self,
        *,
        database: Database,
        presence: Presence,
        relay: CommandRelay,
        terminals: LocalTerminals,
        owner_of: OwnerOf,
        handshakes: Handshakes,
        take_event: TakeEvent,
        note_refusal: Callable[[str, str, Refused], None],
        take_delta: Callable[[str, str, Delta, str], None] = lambda *_: None,
    ) -> None:
        self._note_refusal = note_refusal
        self._take_delta = take_delta
        self._take_event = take_event
        self._owner_of = owner_of
        self._database = database
        self._presence = presence
        self._relay = relay
        self._terminals = terminals
        self._handshakes = handshakes
        self._table: LinkTable[Connection] = LinkTable()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        if self._is_leaving:
            await send({"type": "websocket.close", "code": CloseCode.GOING_AWAY, "reason": ""})
            return  # refused: the machine tries again, and reaches another node
        connection = Connection(receive, send)
        machine_id = None
        try:
            # The token comes first: until the upgrade is accepted, nothing that is sent is read.
            admitted = await self._admit(scope, connection)
            del scope  # of thousands of quiet sockets, none needs it any more
            if admitted is not None:
                machine, token_hash = admitted
                machine_id = machine.id
                await connection.accept()
                await self._serve(machine, token_hash, connection)
        except ApiError as error:
            await connection.deny(error)
        except DATABASE_ERRORS as error:
            _log.warning("connection rejected: database unavailable", error=str(error))
            connection.link.close(CloseCode.TRY_AGAIN_LATER, "The database is unavailable")
        closing = connection.link.closing
        if closing is not None and not connection.is_gone:
            _log.info(
                "machine refused",
                machine=machine_id,
                code=int(closing.code),
                reason=closing.reason,
            )
            await connection.close()

    async def _admit(
        self, scope: Scope, connection: Connection
    ) -> tuple[machines.Machine, bytes] | None:
        """Return the machine whose token a handshake has, and the token's digest.

        Returns None, and has the connection closed, if the token is not valid.

        Raises:
            ApiError: 429, too many refused handshakes of the address, or of this machine.
        """
        _refuse_until(self._handshakes.wait(scope))
        token = _token(scope)
        found = None if token is None else await self._owner_of(token)
        if found is None:
            self._handshakes.refused(scope)
            connection.link.close(CloseCode.UNAUTHORIZED, _UNAUTHORIZED)
            return None
        _refuse_until(self._handshakes.accepted(found[0].id))
        return found

    async def _hello(self, machine: str, connection: Connection) -> Hello | None:
        """Return the machine's hello; None if the connection has ended or is to be closed."""
        older = self._table.accept(machine, connection)
        hello = None
        try:
            if older is not None:
                await older.close()
            hello = await connection.hello()
            return hello
        finally:
            if hello is None:
                self._table.remove(machine, connection)

    def watch_deltas(self, machine_id: str, sessions: list[str] | None) -> None:
        """Ask a machine with a socket here for deltas of sessions; None: of all, empty: of none.

        A machine forgets it with its connection. Call it again after the machine has connected.
        """
        connection = self._table.newest(machine_id)
        # The first frame must be the welcome, which comes with the number.
        if connection is not None and connection.link.number:
            connection.watch_deltas(sessions)

    def count(self) -> int:
        """Return how many machines have a socket here."""
        return len(self._table)

    async def disconnect(self, state: MachineState) -> None:
        """Close the machine's socket; it is offline at once, and may come back by itself."""
        await self._end(state, CloseCode.DISCONNECTED, "Disconnected from the dashboard")

    async def token_replaced(self, account_id: str, machine_id: str) -> None:
        """Close a socket that the machine's old token opened: it was enrolled again."""
        state = await self._presence.find(account_id, machine_id)
        if state is not None and state.connected:
            reason = "This machine was set up again: start its agent with the new token"
            await self._end(state, CloseCode.UNAUTHORIZED, reason)

    async def revoke(self, state: MachineState) -> None:
        """Revoke the machine's token and close its socket; the machine does not reconnect."""
        await machines.revoke_token(self._database, state.id)
        reason = "This token was revoked: run `outrider setup` again"
        await self._end(state, CloseCode.UNAUTHORIZED, reason)

    def close_connection(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        """Close a machine's socket at another node's request; see `relay.CloseHandler`."""
        mine = self._table.evict(machine_id, code, reason, claimed_by=connection)
        if mine is None:
            return
        self._presence.release(machine_id)
        if not mine.link.is_moving:
            self._relay.connection_lost(machine_id)
        self._left_one()
        work = self._unregister_and_close(machine_id, mine)
        task = asyncio.create_task(work, name="close a socket")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _unregister_and_close(self, machine_id: str, connection: Connection) -> None:
        """Unsubscribe from the machine's channel, then close: nothing more can be sent."""
        has_moved = connection.link.is_moving
        self._end_terminals(machine_id, connection)
        await self._relay.unregister(machine_id, connection, has_moved=has_moved)
        await connection.close()

    async def drop_deleted(self, account_id: str) -> None:
        """Close the sockets of the account's deleted machines, and remove the machines here.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        local = self._presence.local_ids(account_id)
        if not local:
            return
        existing = await machines.existing(self._database, local)
        for machine_id in local:
            if machine_id not in existing:
                reason = "The account of this machine was deleted"
                self.close_connection(machine_id, CloseCode.UNAUTHORIZED, reason, None)
                self._presence.release(machine_id)  # also one that had no socket

    async def reclaim(self) -> None:
        """Claim this node's machines again; close the sockets of those that another node has."""
        for state in await self._presence.reclaim():
            reason = "This node was declared dead by its peers"
            self.close_connection(state.id, CloseCode.GOING_AWAY, reason, None)

    async def move(self) -> None:
        """Have every machine connect to another node, spread out; return when all have.

        Those that do not within their time are left to `close`.
        """
        self._is_leaving = True
        spread = min(_LONGEST_MOVE, len(self._table) / _MOVES_PER_SECOND)
        connections = list(self._table)
        for connection in connections:
            connection.link.move(_MOVE, max(1, int(spread * 1000)))
        await asyncio.gather(*(_flush(connection) for connection in connections))
        self._left_one()
        try:
            async with asyncio.timeout(spread + _MOVE_SECONDS):
                await self._left.wait()
        except TimeoutError:
            _log.warning("machines not moved in time", count=len(self._table))

    async def close(self) -> None:
        """Send every machine a goodbye, and close its socket."""
        connections = list(self._table)
        for connection in connections:
            connection.link.stop("The service is stopping")
        await asyncio.gather(*(_close(connection) for connection in connections))

    async def _serve(
        self, row: machines.Machine, token_hash: bytes, connection: Connection
    ) -> None:
        machine, link = row.id, connection.link
        hello = await self._hello(machine, connection)
        if hello is None:
            return
        older = self._table.admit(machine, connection)
        if older is not None:
            self._relay.connection_lost(machine)  # commands in flight on it get no result
            self._end_terminals(machine, older)
            await older.close()
        try:
            # The token is checked again, now that `revoke` finds this connection: it may have
            # been revoked while the hello was on its way.
            state = await self._register(row, token_hash, hello, connection)
            if not isinstance(state, MachineState):
                link.close(*_REASONS[state])
                return
            if self._table.newest(machine) is None:
                # This connection was closed, by `disconnect` for one, before the machine was
                # stored as connected: without a connection it must not stay so.
                await self._presence.withdraw(state)
                return
            link.welcome(
                daemon_id=machine,
                nickname=state.nickname,
                version=__version__,
                acknowledged=state.event_seq,
                number=state.connection,
                allowance=state.events,
            )
            await connection.expect_frames()
            _log.info(
                "machine connected",
                machine=machine,
                account=state.account_id,
                version=hello.version,
                sessions=len(hello.sessions),
            )
            await connection.flush()
            await self._relay.register(machine, connection, state.connection)
            if self._table.newest(machine) is not connection:
                return  # a newer one may have attached its terminals by now
            connection.terminals = MachineTerminals(
                connection.send_terminal, is_supported=hello.terminals
            )
            self._terminals.attach(machine, connection.terminals)
            if self._is_leaving and not link.is_moving:  # it said hello while the others moved
                link.move(_MOVE, 1)
                await connection.flush()
            del hello  # 1.5 KB of each machine; `state` has what is needed
            await self._listen(state, connection)
        except TooMuchState as error:
            link.close(CloseCode.TOO_MUCH_STATE, str(error))
        except ConnectionError:
            _log.info("machine disconnected during its welcome", machine=machine)
        finally:
            connection.end()
            self._end_terminals(machine, connection)
            if self._table.remove(machine, connection):  # no newer one, and none elsewhere
                self._presence.connection_lost(machine)
                if not link.is_moving:
                    self._relay.connection_lost(machine)
                self._left_one()
            await self._relay.unregister(machine, connection, has_moved=link.is_moving)
            _log.info("machine dropped", machine=machine)

    async def _register(
        self, row: machines.Machine, token_hash: bytes, hello: Hello, connection: Connection
    ) -> MachineState | machines.AttachFailure:
        """Register a machine; return its state, or why it may not connect.

        If another node has stored a connection of the machine since this handshake, either may be
        the newer one: this hello may have been stored late, and the machine may have given the
        connection up. A pong that is requested after the other was stored shows that it has not.
        """
        for _ in range(_REGISTRATIONS):
            state = await self._presence.register(row, token_hash, hello)
            if state is not machines.AttachFailure.SUPERSEDED:
                return state
            newest = await machines.by_id(self._database, row.id)
            if newest is None or not await connection.is_alive():
                break
            row = row._replace(connection=newest.connection)
        return machines.AttachFailure.SUPERSEDED

    async def _listen(self, state: MachineState, connection: Connection) -> None:
        """Read frames until the connection has ended or is to be closed."""
        link = connection.link
        loop = asyncio.get_running_loop()
        while (message := await connection.receive()) is not None:
            terminals = connection.terminals
            if isinstance(message, bytes) and terminals is not None and terminals.is_supported:
                try:
                    terminals.receive(message)
                except DecodeError as error:
                    link.close(CloseCode.BAD_FRAME, str(error))
            else:
                link.receive(message, loop.time())
            for event in link.events():
                await self._handle(state, connection, event)
            await connection.flush()
            if link.closing is not None:
                return

    async def _handle(self, state: MachineState, connection: Connection, event: FromDaemon) -> None:
        match event:
            case CommandResult():
                await self._relay.deliver_result(state.id, event)
            case Snapshot() | Change():
                self._presence.update(state, event)
            case Event(seq=seq, event=agent_event):
                await self._take_event(
                    state.account_id,
                    state.id,
                    connection.link.number,
                    seq,
                    agent_event,
                    stored=partial(connection.event_stored, seq),
                )
            case Delta(session_id=session_id):
                session = state.sessions.get(session_id)
                ide_id = "" if session is None else views.type_target(state.id, session)
                self._take_delta(state.account_id, state.id, event, ide_id)
            case Refusal(refused=refused):
                self._note_refusal(state.account_id, state.id, refused)
            case Goodbye(reason=reason):
                _log.info("goodbye received", machine=state.id, reason=reason)

    async def _end(self, state: MachineState, code: CloseCode, reason: str) -> None:
        connection = self._table.evict(state.id, code, reason)
        await self._presence.disconnect(state.account_id, state.id)
        if connection is None:
            await self._relay.close_elsewhere(state.id, code, reason)
            return
        self._relay.connection_lost(state.id)
        self._end_terminals(state.id, connection)
        self._left_one()
        await self._relay.unregister(state.id, connection, has_moved=False)
        await connection.close()

    def _end_terminals(self, machine_id: str, connection: Connection) -> None:
        """Close the terminals on a socket; not only at its end, which may take a minute."""
        if connection.terminals is not None:
            self._terminals.detach(
                machine_id, connection.terminals, moved=connection.link.is_moving
            )

    def _left_one(self) -> None:
        if self._is_leaving and not self._table:
            self._left.set()


async def _flush(connection: Connection) -> None:
    try:
        async with asyncio.timeout(1):  # a frozen machine must not delay the others
            await connection.flush()
    except (ConnectionError, TimeoutError):
        _log.debug("goodbye before move not sent")


async def _close(connection: Connection) -> None:
    try:
        async with asyncio.timeout(0.5):  # a frozen machine must not delay the service
            await connection.close()
    except TimeoutError:
        _log.debug("goodbye not sent")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _token(scope: Scope) -> str | None:
    header = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _refuse_until(seconds: float) -> None:
    """Raise a 429 where a handshake may not be made for some seconds yet."""
    if seconds:
        text = f"Too many connections were asked for: try again in {ceil(seconds)} s"
        raise ApiError(429, text, code=ErrorCode.RATE_LIMITED, retry_after=seconds)
