"""Wakes those who wait for the events of an account, on this node and on all others.

    intake ── stored ──▶ LiveFeed ──▶ subscriptions of this node
                            │
                            └── topic of the account ──▶ LiveFeed of other nodes

A node subscribes only to the topics of accounts that have listeners on it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from outrider.service.cluster.messages import EventsStored, Message
from outrider.service.cluster.transport import TopicSet, Transport

_TOPIC = "account "


class Listener(Protocol):
    """Is woken when events of its account were stored."""

    def wake(self) -> None:
        """Read again. It must not block."""


class Subscription:
    """Waits for the events of one account; see `LiveFeed.subscribe`."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def changed(self, seconds: float) -> bool:
        """Wait until events are stored, at most so many seconds; return whether they were.

        Returns at once if events were stored since the last call returned, or since the
        subscription began. May return true without a new event. A lost message of another node
        is not noticed, so read the database again after a few seconds in any case.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """Make `changed` return."""
        self._woken.set()


class LiveFeed:
    """The subscriptions of this node to the events of accounts.

    Subscribe before reading the state that the events change: what changes after the read is
    then reported.

        with feed.subscribe(account_id) as subscription:
            while not await holds():
                await subscription.changed(5)
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._subscriptions: dict[str, set[Listener]] = {}
        self._topics = TopicSet(transport, _TOPIC, self._on_message)
        self._accounts_changed = asyncio.Event()
        self.is_draining = False
        """Whether the node stops: whoever waits must answer now, with what there is."""

    @contextmanager
    def subscribe(self, account_id: str) -> Iterator[Subscription]:
        """Subscribe to the events of an account while the context lasts."""
        subscription = Subscription()
        self.add(account_id, subscription)
        try:
            yield subscription
        finally:
            self.remove(account_id, subscription)

    def add(self, account_id: str, listener: Listener) -> None:
        """Add a listener to wake."""
        of_account = self._subscriptions.setdefault(account_id, set())
        of_account.add(listener)
        if len(of_account) == 1:
            self._accounts_changed.set()

    def remove(self, account_id: str, listener: Listener) -> None:
        """Stop waking a listener."""
        of_account = self._subscriptions.get(account_id, set())
        of_account.discard(listener)
        if not of_account and self._subscriptions.pop(account_id, None) is not None:
            self._accounts_changed.set()

    def stored(self, account_id: str) -> None:
        """Wake the subscriptions to an account, on all nodes: events were stored.

        Call it after the transaction is committed. It does not block.
        """
        self._wake(account_id)
        # A wake-up that is lost costs a few seconds: everybody who waits reads again after a while.
        if self._transport.is_shared:
            self._transport.post(_TOPIC + account_id, EventsStored(self._transport.node))

    def wake_all(self) -> None:
        """Wake every subscription of this node: messages of other nodes may have been lost."""
        for account_id in self._subscriptions:
            self._wake(account_id)

    def drain(self) -> None:
        """Wake every listener, because the node stops."""
        self.is_draining = True
        self.wake_all()

    async def run(self) -> None:
        """Receive the wake-ups of other nodes, until cancelled."""
        if not self._transport.is_shared:
            return
        try:
            while True:
                await self._accounts_changed.wait()
                self._accounts_changed.clear()
                for account_id in await self._topics.update(self._subscriptions):
                    self._wake(account_id)  # what was stored before was not reported
        finally:
            await self._topics.close()

    def _wake(self, account_id: str) -> None:
        for listener in self._subscriptions.get(account_id, ()):
            listener.wake()

    def _on_message(self, account_id: str, message: Message) -> None:
        if isinstance(message, EventsStored) and message.sender != self._transport.node:
            self._wake(account_id)
