"""Chat deltas: from the node of the machine to the streams that want them, on any node.

    machine ── Delta ──▶ Gateway ──▶ DeltaRelay ──▶ streams of this node
       ▲                                 │
       │                                 └── topic of the account ──▶ DeltaRelay ──▶ streams
       │                                                                (node B)
       └── WatchDeltas ── DeltaRelay ◀── DeltasWanted (topic of all nodes) ────┘

A node with streams that want deltas announces their accounts to all nodes, at once and then every
few seconds. The announcement is a lease: a node that dies stops asking. A machine sends deltas only
while a stream on any node wants them.

Deltas are never stored or repeated. Those that find no room in a queue are dropped: a `revision`
that skips numbers says so, and the complete message follows as an event.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from outrider.contract.frames import Delta, decode_from_daemon, encode
from outrider.service.batched import batched
from outrider.service.cluster.messages import DeltasWanted, Message, RelayedDelta
from outrider.service.cluster.transport import TopicSet, Transport

WATCH_INTERVAL: Final = 0.5
"""Seconds until a machine that has just connected is asked for deltas."""

ANNOUNCE_INTERVAL: Final = 2.0
"""Seconds between the announcements of a node."""

LEASE_SECONDS: Final = 6.0
"""Seconds for which an announcement holds."""

_ACCOUNTS_OF_MESSAGE: Final = 1000
# The topic on which nodes announce what they want.
_ANNOUNCEMENTS: Final = "deltas"

_TOPIC: Final = "deltas "


class DeltaStreams(Protocol):
    """The streams of this node that want deltas; `streams.EventStreams` has them."""

    delta_accounts_changed: asyncio.Event
    """Set when `delta_accounts` has changed."""

    def delta_accounts(self) -> Mapping[str, int]:
        """Return the accounts, with a number that grows with each stream that is opened."""

    def delta(self, account_id: str, daemon_id: str, delta: Delta, ide_id: str) -> None:
        """Send a delta to those that want it. It must not block."""


class DeltaRelay:
    """Exchanges deltas with the other nodes, and asks machines for them while clients want them.

    Each connection of a machine is asked once, and again when another stream has begun: the machine
    then sends the whole text of the messages that its agents are writing, which the new stream has
    missed.

    Args:
        streams: the streams of this node.
        connections: returns the number of each connection of an account here, by machine id.
        request_deltas: asks a machine for deltas of these sessions; None: of all, empty: of none.
            It must not block, nor lose a request while the connection lasts: no request is
            repeated.
    """

    def __init__(
        self,
        transport: Transport,
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
        self._transport = transport
        self._streams = streams
        self._connections = connections
        self._request_deltas = request_deltas
        self._changed = streams.delta_accounts_changed
        self._announced: dict[str, int] = {}
        self._announce_at = 0.0
        # For each account, the number of other nodes' requests, and when they expire.
        # The number of another node's request for an account, and until when it holds.
        self._leases: dict[tuple[str, str], tuple[int, float]] = {}
        # The requests for each account: a node, and the number of its newest stream.
        self._wanted: dict[str, set[tuple[str, int]]] = {}
        # The connection on which each machine was asked, and for which requests.
        self._requested: dict[str, tuple[int, set[tuple[str, int]]]] = {}
        self._topics = TopicSet(transport, _TOPIC, self._on_delta)

    def receive(self, account_id: str, machine_id: str, delta: Delta, ide_id: str) -> None:
        """Pass on a delta of a machine that is connected here.

        Args:
            ide_id: the target id by type of its session; empty if it is not known.
        """
        self._streams.delta(account_id, machine_id, delta, ide_id)
        if any(node != self._transport.node for node, _ in self._wanted.get(account_id, ())):
            message = RelayedDelta(self._transport.node, machine_id, encode(delta), ide_id)
            self._transport.post(_TOPIC + account_id, message, droppable=True)

    async def run(self) -> None:
        """Exchange deltas, until cancelled."""
        if not self._transport.is_shared:
            await self._keep_watching()
            return
        try:
            async with self._transport.subscribed(_ANNOUNCEMENTS, self._on_wanted):
                await self._keep_watching()
        finally:
            await self._topics.close()

    async def _keep_watching(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch_interval):
                    await self._changed.wait()
            self._changed.clear()
            if self._transport.is_shared:
                await self._announce(self._streams.delta_accounts())
            self._update_wanted()
            self._ask_machines()

    async def _announce(self, accounts: Mapping[str, int]) -> None:
        """Announce what this node wants, after each change and from time to time."""
        # Before the announcement, so that no delta that it causes is missed.
        await self._topics.update(accounts)
        now = asyncio.get_running_loop().time()
        if accounts == self._announced and now < self._announce_at:
            return
        self._announce_at = now + self._announce_interval
        changed = dict.fromkeys(self._announced.keys() - accounts.keys(), 0) | dict(accounts)
        self._announced = dict(accounts)
        for entries in batched(changed.items(), _ACCOUNTS_OF_MESSAGE):
            self._transport.post(_ANNOUNCEMENTS, DeltasWanted(self._transport.node, dict(entries)))

    def _on_wanted(self, announcement: Message) -> None:
        """Handle the announcement of a node."""
        if not isinstance(announcement, DeltasWanted) or announcement.node == self._transport.node:
            return
        until = asyncio.get_running_loop().time() + self._lease_seconds
        for account_id, number in announcement.accounts.items():
            key = account_id, announcement.node
            if self._leases.get(key, (0, 0.0))[0] != number:
                self._changed.set()
            self._leases[key] = number, until
            if not number:
                del self._leases[key]

    def _on_delta(self, account_id: str, message: Message) -> None:
        """Handle a delta of a machine that is connected to another node."""
        if not isinstance(message, RelayedDelta) or message.node == self._transport.node:
            return
        delta = decode_from_daemon(message.frame)
        if isinstance(delta, Delta):
            self._streams.delta(account_id, message.machine, delta, message.ide_id)

    def _update_wanted(self) -> None:
        """Find out which accounts have streams on any node that want deltas."""
        now = asyncio.get_running_loop().time()
        self._leases = {key: lease for key, lease in self._leases.items() if lease[1] > now}
        self._wanted = {
            account_id: {(self._transport.node, number)}
            for account_id, number in self._streams.delta_accounts().items()
        }
        for (account_id, node), (number, _) in self._leases.items():
            self._wanted.setdefault(account_id, set()).add((node, number))

    def _ask_machines(self) -> None:
        """Ask the machines that have to send deltas from now on, and those that have to stop."""
        before, self._requested = self._requested, {}
        for account_id, requests in self._wanted.items():
            for machine_id, connection in self._connections(account_id).items():
                self._requested[machine_id] = connection, requests
                asked_on, answered = before.get(machine_id, (None, set()))
                if asked_on != connection or not requests <= answered:
                    self._request_deltas(machine_id, None)
        for machine_id in before.keys() - self._requested.keys():
            self._request_deltas(machine_id, [])
