"""Wakes those who wait for the events of an account, on this node and on all others.

    intake ── stored ──▶ LiveFeed ──▶ subscriptions of this node
                            │
                            └── channel of the account ──▶ LiveFeed of other nodes

A node subscribes only to the channels of accounts that have listeners on it.
"""

import asyncio
import secrets
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec
import structlog

from outrider.service.cluster.bus import Bus, BusDown, MessageHandler

_AT_ONCE: Final = 200
"""Channels that are subscribed, or messages that are published, concurrently."""

_log = structlog.get_logger(__name__)


class EventsStored(msgspec.Struct, tag="stored", array_like=True, frozen=True):
    """Message between nodes: events of the channel's account were stored.

    `sender` is the random id of a `LiveFeed`, not that of its node.
    """

    sender: str


_decoder: Final[msgspec.msgpack.Decoder[EventsStored]] = msgspec.msgpack.Decoder(EventsStored)
_encoder: Final = msgspec.msgpack.Encoder()


class Listener(Protocol):
    """Is woken when events of its account were stored."""

    def wake(self) -> None:
        """Read again. It must not block."""


class Subscription:
    """Waits for the events of one account; a context, at whose end it is unsubscribed."""

    __slots__ = ("_account_id", "_feed", "_woken")

    def __init__(self, feed: "LiveFeed", account_id: str) -> None:
        self._feed = feed
        self._account_id = account_id
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        self._feed.add(self._account_id, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._feed.remove(self._account_id, self)

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

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sender = secrets.token_hex(6)
        self._subscriptions: dict[str, set[Listener]] = {}
        self._handlers: dict[str, MessageHandler] = {}
        self._channels_changed = asyncio.Event()
        self._unpublished: set[str] = set()
        self._has_unpublished = asyncio.Event()
        self._is_draining = False

    @property
    def is_draining(self) -> bool:
        """Whether the node stops: whoever waits must answer now, with what there is."""
        return self._is_draining

    def subscribe(self, account_id: str) -> Subscription:
        """Return a subscription to the events of an account, for use in `with`."""
        return Subscription(self, account_id)

    def add(self, account_id: str, listener: Listener) -> None:
        """Add a listener to wake; a `Subscription` adds itself."""
        of_account = self._subscriptions.setdefault(account_id, set())
        of_account.add(listener)
        if len(of_account) == 1:
            self._channels_changed.set()

    def remove(self, account_id: str, listener: Listener) -> None:
        """Stop waking a listener."""
        of_account = self._subscriptions.get(account_id, set())
        of_account.discard(listener)
        if not of_account and self._subscriptions.pop(account_id, None) is not None:
            self._channels_changed.set()

    def stored(self, account_id: str) -> None:
        """Wake the subscriptions to an account, on all nodes: events were stored.

        Call it after the transaction is committed. It does not block.
        """
        self._wake(account_id)
        if self._bus.is_shared:
            self._unpublished.add(account_id)
            self._has_unpublished.set()

    def wake_all(self) -> None:
        """Wake every subscription of this node: messages of other nodes may have been lost."""
        for account_id in self._subscriptions:
            self._wake(account_id)

    def drain(self) -> None:
        """Wake every listener, because the node stops."""
        self._is_draining = True
        self.wake_all()

    async def run(self) -> None:
        """Exchange wake-ups with the other nodes, until cancelled."""
        if not self._bus.is_shared:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_channels(), name="subscribe to accounts")
            tasks.create_task(self._keep_publishing(), name="publish stored events")

    def _wake(self, account_id: str) -> None:
        for listener in self._subscriptions.get(account_id, ()):
            listener.wake()

    async def _keep_channels(self) -> None:
        """Subscribe to the channels of the accounts that have listeners on this node."""
        try:
            while True:
                await self._channels_changed.wait()
                self._channels_changed.clear()
                for account_id in [one for one in self._handlers if one not in self._subscriptions]:
                    await self._bus.unsubscribe(
                        _channel(account_id), self._handlers.pop(account_id)
                    )
                new = [one for one in self._subscriptions if one not in self._handlers]
                for start in range(0, len(new), _AT_ONCE):
                    part = new[start : start + _AT_ONCE]
                    await asyncio.gather(*(self._open_channel(one) for one in part))
        finally:
            for account_id, handler in self._handlers.items():
                await self._bus.unsubscribe(_channel(account_id), handler)

    async def _open_channel(self, account_id: str) -> None:
        handler = self._handlers[account_id] = partial(self._on_message, account_id)
        await self._bus.subscribe(_channel(account_id), handler)
        self._wake(account_id)  # what was stored before the subscription was not reported

    async def _keep_publishing(self) -> None:
        message = _encoder.encode(EventsStored(self._sender))
        while True:
            await self._has_unpublished.wait()
            self._has_unpublished.clear()
            accounts, self._unpublished = list(self._unpublished), set()
            for start in range(0, len(accounts), _AT_ONCE):
                part = accounts[start : start + _AT_ONCE]
                await asyncio.gather(*(self._publish(one, message) for one in part))

    async def _publish(self, account_id: str, message: bytes) -> None:
        try:
            await self._bus.publish(_channel(account_id), message)
        except BusDown as error:  # the others read again within seconds
            _log.debug("wake-up not published", account=account_id, error=str(error))

    def _on_message(self, account_id: str, data: bytes) -> None:
        if _decoder.decode(data).sender != self._sender:
            self._wake(account_id)


def _channel(account_id: str) -> str:
    return f"account {account_id}"
