"""The bus of many nodes: sharded publish/subscribe and hashes in Redis.

Publish/subscribe is sharded so that on a Redis Cluster a message goes to one server, not to all.
The directories expire, so that accounts without machines use no memory.
"""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from outrider.service.cluster.bus import Bus, BusDown, MessageHandler
from outrider.service.cluster.redis import FAILURES, Redis, RedisUnavailable
from outrider.service.cluster.redis_subscription import Message, Subscription

# Expiry of a directory after its last write; every machine reports more often than that.
_DIRECTORY_SECONDS: Final = 900

# Larger messages are stored in a key that subscribers fetch: Redis disconnects a subscriber with
# megabytes of unread output.
_LARGE: Final = 256 * 1024

_LARGE_SECONDS: Final = 60
_SUBSCRIBE_SECONDS: Final = 2.0
# After this silence the bus publishes to itself; if that does not arrive, it reconnects.
_SILENCE_SECONDS: Final = 3.0

_INLINE: Final = b"="
_IN_KEY: Final = b"@"

_PUT_SCRIPT: Final = """
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and tonumber(string.match(old, '^%d+')) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""
_REMOVE_SCRIPT: Final = """
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and tonumber(string.match(old, '^%d+')) > tonumber(ARGV[2]) then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""

_log = structlog.get_logger(__name__)


class RedisBus(Bus):
    """The bus of the nodes that share a Redis; see `bus.Bus` for its guarantees.

    Args:
        on_down: called when messages may be lost.
        on_up: called when messages are received, at the start too.
    """

    def __init__(
        self, redis: Redis, on_down: Callable[[], None], on_up: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(is_shared=True)
        self.is_up = False
        self._redis = redis
        self._handlers: dict[str, list[MessageHandler]] = {}
        self._names: dict[bytes, str] = {}
        self._unsubscribing: Counter[str] = Counter()
        self._confirming: dict[str, asyncio.Future[None]] = {}
        self._subscription: Subscription | None = None
        self._on_down = on_down
        self._on_up = on_up
        self._fetching: set[asyncio.Task[None]] = set()
        self._own_channel = redis.key("bus", secrets.token_hex(8))

    async def subscribe(self, channel: str, handler: MessageHandler) -> None:
        """Call `handler` with each message of the channel."""
        name = self._redis.key("channel", channel)
        handlers = self._handlers.setdefault(name, [])
        handlers.append(handler)
        if len(handlers) > 1 or self._subscription is None:
            return
        self._names[name.encode()] = name
        confirmed = self._confirming[name] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                await self._subscription.subscribe([name])
                await confirmed
        except FAILURES as error:
            # The handler stays: a late confirmation, or the next connection, subscribes it.
            _log.warning("subscribing postponed", channel=channel, error=str(error))
        finally:
            self._confirming.pop(name, None)

    async def unsubscribe(self, channel: str, handler: MessageHandler) -> None:
        """Stop calling `handler` with the channel's messages."""
        name = self._redis.key("channel", channel)
        handlers = self._handlers.get(name, [])
        if handler not in handlers:
            return
        handlers.remove(handler)
        if handlers:
            return
        del self._handlers[name]
        if self._subscription is not None:
            with suppress(*FAILURES):  # a lost connection has no subscriptions
                # Before the command is sent: its confirmation may be read while this waits.
                self._unsubscribing[name] += 1
                await self._subscription.unsubscribe(name)

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all subscribers; return their number."""
        name = self._redis.key("channel", channel)
        if len(message) <= _LARGE:
            return int(await self._execute("SPUBLISH", name, _INLINE + message))
        key = self._redis.key("large", secrets.token_hex(16))
        await self._execute("SET", key, message, "EX", _LARGE_SECONDS)
        subscribers = int(await self._execute("SPUBLISH", name, _IN_KEY + key.encode()))
        if not subscribers:
            with suppress(BusDown):  # it expires
                await self._execute("DEL", key)
        return subscribers

    async def put(self, directory: str, name: str, version: int, entry: bytes) -> None:
        """Write an entry of a directory."""
        key = self._redis.key("board", directory)
        await self._execute("EVAL", _PUT_SCRIPT, 1, key, name, version, entry, _DIRECTORY_SECONDS)

    async def remove(self, directory: str, name: str, version: int) -> None:
        """Remove an entry from a directory."""
        await self._execute(
            "EVAL", _REMOVE_SCRIPT, 1, self._redis.key("board", directory), name, version
        )

    async def get(self, directory: str, name: str) -> bytes | None:
        """Return an entry of a directory."""
        entry = await self._execute("HGET", self._redis.key("board", directory), name)
        return None if entry is None else _without_version(entry)

    async def items(self, directory: str) -> Mapping[str, bytes]:
        """Return all the entries of a directory, by name."""
        entries = await self._execute("HGETALL", self._redis.key("board", directory))
        return {name.decode(): _without_version(entry) for name, entry in entries.items()}

    async def check(self) -> None:
        """Check that Redis answers.

        Raises:
            BusDown: it does not.
        """
        try:
            await self._redis.ping()
        except RedisUnavailable as error:
            raise BusDown(str(error)) from error

    async def run(self) -> None:
        """Receive messages until cancelled, reconnecting with a backoff after each loss."""
        try:
            await self._keep_connected()
        finally:
            # Its connections are closed: unsubscribing would open others, to a Redis that may hang.
            self._set_subscription(None)

    async def _keep_connected(self) -> None:
        pause, logged = 0.0, ""
        while True:
            try:
                await self._connect()
            except FAILURES as error:
                was_up = self.is_up
                self._set_subscription(None)
                if was_up or logged != str(error):
                    logged = str(error)
                    _log.warning("bus down, Redis unavailable", error=logged)
                if was_up:
                    pause = 0.0
                    self._on_down()
            pause = min(2.0, pause * 2 + 0.1)
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # spread only

    async def close(self) -> None:
        """Cancel fetches of large messages and close the connections to Redis."""
        for task in self._fetching:
            task.cancel()
        await self._redis.close()

    async def _connect(self) -> None:
        """Subscribe to all channels, then dispatch messages until the connection is lost."""
        subscription = await self._redis.subscription()
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS * 5):
                await self._subscribe(subscription)
            self._redis.try_again()
            _log.info("bus up", channels=len(self._handlers))
            await self._on_up()
            await self._dispatch(subscription)
        finally:
            await subscription.close()

    async def _subscribe(self, subscription: Subscription) -> None:
        """Subscribe to the channels with handlers; all are confirmed at the return.

        A channel whose last handler was removed meanwhile is unsubscribed from: publishers would
        count a subscriber that does nothing with their messages.
        """
        self._names = {}
        self._unsubscribing.clear()
        while names := self._unsubscribed():  # more may be added meanwhile
            self._names |= {name.encode(): name for name in names}
            await subscription.subscribe(names)
            unconfirmed = set(names)
            while unconfirmed:
                message = await subscription.next(_SUBSCRIBE_SECONDS)
                if message is None:
                    raise TimeoutError("no subscription in time")
                if message["type"] == "ssubscribe":
                    unconfirmed.discard(message["channel"].decode())
                else:
                    self._handle(message)
        # From here on `subscribe` and `unsubscribe` use the new connection themselves.
        self._set_subscription(subscription)
        for name in list(self._names.values()):
            # From now on `unsubscribe` sends the command itself, and has counted it then.
            if not self._is_needed(name) and not self._unsubscribing[name]:
                self._unsubscribing[name] += 1
                await subscription.unsubscribe(name)

    def _set_subscription(self, subscription: Subscription | None) -> None:
        self._subscription = subscription
        self.is_up = subscription is not None

    def _is_needed(self, name: str) -> bool:
        return name == self._own_channel or name in self._handlers

    def _unsubscribed(self) -> list[str]:
        return [
            name
            for name in (self._own_channel, *self._handlers)
            if name.encode() not in self._names
        ]

    async def _dispatch(self, subscription: Subscription) -> None:
        is_probing = False
        while True:
            message = await subscription.next(_SILENCE_SECONDS)
            if message is not None:
                is_probing = False
                self._handle(message)
            elif is_probing:
                raise TimeoutError("no messages received")
            else:
                is_probing = True
                with suppress(RedisUnavailable):
                    await self._redis.execute("SPUBLISH", self._own_channel, _INLINE)

    def _handle(self, message: Message) -> None:
        name = self._names.get(message["channel"])
        if name is None:
            return
        if message["type"] == "smessage":
            data: bytes = message["data"]
            if data[:1] == _IN_KEY:
                task = asyncio.create_task(self._fetch(name, data[1:]), name="fetch a message")
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
            else:
                self._call_handlers(name, data[1:])
        elif message["type"] == "ssubscribe":
            confirmed = self._confirming.get(name)
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
        elif self._unsubscribing[name]:
            self._unsubscribing[name] -= 1
            # With a handler it was subscribed again in the meantime, and that is confirmed next.
            if name not in self._handlers:
                del self._names[message["channel"]]
        else:
            raise ConnectionError("a channel has moved to another server of the cluster")

    async def _fetch(self, name: str, key: bytes) -> None:
        """Dispatch a large message; its key stays for other subscribers until it expires."""
        try:
            data = await self._redis.execute("GET", key)
        except RedisUnavailable as error:
            _log.warning("large message lost", error=str(error))
            return
        if data is not None:
            self._call_handlers(name, data)

    def _call_handlers(self, name: str, data: bytes) -> None:
        for handler in list(self._handlers.get(name, ())):
            handler(data)

    async def _execute(self, *command: str | bytes | int) -> Any:  # as Redis answers it
        try:
            return await self._redis.execute(*command)
        except RedisUnavailable as error:
            raise BusDown(str(error)) from error


def _without_version(entry: bytes) -> bytes:
    return entry.partition(b":")[2]
