"""Typed messages between the nodes of a service, over a bus.

    publish   to every subscriber of a topic, now; returns how many there are
    send      the same, repeated in the background for a few seconds if the bus is down
    post      the same, in the background and in order; lost if the bus is down

Each subsystem has topics of its own: `node ID` and `terminals ID` for one node, a machine's id for
the node with its socket, `account ID` and `deltas ID` for the nodes with listeners of an account.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
import structlog

from outrider.service.cluster.bus import Bus, BusDown, MessageHandler
from outrider.service.cluster.messages import Message

MAX_RETRIED_BYTES: Final = 64 * 1024 * 1024
"""Messages of `send` that may wait for a retry; further ones are dropped."""

MAX_POSTED: Final = 1000
"""Messages of one topic that may wait; beyond them, those that can be dropped are dropped."""

# Bytes of one topic that may wait before droppable messages are dropped.
_MAX_DROPPABLE_BYTES: Final = 1024 * 1024

_SEND_RETRIES: Final = 5
# What a retry needs beside its message.
_RETRY_BYTES: Final = 1024

_log = structlog.get_logger(__name__)

Handler = Callable[[Message], None]
"""Handles a message, on the event loop's thread; it must not block."""


class _Queue:
    """The messages that are posted to one topic, and published in order by one task."""

    def __init__(self) -> None:
        # A dictionary, so that a message that is equal to a waiting one is sent once.
        self.waiting: dict[bytes, None] = {}
        self.size = 0
        self.has_room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether `MAX_POSTED` messages wait."""
        return len(self.waiting) >= MAX_POSTED


class Transport:
    """Sends messages to the other nodes and receives theirs.

    Args:
        retry_interval: seconds before a message that could not be sent is sent again.

    Attributes:
        node: the random id of this node.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        node: str | None = None,
        retry_interval: float = 1.0,
        max_retried_bytes: int = MAX_RETRIED_BYTES,
    ) -> None:
        self.node = node or secrets.token_hex(6)
        self.bus = bus
        self._retry_interval = retry_interval
        self._max_retried_bytes = max_retried_bytes
        self._retried_bytes = 0
        self._receivers: dict[str, MessageHandler] = {}
        self._queues: dict[str, _Queue] = {}
        self._retrying: set[asyncio.Task[None]] = set()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Message)

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may exist."""
        return self.bus.is_shared

    @property
    def is_up(self) -> bool:
        """Whether messages are received at this moment."""
        return self.bus.is_up

    async def subscribe(self, topic: str, handler: Handler) -> None:
        """Call `handler` with each message of a topic; after the return none is missed.

        A topic has one handler here. Does not raise: while the bus is down the subscription is
        kept, and renewed once it is up.
        """

        def receive(data: bytes) -> None:
            try:
                handler(self._decoder.decode(data))
            except Exception:  # noqa: BLE001  # a newer release's message must not end the bus
                _log.exception("message of another node failed", topic=topic)

        # A receiver for each subscription: if a topic is subscribed again while it is being
        # unsubscribed, the late end of the older one must not take the newer one away.
        self._receivers[topic] = receive
        await self.bus.subscribe(topic, receive)

    async def unsubscribe(self, topic: str) -> None:
        """Stop calling the topic's handler."""
        await self.bus.unsubscribe(topic, self._receivers.pop(topic))

    @asynccontextmanager
    async def subscribed(self, topic: str, handler: Handler) -> AsyncIterator[None]:
        """Subscribe to a topic while the context lasts."""
        await self.subscribe(topic, handler)
        try:
            yield
        finally:
            await self.unsubscribe(topic)

    async def publish(self, topic: str, message: Message) -> int:
        """Send a message to all subscribers of a topic; return their number.

        Raises:
            BusDown: the message may not have been sent.
        """
        return await self.bus.publish(topic, self._encoder.encode(message))

    async def send(self, topic: str, message: Message, *, retries: int = _SEND_RETRIES) -> None:
        """Send a message; while the bus is down, retry in the background for a few seconds."""
        data = self._encoder.encode(message)
        if await self._publish(topic, data) is not None or not retries:
            return
        size = len(data) + _RETRY_BYTES
        if self._retried_bytes + size > self._max_retried_bytes:
            _log.warning("message to another node dropped: too many wait", topic=topic, size=size)
            return
        self._retried_bytes += size
        task = asyncio.create_task(self._retry(topic, data, size, retries), name="retry a message")
        self._retrying.add(task)
        task.add_done_callback(self._retrying.discard)

    def post(
        self,
        topic: str,
        message: Message,
        *,
        droppable: bool = False,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        """Send a message soon, after those that were posted to this topic before.

        Args:
            droppable: drop the message if many wait already.
            on_failed: called if no node receives a message; those that wait behind it are dropped.
                It is the same for all messages of a topic.
        """
        data = self._encoder.encode(message)
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = _Queue()
            work = self._send_posted(topic, queue, on_failed)
            queue.task = asyncio.create_task(work, name="post messages")
        has_room = not queue.is_full and queue.size + len(data) <= _MAX_DROPPABLE_BYTES
        if data not in queue.waiting and (has_room or not droppable):
            queue.waiting[data] = None
            queue.size += len(data)

    async def wait_for_room(self, topic: str) -> None:
        """Return once fewer than `MAX_POSTED` messages to a topic wait."""
        while (queue := self._queues.get(topic)) is not None and queue.is_full:
            queue.has_room.clear()
            await queue.has_room.wait()

    def drop_posted(self, topic: str) -> None:
        """Drop the messages that wait for a topic."""
        queue = self._queues.pop(topic, None)
        if queue is not None:
            queue.has_room.set()
            if queue.task is not None:
                queue.task.cancel()

    async def close(self) -> None:
        """Drop all messages that wait, and close the bus."""
        for topic in list(self._queues):
            self.drop_posted(topic)
        for task in self._retrying:
            task.cancel()
        await self.bus.close()

    async def _send_posted(
        self, topic: str, queue: _Queue, on_failed: Callable[[], None] | None
    ) -> None:
        is_lost = False
        # One after the other: of two messages under way at once the later one could arrive first.
        while queue.waiting and not is_lost:
            data = next(iter(queue.waiting))
            del queue.waiting[data]
            queue.size -= len(data)
            if not queue.is_full:
                queue.has_room.set()
            is_lost = not await self._publish(topic, data) and on_failed is not None
        # Before `on_failed`, which may post to the topic again.
        del self._queues[topic]
        queue.has_room.set()
        if is_lost and on_failed is not None:
            on_failed()

    async def _retry(self, topic: str, data: bytes, size: int, retries: int) -> None:
        try:
            for _ in range(retries):
                await asyncio.sleep(self._retry_interval)
                if await self._publish(topic, data) is not None:
                    return
        finally:
            self._retried_bytes -= size

    async def _publish(self, topic: str, data: bytes) -> int | None:
        """Publish a message; return how many received it, None while the bus is down."""
        try:
            return await self.bus.publish(topic, data)
        except BusDown as error:
            _log.warning("publishing to other nodes failed", topic=topic, error=str(error))
            return None


class TopicSet:
    """Keeps this node subscribed to the topics of a changing set of names.

    Args:
        prefix: of the topics; a name follows it.
        handler: called with the name of a topic and each of its messages.
    """

    def __init__(
        self, transport: Transport, prefix: str, handler: Callable[[str, Message], None]
    ) -> None:
        self._transport = transport
        self._prefix = prefix
        self._handler = handler
        self._names: set[str] = set()

    async def update(self, names: Collection[str]) -> set[str]:
        """Subscribe to the topics of these names and no others; return those that are new."""
        removed, added = self._names - set(names), set(names) - self._names
        self._names = set(names)
        for name in removed:
            await self._transport.unsubscribe(self._prefix + name)
        await asyncio.gather(
            *(
                self._transport.subscribe(self._prefix + name, partial(self._handler, name))
                for name in added
            )
        )
        return added

    async def close(self) -> None:
        """Unsubscribe from all topics."""
        await self.update(())


class Lifetimes:
    """Names that live as long as other nodes report them.

    Silence is measured in the reports of this node: while it was frozen itself it received none,
    and it must not give up what was reported and waits to be read.

    Args:
        reports: how many reports of this node a name outlives without one of another node.
        on_lost: called with a name that was not reported.
    """

    def __init__(self, reports: int, on_lost: Callable[[str], None]) -> None:
        self._reports = reports
        self._on_lost = on_lost
        self._silence: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Watch a name, which was reported at this moment."""
        self._silence[name] = 0

    def remove(self, name: str) -> None:
        """Watch a name no more."""
        self._silence.pop(name, None)

    def reported(self, names: Iterable[str]) -> None:
        """Note that other nodes have reported these names."""
        self._silence |= dict.fromkeys(self._silence.keys() & set(names), 0)

    def tick(self) -> None:
        """Note a report of this node, and give up the names that are silent for too long."""
        for name in list(self._silence):
            self._silence[name] += 1
            if self._silence[name] > self._reports:
                self._on_lost(name)
