"""The machines' sockets on this node: how they are found, closed and moved to other nodes."""

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from outrider.contract.frames import CloseCode
from outrider.contract.link.service import LinkTable
from outrider.service.cluster.relay import CommandRelay
from outrider.service.database.engine import Database
from outrider.service.machines.connection import Connection
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import Presence
from outrider.service.machines.store import machines
from outrider.service.terminals.streams import LocalTerminals

_MOVES_PER_SECOND: Final = 500
_LONGEST_MOVE: Final = 10.0
# Seconds that a machine has for its move, in addition to the spread.
_MOVE_SECONDS: Final = 3.0

MOVE: Final = "This node is stopping: connect to another"

_log = structlog.get_logger(__name__)


class MachineSockets:
    """The connections of machines to this node.

    Attributes:
        table: the connections of each machine.
        is_leaving: whether machines are to connect to other nodes.
    """

    def __init__(
        self,
        database: Database,
        presence: Presence,
        relay: CommandRelay,
        terminals: LocalTerminals,
    ) -> None:
        self.table: LinkTable[Connection] = LinkTable()
        self.is_leaving = False
        self._database = database
        self._presence = presence
        self._relay = relay
        self._terminals = terminals
        self._closing: set[asyncio.Task[None]] = set()
        self._left = asyncio.Event()

    def watch_deltas(self, machine_id: str, sessions: list[str] | None) -> None:
        """Ask a machine with a socket here for deltas of sessions; None: of all, empty: of none.

        A machine forgets it with its connection. Call it again after the machine has connected.
        """
        connection = self.table.newest(machine_id)
        # The first frame must be the welcome, which comes with the number.
        if connection is not None and connection.link.number:
            connection.watch_deltas(sessions)

    def count(self) -> int:
        """Return how many machines have a socket here."""
        return len(self.table)

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

    def close_here(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        """Close a machine's socket at another node's request; see `relay.CloseHandler`."""
        mine = self.table.evict(machine_id, code, reason, claimed_by=connection)
        if mine is None:
            return
        # Before anything is awaited: the other node is responsible for the machine already.
        self._presence.release(machine_id)
        self.forget(machine_id, mine)
        work = self._unregister_and_close(machine_id, mine)
        task = asyncio.create_task(work, name="close a socket")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def forget(self, machine_id: str, connection: Connection) -> None:
        """Fail what is in flight on a connection that is no longer in the table.

        If the machine is moving, its commands are answered over its next connection.
        """
        if not connection.link.is_moving:
            self._relay.connection_lost(machine_id)
        self.end_terminals(machine_id, connection)
        self._check_left()

    async def _unregister_and_close(self, machine_id: str, connection: Connection) -> None:
        """Unsubscribe from the machine's topic, then close: nothing more can be sent."""
        has_moved = connection.link.is_moving
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
                self.close_here(machine_id, CloseCode.UNAUTHORIZED, reason, None)
                self._presence.release(machine_id)  # also one that had no socket

    async def reclaim(self) -> None:
        """Claim this node's machines again; close the sockets of those that another node has."""
        for state in await self._presence.reclaim():
            reason = "This node was declared dead by its peers"
            self.close_here(state.id, CloseCode.GOING_AWAY, reason, None)

    async def move(self) -> None:
        """Have every machine connect to another node, spread out; return when all have.

        Those that do not within their time are left to `close`.
        """
        self.is_leaving = True
        spread = min(_LONGEST_MOVE, len(self.table) / _MOVES_PER_SECOND)
        connections = list(self.table)
        for connection in connections:
            connection.link.move(MOVE, max(1, int(spread * 1000)))
        await asyncio.gather(*(_in_time(connection.flush(), 1) for connection in connections))
        self._check_left()
        try:
            async with asyncio.timeout(spread + _MOVE_SECONDS):
                await self._left.wait()
        except TimeoutError:
            _log.warning("machines not moved in time", count=len(self.table))

    async def close(self) -> None:
        """Send every machine a goodbye, and close its socket."""
        connections = list(self.table)
        for connection in connections:
            connection.link.stop("The service is stopping")
        await asyncio.gather(*(_in_time(connection.close(), 0.5) for connection in connections))

    async def _end(self, state: MachineState, code: CloseCode, reason: str) -> None:
        # Evicted before the database is awaited: a handshake under way then finds no connection and
        # withdraws its registration (`Gateway._serve`).
        connection = self.table.evict(state.id, code, reason)
        await self._presence.disconnect(state.account_id, state.id)
        if connection is None:
            await self._relay.close_elsewhere(state.id, code, reason)
            return
        self.forget(state.id, connection)
        await self._unregister_and_close(state.id, connection)

    def end_terminals(self, machine_id: str, connection: Connection) -> None:
        """Close the terminals on a socket; not only at its end, which may take a minute."""
        if connection.terminals is not None:
            self._terminals.detach(
                machine_id, connection.terminals, moved=connection.link.is_moving
            )

    def _check_left(self) -> None:
        if self.is_leaving and not self.table:
            self._left.set()


async def _in_time(work: Awaitable[None], seconds: float) -> None:
    """Send something to a machine; a frozen one must not delay the others."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except (ConnectionError, TimeoutError):
        _log.debug("goodbye not sent")
