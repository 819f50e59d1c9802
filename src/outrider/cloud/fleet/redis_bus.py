"""The bus of many nodes: sharded publish/subscribe and hashes in Redis.

Sharded, so that on a Redis Cluster a message goes to one server and not to all of them. The
boards expire, so that nothing stays behind of accounts whose machines have gone.
"""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from outrider.cloud.fleet.bus import BusDown, Hear
from outrider.cloud.store.redis import FAILURES, Redis, RedisAway
from outrider.cloud.store.redis_subscription import Message, Subscription

_BOARD_SECONDS: Final = 900
"""How long a board stays after its last entry; every machine reports more often than that."""

_LARGE: Final = 256 * 1024
"""Larger messages are left in a key for their listener to fetch: Redis cuts the connection of
one that has megabytes waiting for it."""

_LARGE_SECONDS: Final = 60
_SUBSCRIBE_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 3.0
"""After this the bus speaks to itself; hearing nothing of that, it connects anew."""

_HERE: Final = b"="
_FETCH: Final = b"@"

_POST: Final = """
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and tonumber(string.match(old, '^%d+')) > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 1
"""
_WITHDRAW: Final = """
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and tonumber(string.match(old, '^%d+')) > tonumber(ARGV[2]) then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""

_log = structlog.get_logger(__name__)


class RedisBus:
    """The bus of the nodes that share a Redis; see `bus.Bus` for what it promises."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._hears: dict[str, list[Hear]] = {}
        self._names: dict[bytes, str] = {}
        self._leaving: Counter[str] = Counter()
        self._confirming: dict[str, asyncio.Future[None]] = {}
        self._subscription: Subscription | None = None
        self._down: Callable[[], None] = lambda: None
        self._up: Callable[[], Awaitable[None]] | None = None
        self._fetching: set[asyncio.Task[None]] = set()
        self._own = redis.key("bus", secrets.token_hex(8))

    @property
    def is_shared(self) -> bool:
        """Whether there may be other nodes on it."""
        return True

    @property
    def is_up(self) -> bool:
        """Whether messages are heard at this moment."""
        return self._subscription is not None

    def on_change(self, down: Callable[[], None], up: Callable[[], Awaitable[None]]) -> None:
        """Have it told when messages may have been lost, and when they come again."""
        self._down, self._up = down, up

    async def listen(self, channel: str, hear: Hear) -> None:
        """Have the channel's messages heard."""
        name = self._redis.key("channel", channel)
        hears = self._hears.setdefault(name, [])
        hears.append(hear)
        if len(hears) > 1 or self._subscription is None:
            return
        self._names[name.encode()] = name
        confirmed = self._confirming[name] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                await self._subscription.subscribe([name])
                await confirmed
        except FAILURES as error:
            _log.warning("not subscribed yet", channel=channel, error=str(error))
        finally:
            self._confirming.pop(name, None)

    async def unlisten(self, channel: str, hear: Hear) -> None:
        """Have them heard no more."""
        name = self._redis.key("channel", channel)
        hears = self._hears.get(name, [])
        if hear not in hears:
            return
        hears.remove(hear)
        if hears:
            return
        del self._hears[name]
        if self._subscription is not None:
            with suppress(*FAILURES):  # a connection that is lost is subscribed no more
                self._leaving[name] += 1
                await self._subscription.unsubscribe(name)

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all who listen; return how many they are."""
        name = self._redis.key("channel", channel)
        if len(message) <= _LARGE:
            return int(await self._ask("SPUBLISH", name, _HERE + message))
        key = self._redis.key("large", secrets.token_hex(16))
        await self._ask("SET", key, message, "EX", _LARGE_SECONDS)
        return int(await self._ask("SPUBLISH", name, _FETCH + key.encode()))

    async def post(self, board: str, name: str, version: int, entry: bytes) -> None:
        """Write an entry on a board."""
        key = self._redis.key("board", board)
        await self._ask("EVAL", _POST, 1, key, name, version, entry, _BOARD_SECONDS)

    async def withdraw(self, board: str, name: str, version: int) -> None:
        """Take an entry off a board."""
        await self._ask("EVAL", _WITHDRAW, 1, self._redis.key("board", board), name, version)

    async def entry(self, board: str, name: str) -> bytes | None:
        """Return an entry of a board."""
        found = await self._ask("HGET", self._redis.key("board", board), name)
        return None if found is None else _without_version(found)

    async def entries(self, board: str) -> Mapping[str, bytes]:
        """Return all the entries of a board, by name."""
        found = await self._ask("HGETALL", self._redis.key("board", board))
        pairs = found.items() if isinstance(found, dict) else zip(*[iter(found)] * 2, strict=True)
        return {name.decode(): _without_version(entry) for name, entry in pairs}

    async def check(self) -> None:
        """Ask whether it works."""
        try:
            await self._redis.ping()
        except RedisAway as error:
            raise BusDown(str(error)) from error

    async def run(self) -> None:
        """Carry messages, until cancelled; made anew whenever the connection is lost."""
        pause, told = 0.0, ""
        while True:
            try:
                await self._carry()
            except FAILURES as error:
                was_up, self._subscription = self._subscription is not None, None
                if was_up or told != str(error):
                    told = str(error)
                    _log.warning("the bus is down: Redis cannot be reached", error=told)
                if was_up:
                    pause = 0.0
                    self._down()
            pause = min(2.0, pause * 2 + 0.1)
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # spread only

    async def close(self) -> None:
        """Let go of what it holds."""
        for task in self._fetching:
            task.cancel()
        await self._redis.close()

    async def _carry(self) -> None:
        """Subscribe to everything, then hand on what comes until the connection is lost."""
        subscription = await self._redis.subscription()
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS * 5):
                await self._subscribe(subscription)
            self._redis.try_again()
            _log.info("the bus is up", channels=len(self._hears))
            if self._up is not None:
                await self._up()
            await self._hand_on(subscription)
        finally:
            await subscription.close()

    async def _subscribe(self, subscription: Subscription) -> None:
        """Subscribe to the channels that are listened to; all are confirmed at the return."""
        self._names = {}
        self._leaving.clear()
        while names := self._unsubscribed():  # more may come meanwhile
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
                    self._take(message)
        self._subscription = subscription

    def _unsubscribed(self) -> list[str]:
        return [name for name in (self._own, *self._hears) if name.encode() not in self._names]

    async def _hand_on(self, subscription: Subscription) -> None:
        is_asked = False
        while True:
            message = await subscription.next(_SILENCE_SECONDS)
            if message is not None:
                is_asked = False
                self._take(message)
            elif is_asked:
                raise TimeoutError("nothing is heard any more")
            else:
                is_asked = True
                with suppress(RedisAway):
                    await self._redis.ask("SPUBLISH", self._own, _HERE)

    def _take(self, message: Message) -> None:
        name = self._names.get(message["channel"])
        if name is None:
            return
        if message["type"] == "smessage":
            data: bytes = message["data"]
            if data[:1] == _FETCH:
                task = asyncio.create_task(self._fetch(name, data[1:]), name="fetch a message")
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
            else:
                self._hear(name, data[1:])
        elif message["type"] == "ssubscribe":
            confirmed = self._confirming.get(name)
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
        elif self._leaving[name]:
            self._leaving[name] -= 1
            if name not in self._hears:
                del self._names[message["channel"]]
        else:
            raise ConnectionError("a channel has moved to another server of the cluster")

    async def _fetch(self, name: str, key: bytes) -> None:
        """Hand on a large message. It stays for its time: others may listen too."""
        try:
            data = await self._redis.ask("GET", key)
        except RedisAway as error:
            _log.warning("a large message is lost", error=str(error))
            return
        if data is not None:
            self._hear(name, data)

    def _hear(self, name: str, data: bytes) -> None:
        for hear in list(self._hears.get(name, ())):
            hear(data)

    async def _ask(self, *command: str | bytes | int) -> Any:  # as Redis answers it
        try:
            return await self._redis.ask(*command)
        except RedisAway as error:
            raise BusDown(str(error)) from error


def _without_version(entry: bytes) -> bytes:
    return entry.partition(b":")[2]
