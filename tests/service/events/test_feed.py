"""Wake-ups: on the node that stored an event, and on the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from outrider.service.cluster.bus import Bus
from outrider.service.cluster.transport import Transport
from outrider.service.events.feed import LiveFeed
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def running(bus: Bus) -> AsyncIterator[LiveFeed]:
    feed = LiveFeed(Transport(bus))
    task = asyncio.create_task(feed.run())
    yield feed
    task.cancel()
    await asyncio.wait({task}, timeout=TIMEOUT)


@pytest_asyncio.fixture(loop_scope="session")
async def nodes() -> AsyncIterator[tuple[LiveFeed, LiveFeed]]:
    """The feeds of two nodes."""
    bus = Bus(is_shared=True)
    async with running(bus) as first, running(bus) as other:
        yield first, other


async def test_every_node_is_woken(nodes: tuple[LiveFeed, LiveFeed]) -> None:
    first, other = nodes
    with first.subscribe("a") as here, other.subscribe("a") as there:
        assert await there.changed(TIMEOUT)  # the channel is subscribed
        first.stored("a")
        assert await there.changed(TIMEOUT)
        assert await here.changed(TIMEOUT)


async def test_only_the_subscribers_of_the_account_are_woken(
    nodes: tuple[LiveFeed, LiveFeed],
) -> None:
    first, other = nodes
    with other.subscribe("mine") as mine, other.subscribe("theirs") as theirs:
        assert await mine.changed(TIMEOUT)
        assert await theirs.changed(TIMEOUT)
        first.stored("mine")
        assert await mine.changed(TIMEOUT)
        assert not await theirs.changed(0)


async def test_what_was_stored_before_the_wait_ends_it_at_once() -> None:
    feed = LiveFeed(Transport(Bus()))
    with feed.subscribe("a") as subscription:
        assert not await subscription.changed(0)
        feed.stored("a")
        feed.stored("a")
        assert await subscription.changed(TIMEOUT)
        assert not await subscription.changed(0)
        feed.wake_all()
        assert await subscription.changed(TIMEOUT)


async def test_a_node_without_listeners_is_not_sent_anything() -> None:
    bus = Bus(is_shared=True)
    async with running(bus) as feed:

        async def listens() -> bool:
            return await bus.publish("account a", LISTENING) == 1

        async def does_not() -> bool:
            return not await listens()

        with feed.subscribe("a"), feed.subscribe("a"):
            await eventually(listens)
        await eventually(does_not)
        with feed.subscribe("a"):
            await eventually(listens)


LISTENING = b"\x92\xa6stored\xa4none"
"""The message of a node, as the nodes of the next release will send it too."""
