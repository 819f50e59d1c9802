"""What a node does with commands and results while it cannot reach the other nodes."""

import pytest
from msgspec import Raw

from outrider.contract.commands import CommandType
from outrider.contract.frames import Command, CommandResult
from outrider.service.cluster.bus import Bus, BusDown
from outrider.service.cluster.relay import CommandRelay
from outrider.service.cluster.transport import Transport
from tests.rig.waiting import eventually

pytestmark = pytest.mark.faults


class BadBus(Bus):
    """A bus that fails as a test says: it is not connected, or publishes nothing."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.publishes = True

    async def publish(self, channel: str, message: bytes) -> int:
        if not self.publishes:
            raise BusDown("not now")
        return await super().publish(channel, message)


def relay_on(transport: Transport) -> CommandRelay:
    return CommandRelay(transport, lambda *_: None)


def command(relay: CommandRelay) -> Command:
    return Command(
        id=relay.new_command_id(),
        command=CommandType.AGENT_STATUS,
        payload=Raw(b"{}"),
        timeout_ms=1000,
    )


async def test_no_command_is_sent_whose_result_would_not_be_received() -> None:
    """Redis is back, and takes the command; this node is not subscribed again yet."""
    bus = BadBus()
    received: list[bytes] = []
    await bus.subscribe("machine", received.append)
    relay = relay_on(Transport(bus))
    bus.is_up = False
    with pytest.raises(BusDown) as caught:
        await relay.send("machine", command(relay))
    assert not caught.value.may_be_sent
    assert received == []
    bus.is_up = True
    assert await relay.send("machine", command(relay))
    assert len(received) == 1


async def test_a_result_that_cannot_be_published_is_retried() -> None:
    bus = BadBus()
    asking = Transport(bus)
    holding = relay_on(Transport(bus, retry_interval=0.01))
    received: list[bytes] = []
    await bus.subscribe(f"node {asking.node}", received.append)
    bus.publishes = False
    asked = command(relay_on(asking))
    await holding.deliver_result("machine", CommandResult(id=asked.id, result=Raw(b"{}")))
    assert received == []
    bus.publishes = True
    await eventually(lambda: len(received) == 1)
