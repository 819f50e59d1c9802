"""Chat deltas: from the node of the machine to the streams that want them, on any node.

    machine ── Delta ──▶ Gateway ──▶ DeltaRelay ──▶ streams of this node
       ▲                                 │
       │                                 └── channel of the account ──▶ DeltaRelay ──▶ streams
       │                                                                (node B)
       └── WatchDeltas ── DeltaRelay ◀── DeltasWanted (channel of all nodes) ──┘

A node with streams that want deltas announces their accounts to all nodes, at once and then every
few seconds. The announcement is a lease: a node that dies stops asking. A machine sends deltas only
while a stream on any node wants them.

Deltas are never stored or repeated. Those that find no room in a queue are dropped: a `revision`
that skips numbers says so, and the complete message follows as an event.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from outrider.contract.frames import Delta, decode_from_daemon, encode
from outrider.service.batched import batched
from outrider.service.cluster.bus import Bus, BusDown, MessageHandler

WATCH_INTERVAL: Final = 0.5
"""Seconds until a machine that has just connected is asked for deltas."""

ANNOUNCE_INTERVAL: Final = 2.0
"""Seconds between the announcements of a node."""

LEASE_SECONDS: Final = 6.0
"""Seconds for which an announcement holds."""

MAX_UNPUBLISHED: Final = 1000
MAX_UNPUBLISHED_BYTES: Final = 1024 * 1024
"""Deltas that may wait to be published to other nodes; further ones are dropped."""

_ACCOUNTS_OF_MESSAGE: Final = 1000
_AT_ONCE: Final = 100
"""Deltas that are published, or channels that are subscribed, together."""

_ANNOUNCEMENTS: Final = "deltas"
"""The channel on which nodes announce what they want."""

_log = structlog.get_logger(__name__)


# The messages between nodes. Their tags and the order of their fields are the wire format, which
# nodes of two releases share during a rolling update.


class DeltasWanted(msgspec.Struct, tag="wanted", array_like=True, frozen=True):
    """To all nodes: this node wants the deltas of these accounts.

    The number of an account grows with each stream that is opened; 0 means: no longer wanted.
    """

    node: str
    accounts: dict[str, int]


class RelayedDelta(msgspec.Struct, tag="delta", array_like=True, frozen=True):
    """To the nodes that want the deltas of an account: a single delta.

    `ide_id` is the target id by type of its session; empty from a node of an older release.
    """

    node: str
    machine: str
    frame: bytes
    ide_id: str = ""


_wanted_decoder: Final = msgspec.msgpack.Decoder(DeltasWanted)
_delta_decoder: Final = msgspec.msgpack.Decoder(RelayedDelta)
_encoder: Final = msgspec.msgpack.Encoder()

Requests = frozenset[tuple[str, int]]
"""The requests for the deltas of an account: a node, and its number of streams opened so far."""


class DeltaStreams(Protocol):
    """The streams of this node that want deltas; `streams.EventStreams` has them."""

    delta_accounts_changed: asyncio.Event
    """Set when `delta_accounts` has changed."""

    def delta_accounts(self) -> Mapping[str, int]:
        """Return the accounts, with a number that grows with each stream that is opened."""

    def delta(self, account_id: str, daemon_id: str, delta: Delta, ide_id: str) -> None:
        """Send a delta to those that want it. It must not block."""


class DeltaWatch:
    """Asks the machines of this node for deltas.

    Each connection is asked once, and again when another stream has begun: the machine then sends
    the whole text of the messages that its agents are writing, which the new stream has missed.

    Args:
        wanted: returns the accounts of which deltas are wanted, and by which requests.
        connections: returns the number of each connection of an account here, by machine id.
        request_deltas: asks a machine for deltas of these sessions; None: of all, empty: of none.
            It must not block, nor lose a request while the connection lasts: no request is
            repeated.
    """

    def __init__(
        self,
        wanted: Callable[[], Mapping[str, Requests]],
        connections: Callable[[str], Mapping[str, int]],
        request_deltas: Callable[[str, list[str] | None], None],
    ) -> None:
        self._wanted = wanted
        self._connections = connections
        self._request_deltas = request_deltas
        self._requested: dict[str, tuple[int, Requests]] = {}

    def update(self) -> None:
        """Ask the machines that have to send deltas from now on, and those that have to stop."""
        before, self._requested = self._requested, {}
        for account_id, requests in self._wanted().items():
            for machine_id, connection in self._connections(account_id).items():
                self._requested[machine_id] = connection, requests
                asked_on, answered = before.get(machine_id, (None, Requests()))
                if asked_on != connection or not requests <= answered:
                    self._request_deltas(machine_id, None)
        for machine_id in before.keys() - self._requested.keys():
            self._request_deltas(machine_id, [])


class DeltaRelay:
    """Exchanges deltas with the other nodes, and asks machines for them while clients want them.

    Args:
        node: the id of this node.
        streams: the streams of this node.
        connections: see `DeltaWatch`.
        request_deltas: see `DeltaWatch`.
        watch_interval, announce_interval, lease_seconds: see the constants.
    """

    def __init__(
        self,
        bus: Bus,
        node: str,
        streams: DeltaStreams,
        connections: Callable[[str], Mapping[str, int]],
        request_deltas: Callable[[str, list[str] | None], None],
        *,
        watch_interval: float = WATCH_INTERVAL,
        announce_interval: float = ANNOUNCE_INTERVAL,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._watch_interval = watch_interval
        self._announce_interval = announce_interval
        self._lease_seconds = lease_seconds
        self._bus = bus
        self._node = node
        self._streams = streams
        self._watch = DeltaWatch(self._wanted, connections, request_deltas)
        self._changed = streams.delta_accounts_changed
        self._announced: dict[str, int] = {}
        self._announce_at = 0.0
        self._leases: dict[str, dict[str, tuple[int, float]]] = {}
        """For each account, the number of other nodes' requests, and when they expire."""
        self._handlers: dict[str, MessageHandler] = {}
        self._unpublished: deque[tuple[str, bytes]] = deque()
        self._unpublished_bytes = 0
        self._has_unpublished = asyncio.Event()

    def receive(self, account_id: str, machine_id: str, delta: Delta, ide_id: str) -> None:
        """Pass on a delta of a machine that is connected here.

        Args:
            ide_id: the target id by type of its session; empty if it is not known.
        """
        self._streams.delta(account_id, machine_id, delta, ide_id)
        if account_id not in self._leases:
            return
        message = _encoder.encode(RelayedDelta(self._node, machine_id, encode(delta), ide_id))
        if (
            len(self._unpublished) < MAX_UNPUBLISHED
            and self._unpublished_bytes + len(message) <= MAX_UNPUBLISHED_BYTES
        ):
            self._unpublished.append((account_id, message))
            self._unpublished_bytes += len(message)
            self._has_unpublished.set()

    async def run(self) -> None:
        """Exchange deltas, until cancelled."""
        if not self._bus.is_shared:
            await self._keep_watching()
            return
        await self._bus.subscribe(_ANNOUNCEMENTS, self._on_wanted)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_watching(), name="ask for deltas")
                tasks.create_task(self._keep_publishing(), name="publish deltas")
        finally:
            await self._bus.unsubscribe(_ANNOUNCEMENTS, self._on_wanted)
            for account_id, handler in self._handlers.items():
                await self._bus.unsubscribe(_channel(account_id), handler)

    async def _keep_watching(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_interval):
                    await self._changed.wait()
            self._changed.clear()
            if self._bus.is_shared:
                await self._announce(self._streams.delta_accounts())
            self._watch.update()

    async def _announce(self, accounts: Mapping[str, int]) -> None:
        """Announce what has changed; from time to time, everything."""
        for account_id in self._handlers.keys() - accounts.keys():
            await self._bus.unsubscribe(_channel(account_id), self._handlers.pop(account_id))
        # Before the announcement, so that no delta that it causes is missed.
        for batch in batched(accounts.keys() - self._handlers.keys(), _AT_ONCE):
            await asyncio.gather(*(self._open_channel(one) for one in batch))
        changed = dict.fromkeys(self._announced.keys() - accounts.keys(), 0)
        now = asyncio.get_running_loop().time()
        if now >= self._announce_at:
            self._announce_at = now + self._announce_interval
            changed |= accounts
        else:
            changed |= dict(accounts.items() - self._announced.items())
        self._announced = dict(accounts)
        for entries in batched(changed.items(), _ACCOUNTS_OF_MESSAGE):
            message = _encoder.encode(DeltasWanted(self._node, dict(entries)))
            await self._publish(_ANNOUNCEMENTS, message)

    async def _open_channel(self, account_id: str) -> None:
        handler = self._handlers[account_id] = partial(self._on_delta, account_id)
        await self._bus.subscribe(_channel(account_id), handler)

    async def _keep_publishing(self) -> None:
        """Publish deltas in their order; while the bus is down they are dropped."""
        while True:
            await self._has_unpublished.wait()
            self._has_unpublished.clear()
            while self._unpublished:
                size = min(_AT_ONCE, len(self._unpublished))
                batch = [self._unpublished.popleft() for _ in range(size)]
                self._unpublished_bytes -= sum(len(message) for _, message in batch)
                # The commands of one turn of the event loop are sent in their order.
                await asyncio.gather(*(self._publish(_channel(one), data) for one, data in batch))

    async def _publish(self, channel: str, message: bytes) -> None:
        try:
            await self._bus.publish(channel, message)
        except BusDown as error:
            _log.debug("deltas not published", channel=channel, error=str(error))

    def _on_wanted(self, data: bytes) -> None:
        """Handle the announcement of a node."""
        announcement = _wanted_decoder.decode(data)
        if announcement.node == self._node:
            return
        until = asyncio.get_running_loop().time() + self._lease_seconds
        for account_id, number in announcement.accounts.items():
            leases = self._leases.get(account_id, {})
            if leases.get(announcement.node, (0, 0.0))[0] != number:
                self._changed.set()
            if number:
                self._leases.setdefault(account_id, leases)[announcement.node] = number, until
            else:
                leases.pop(announcement.node, None)
                if not leases:
                    self._leases.pop(account_id, None)

    def _on_delta(self, account_id: str, data: bytes) -> None:
        """Handle a delta of a machine that is connected to another node."""
        relayed = _delta_decoder.decode(data)
        if relayed.node == self._node:
            return
        delta = decode_from_daemon(relayed.frame)
        if isinstance(delta, Delta):
            self._streams.delta(account_id, relayed.machine, delta, relayed.ide_id)

    def _wanted(self) -> dict[str, Requests]:
        """Return the accounts with streams on any node that want deltas."""
        now = asyncio.get_running_loop().time()
        for account_id, leases in list(self._leases.items()):
            for node, (_, until) in list(leases.items()):
                if until <= now:
                    del leases[node]
            if not leases:
                del self._leases[account_id]
        wanted: dict[str, Requests] = {}
        for account_id, number in self._streams.delta_accounts().items():
            wanted[account_id] = frozenset({(self._node, number)})
        for account_id, leases in self._leases.items():
            theirs = frozenset((node, number) for node, (number, _) in leases.items())
            wanted[account_id] = wanted.get(account_id, Requests()) | theirs
        return wanted


def _channel(account_id: str) -> str:
    return f"deltas {account_id}"
