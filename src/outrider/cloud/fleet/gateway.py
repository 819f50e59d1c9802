"""The machines' WebSockets: who may connect, hello and welcome, and every frame after it.

docs/protocol.md describes the protocol. The pings are the server's (`websocket.Keepalive`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final, Protocol

import structlog
from starlette.types import Receive, Scope, Send

from outrider import __version__
from outrider.cloud.fleet.connection import Connection
from outrider.cloud.fleet.dispatch import Dispatcher
from outrider.cloud.fleet.handshake import OwnerOf, Rejected, hear_hello, owner, unauthorized
from outrider.cloud.fleet.machine_state import MachineState, TooMuchState
from outrider.cloud.fleet.presence import Presence
from outrider.cloud.fleet.relay import CommandRelay
from outrider.cloud.store import machines
from outrider.cloud.store.database import DATABASE_ERRORS, Database
from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.events import AgentEvent, Refused
from outrider.contract.frames import (
    PROTOCOL_VERSION,
    Change,
    CloseCode,
    CommandResult,
    DecodeError,
    Event,
    Goodbye,
    Hello,
    Noted,
    Refusal,
    Snapshot,
    Welcome,
    decode_from_daemon,
)
from outrider.contract.limits import EVENT_BURST, EVENTS_PER_SECOND

_MOVES_PER_SECOND: Final = 500
_LONGEST_MOVE: Final = 10.0
_MOVE_SECONDS: Final = 3.0
"""What a machine has for its move, beside its turn in the spread."""

_log = structlog.get_logger(__name__)


class Handshakes(Protocol):
    """Counts handshakes; see `access.handshakes`."""

    def wait(self, scope: Scope) -> float:
        """Return the seconds that an address has to wait before it may try again; 0 for none."""

    def refused(self, scope: Scope) -> None:
        """Count a handshake that was refused."""

    def accepted(self, machine_id: str) -> float:
        """Count a connection of a machine; return the seconds that it has to wait, 0 for none."""


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


class Gateway:
    """The ASGI application behind `/api/v1/daemon/connect`.

    Args:
        owner_of: returns the machine that a connection token opens, and the token's digest.
        take_event: stores the events of machines.
        note_refusal: takes what a machine (account, machine) refused an agent.
    """

    def __init__(
        self,
        *,
        database: Database,
        presence: Presence,
        dispatcher: Dispatcher,
        relay: CommandRelay,
        owner_of: OwnerOf,
        handshakes: Handshakes,
        take_event: TakeEvent,
        note_refusal: Callable[[str, str, Refused], None],
    ) -> None:
        self._note_refusal = note_refusal
        self._take_event = take_event
        self._owner_of = owner_of
        self._database = database
        self._presence = presence
        self._dispatcher = dispatcher
        self._relay = relay
        self._handshakes = handshakes
        self._connections: dict[str, Connection] = {}
        self._unwelcome: dict[str, Connection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        if self._is_leaving:
            await send({"type": "websocket.close", "code": CloseCode.GOING_AWAY, "reason": ""})
            return  # a handshake refused: the machine tries again, and comes to another node
        connection = Connection(receive, send)
        machine = None
        try:
            # The token comes first: until the upgrade is accepted, nothing that is sent is read.
            machine, token_hash = await self._admit(scope)
            del scope  # of thousands of quiet sockets, none needs it any more
            await connection.accept()
            hello = await self._hello(machine.id, connection)
            if hello is not None:
                await self._serve(machine, token_hash, hello, connection)
        except ApiError as error:
            await connection.deny(error)
        except Rejected as refusal:
            _log.info(
                "machine refused",
                machine=None if machine is None else machine.id,
                code=int(refusal.code),
                reason=refusal.reason,
            )
            await connection.close(refusal.code, refusal.reason)
        except DATABASE_ERRORS as error:
            _log.warning("machine sent away: the database is unavailable", error=str(error))
            await connection.close(CloseCode.TRY_AGAIN_LATER, "The database is away")

    async def _admit(self, scope: Scope) -> tuple[machines.Machine, bytes]:
        """Return the machine whose token a handshake has, and the token's digest.

        Raises:
            ApiError: 429, too many refused handshakes from there, or of this machine.
            Rejected: the token is worth nothing.
        """
        _refuse_until(self._handshakes.wait(scope))
        try:
            machine, token_hash = await owner(scope, self._owner_of)
        except Rejected:
            self._handshakes.refused(scope)
            raise
        _refuse_until(self._handshakes.accepted(machine.id))
        return machine, token_hash

    async def _hello(self, machine: str, connection: Connection) -> Hello | None:
        """Return the machine's hello; None where it went away instead.

        A machine has one connection that is not welcome yet: what such a one may keep in memory
        is limited.

        Raises:
            Rejected: it is none, comes too late, or is of a protocol that is not spoken here.
        """
        older = self._unwelcome.get(machine)
        self._unwelcome[machine] = connection
        try:
            if older is not None:
                await older.close(CloseCode.TRY_AGAIN_LATER, "A newer connection says hello")
            return await hear_hello(connection)
        finally:
            if self._unwelcome.get(machine) is connection:
                del self._unwelcome[machine]

    def count(self) -> int:
        """Return how many machines have a socket here."""
        return len(self._connections)

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
        """Make the machine's token worthless and close its socket for good."""
        await machines.revoke_token(self._database, state.id)
        reason = "This token was revoked: run `outrider setup` again"
        await self._end(state, CloseCode.UNAUTHORIZED, reason)

    def close_connection(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        """Close a machine's socket as another node says; see `relay.CloseHandler`."""
        mine = self._connections.get(machine_id)
        if mine is None:
            return
        if connection is not None and (mine.number >= connection or not mine.number):
            return  # one that has no number yet will claim the machine in a moment
        del self._connections[machine_id]
        self._presence.release(machine_id)
        if not mine.is_moving:
            self._dispatcher.connection_lost(machine_id)
        self._left_one()
        work = self._let_go(machine_id, mine, code, reason)
        task = asyncio.create_task(work, name="close a socket")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _let_go(
        self, machine_id: str, connection: Connection, code: CloseCode, reason: str
    ) -> None:
        """Leave the machine's channel to its new node, then close: nothing can be sent any more."""
        await self._relay.unregister(machine_id, connection, has_moved=connection.is_moving)
        await connection.close(code, reason)

    async def drop_deleted(self, account_id: str) -> None:
        """Close the sockets of the account's machines that have been deleted, and forget them.

        Raises:
            SQLAlchemyError, OSError: the database is unavailable.
        """
        here = self._presence.here(account_id)
        if not here:
            return
        existing = await machines.existing(self._database, here)
        for machine_id in here:
            if machine_id not in existing:
                reason = "The account of this machine was deleted"
                self.close_connection(machine_id, CloseCode.UNAUTHORIZED, reason, None)
                self._presence.release(machine_id)  # also one that had no socket

    async def reclaim(self) -> None:
        """See to the machines here again; close the sockets of those that are another's now."""
        for state in await self._presence.reclaim():
            reason = "This connection was held for dead"
            self.close_connection(state.id, CloseCode.GOING_AWAY, reason, None)

    async def move(self) -> None:
        """Have every machine connect to another node, spread out; return when all have.

        Those that do not within their time are left to `close`.
        """
        self._is_leaving = True
        spread = min(_LONGEST_MOVE, len(self._connections) / _MOVES_PER_SECOND)
        goodbye = Goodbye(
            reason="This node is stopping: connect to another",
            reconnect_ms=max(1, int(spread * 1000)),
        )
        for connection in list(self._connections.values()):
            connection.is_moving = True
        await asyncio.gather(
            *(self._say(connection, goodbye) for connection in list(self._connections.values()))
        )
        self._left_one()
        try:
            async with asyncio.timeout(spread + _MOVE_SECONDS):
                await self._left.wait()
        except TimeoutError:
            _log.warning("machines stay until the end", count=len(self._connections))

    async def close(self) -> None:
        """Tell every machine that the service stops, and close its socket."""
        closing: list[Awaitable[None]] = [
            self._goodbye(connection) for connection in self._connections.values()
        ]
        await asyncio.gather(*closing)

    async def _serve(
        self, row: machines.Machine, token_hash: bytes, hello: Hello, connection: Connection
    ) -> None:
        machine = row.id
        older = self._connections.get(machine)
        self._connections[machine] = connection
        if older is not None:
            self._dispatcher.connection_lost(machine)  # what was asked over it will not be answered
            await older.close(CloseCode.REPLACED, "A newer connection of this machine took over")
        try:
            # The token is looked at again, now that `revoke` finds this connection: it may have
            # become worthless while the hello was on its way.
            state = await self._presence.register(row, token_hash, hello)
            if state is None:
                raise unauthorized()
            connection.number = state.connection
            await connection.expect_frames()
            _log.info(
                "machine connected",
                machine=machine,
                account=state.account_id,
                version=hello.version,
                sessions=len(hello.sessions),
            )
            await connection.send(
                Welcome(
                    protocol=PROTOCOL_VERSION,
                    version=__version__,
                    daemon_id=machine,
                    nickname=state.nickname,
                    acknowledged=state.event_seq,
                )
            )
            await self._relay.register(machine, connection, connection.number)
            await self._listen(state, connection)
        except DecodeError as error:
            raise Rejected(CloseCode.BAD_FRAME, str(error)) from error
        except TooMuchState as error:
            raise Rejected(CloseCode.TOO_MUCH_STATE, str(error)) from error
        except ConnectionError:
            _log.info("machine went away during its welcome", machine=machine)
        finally:
            connection.end()
            if self._connections.get(machine) is connection:  # no newer one, and none elsewhere
                del self._connections[machine]
                self._presence.connection_lost(machine)
                if not connection.is_moving:
                    self._dispatcher.connection_lost(machine)
                self._left_one()
            await self._relay.unregister(machine, connection, has_moved=connection.is_moving)
            _log.info("machine dropped", machine=machine)

    async def _listen(self, state: MachineState, connection: Connection) -> None:
        while (data := await connection.receive()) is not None:
            match frame := decode_from_daemon(data):
                case CommandResult():
                    await self._relay.deliver_result(state.id, frame)
                case Snapshot() | Change():
                    self._presence.update(state, frame)
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
        if not state.events.take(asyncio.get_running_loop().time()):
            raise Rejected(
                CloseCode.TOO_MANY_EVENTS,
                f"A machine may send {EVENTS_PER_SECOND:g} events a second, "
                f"and {EVENT_BURST} at once",
            )
        if seq <= state.event_seq:
            connection.acknowledge(state.event_seq)
            return

        def stored() -> None:
            state.event_seq = max(state.event_seq, seq)
            connection.acknowledge(seq)

        await self._take_event(state.account_id, state.id, seq, event, stored)

    async def _end(self, state: MachineState, code: CloseCode, reason: str) -> None:
        connection = self._connections.pop(state.id, None)
        await self._presence.disconnect(state.account_id, state.id)
        if connection is None:
            await self._relay.close_elsewhere(state.id, code, reason)
            return
        self._dispatcher.connection_lost(state.id)
        self._left_one()
        await self._relay.unregister(state.id, connection, has_moved=False)
        await connection.close(code, reason)

    def _left_one(self) -> None:
        if self._is_leaving and not self._connections:
            self._left.set()

    async def _say(self, connection: Connection, frame: Goodbye) -> None:
        try:
            async with asyncio.timeout(1):  # a frozen machine must not hold the others up
                await connection.send(frame)
        except (ConnectionError, TimeoutError):
            _log.debug("machine did not hear that it is to move")

    async def _goodbye(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(0.5):  # a frozen machine must not hold the service up
                await connection.send(Goodbye(reason="The service is stopping"))
                await connection.close(CloseCode.GOING_AWAY, "The service is stopping")
        except (ConnectionError, TimeoutError):
            _log.debug("machine did not hear that the service stops")


def _refuse_until(seconds: float) -> None:
    """Raise a 429 where a handshake may not be made for some seconds yet."""
    if seconds:
        text = f"Too many connections were asked for: try again in {ceil(seconds)} s"
        raise ApiError(429, text, code=ErrorCode.RATE_LIMITED, retry_after=seconds)
