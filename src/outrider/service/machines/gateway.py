"""The machines' WebSockets: who may connect, and what each frame of a machine means here.

    socket ── messages ─▶ ServiceLink ── events ─▶ Gateway ─▶ presence, relay, event intake, audit
    socket ◀─ frames ──── ServiceLink ◀─ welcome, event_stored, move, close ── Gateway

`contract.link.service` decides what the protocol (contributing/protocol.md) says; this module
reads and writes the sockets. The server sends the pings.

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
from starlette.types import Receive, Scope, Send

from outrider import __version__
from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.events import AgentEvent, Refused
from outrider.contract.frames import (
    Change,
    CloseCode,
    CommandResult,
    DecodeError,
    Delta,
    Event,
    FromDaemon,
    Goodbye,
    Hello,
    Refusal,
    Snapshot,
)
from outrider.service.cluster.relay import CommandRelay
from outrider.service.database.engine import DATABASE_ERRORS, Database
from outrider.service.machines import views
from outrider.service.machines.connection import Connection
from outrider.service.machines.handshakes import Handshakes
from outrider.service.machines.machine_state import MachineState, TooMuchState
from outrider.service.machines.presence import Presence
from outrider.service.machines.sockets import MOVE, MachineSockets
from outrider.service.machines.store import machines
from outrider.service.terminals.streams import LocalTerminals, MachineTerminals

# How often a machine is registered again because another node has stored a connection of it.
_REGISTRATIONS: Final = 3

_UNAUTHORIZED: Final = "This token is unknown or was revoked: run `outrider setup` again"

_REASONS: Final = {
    machines.AttachFailure.TOKEN_INVALID: (CloseCode.UNAUTHORIZED, _UNAUTHORIZED),
    machines.AttachFailure.SUPERSEDED: (
        CloseCode.TRY_AGAIN_LATER,
        "Another node has accepted a connection of this machine meanwhile",
    ),
}

_log = structlog.get_logger(__name__)


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
        sockets: MachineSockets,
        owner_of: OwnerOf,
        handshakes: Handshakes,
        take_event: TakeEvent,
        note_refusal: Callable[[str, str, Refused], None],
        take_delta: Callable[[str, str, Delta, str], None],
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
        self._sockets = sockets
        self._table = sockets.table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        if self._sockets.is_leaving:
            await send({"type": "websocket.close", "code": CloseCode.GOING_AWAY, "reason": ""})
            return  # refused: the machine tries again, and reaches another node
        connection = Connection(receive, send)
        machine_id = None
        try:
            # The token comes first: until the upgrade is accepted, nothing that is sent is read.
            admitted = await self._admit(scope, connection)
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
        owned = None if token is None else await self._owner_of(token)
        if owned is None:
            self._handshakes.refused(scope)
            connection.link.close(CloseCode.UNAUTHORIZED, _UNAUTHORIZED)
            return None
        _refuse_until(self._handshakes.accepted(owned[0].id))
        return owned

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

    async def _serve(
        self, row: machines.Machine, token_hash: bytes, connection: Connection
    ) -> None:
        machine, link = row.id, connection.link
        hello = await self._hello(machine, connection)
        if hello is None:
            return
        # Before the registration, so that whoever closes the machine's connection from now on finds
        # this one.
        older = self._table.admit(machine, connection)
        if older is not None:
            self._relay.connection_lost(machine)  # commands in flight on it get no result
            self._sockets.end_terminals(machine, older)
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
            if (
                self._sockets.is_leaving and not link.is_moving
            ):  # it said hello while the others moved
                link.move(MOVE, 1)
                await connection.flush()
            await self._listen(state, connection)
        except TooMuchState as error:
            link.close(CloseCode.TOO_MUCH_STATE, str(error))
        except ConnectionError:
            _log.info("machine disconnected during its welcome", machine=machine)
        finally:
            connection.end()
            self._sockets.end_terminals(machine, connection)
            if self._table.remove(machine, connection):  # no newer one, and none elsewhere
                self._presence.connection_lost(machine)
                self._sockets.forget(machine, connection)
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


def _token(scope: Scope) -> str | None:
    header = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _refuse_until(seconds: float) -> None:
    """Raise a 429 where a handshake may not be made for some seconds yet."""
    if seconds:
        text = f"Too many connections were asked for: try again in {ceil(seconds)} s"
        raise ApiError(429, text, code=ErrorCode.RATE_LIMITED, retry_after=seconds)
