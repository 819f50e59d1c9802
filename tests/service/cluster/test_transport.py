"""What the transport promises about messages, beside what the bus below it does."""

import asyncio

import pytest

from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.messages import (
    Alive,
    CloseConnection,
    ConnectionLost,
    DeltasWanted,
    EventsStored,
    ForwardCommand,
    Handover,
    InFlight,
    Message,
    OpenStream,
    Relayed,
    RelayedDelta,
    RelayedResult,
)
from outrider.service.cluster.transport import MAX_POSTED, Lifetimes, TopicSet, Transport
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio


class BreakableBus(Bus):
    """A bus on which nothing can be published while `is_broken`."""

    is_broken = False

    async def publish(self, channel: str, message: bytes) -> int:
        if self.is_broken:
            raise BusDown("broken")
        return await super().publish(channel, message)


async def test_a_message_that_is_not_understood_does_not_end_the_subscription() -> None:
    """A node of a newer release may send it."""
    transport, received = Transport(Bus(is_shared=True)), list[Message]()
    await transport.subscribe("topic", received.append)
    for data in (b"\x92\xa5other\x01", b"\xc1", b"\x91\xa5alive"):
        await transport.bus.publish("topic", data)
    assert await transport.publish("topic", Alive([])) == 1
    assert received == [Alive([])]


async def test_posted_messages_arrive_in_order_and_equal_ones_once() -> None:
    transport, received = Transport(Bus(is_shared=True)), list[Message]()
    await transport.subscribe("topic", received.append)
    sent = [InFlight([str(number)]) for number in range(100)]
    for message in (*sent, sent[0], sent[50]):
        transport.post("topic", message)
    await eventually(lambda: len(received) == 100)
    assert received == sent


async def test_messages_that_can_be_dropped_are_bounded() -> None:
    transport, received = Transport(Bus(is_shared=True)), list[Message]()
    await transport.subscribe("topic", received.append)
    for number in range(MAX_POSTED + 10):
        transport.post("topic", InFlight([str(number)]), droppable=True)
    transport.post("topic", InFlight(["needed"]))
    room = asyncio.create_task(transport.wait_for_room("topic"))
    await eventually(room.done)
    await eventually(lambda: received[-1:] == [InFlight(["needed"])])
    assert len(received) == MAX_POSTED + 1
    large = [InFlight([f"{number}" + "x" * 300_000]) for number in range(4)]
    for message in large:
        transport.post("topic", message, droppable=True)
    await eventually(lambda: received[MAX_POSTED + 1 :] == large[:3])


@pytest.mark.parametrize("is_broken", [True, False])
async def test_a_posted_message_without_a_receiver_is_reported(is_broken: bool) -> None:
    bus = BreakableBus(is_shared=True)
    bus.is_broken = is_broken
    transport, failures = Transport(bus), list[str]()
    for number in range(2):
        transport.post(
            "topic", InFlight([str(number)]), on_failed=lambda: failures.append("failed")
        )
    await eventually(lambda: failures == ["failed"])


async def test_a_set_of_topics_follows_the_names() -> None:
    transport = Transport(Bus(is_shared=True))
    received: list[str] = []
    topics = TopicSet(transport, "account ", lambda name, _: received.append(name))
    assert await topics.update(["a", "b"]) == {"a", "b"}
    assert await topics.update(["b", "c"]) == {"c"}
    counts = [await transport.publish(f"account {name}", EventsStored("x")) for name in "abc"]
    assert (counts, received) == ([0, 1, 1], ["b", "c"])
    await topics.close()
    assert await transport.publish("account b", EventsStored("x")) == 0


async def test_a_name_that_nobody_reports_is_lost_after_so_many_reports() -> None:
    lost: list[str] = []
    lifetimes = Lifetimes(2, lost.append)
    for name in ("silent", "reported", "removed"):
        lifetimes.add(name)
    lifetimes.remove("removed")
    for _ in range(3):
        assert lost == []
        lifetimes.reported(["reported", "unknown"])
        lifetimes.tick()
    assert lost == ["silent"]


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (ForwardCommand(b"f"), b"\x92\xa5carry\xc4\x01f"),
        (CloseConnection(4000, "why", None), b"\x94\xa3end\xcd\x0f\xa0\xa3why\xc0"),
        (Handover(["c"]), b"\x92\xa7inherit\x91\xa1c"),
        (RelayedResult("m", b"f"), b"\x93\xa6answer\xa1m\xc4\x01f"),
        (ConnectionLost("m"), b"\x92\xa4lost\xa1m"),
        (InFlight(["c"]), b"\x92\xa5owing\x91\xa1c"),
        (OpenStream("n", "s", "m", b"{}"), b"\x95\xa4open\xa1n\xa1s\xa1m\xc4\x02{}"),
        (Relayed("s", 1, b"x"), b"\x94\xa7message\xa1s\x01\xc4\x01x"),
        (Alive(["s"]), b"\x92\xa5alive\x91\xa1s"),
        (EventsStored("n"), b"\x92\xa6stored\xa1n"),
        (DeltasWanted("n", {"a": 1}), b"\x93\xa6wanted\xa1n\x81\xa1a\x01"),
        (RelayedDelta("n", "m", b"f", "i"), b"\x95\xa5delta\xa1n\xa1m\xc4\x01f\xa1i"),
    ],
)
async def test_older_nodes_understand_the_messages(message: Message, encoded: bytes) -> None:
    """A rolling update has nodes of two releases on one bus."""
    bus = Bus(is_shared=True)
    transport, received, sent = Transport(bus), list[Message](), list[bytes]()
    await bus.subscribe("topic", sent.append)
    await transport.publish("topic", message)
    assert sent == [encoded]
    await transport.subscribe("topic", received.append)
    await bus.publish("topic", encoded)
    assert received == [message]
