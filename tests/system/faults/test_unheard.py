"""What a node does with commands and results while it cannot reach the other nodes."""

import pytest
from msgspec import Raw

from outrider.cloud.fleet.bus import BusDown, MemoryBus
from outrider.cloud.fleet.dispatch import PendingCommands
from outrider.cloud.fleet.relay import CommandRelay
from outrider.contract.commands import CommandType
from outrider.contract.frames import Command, CommandResult
from tests.rig.patience import eventually

pytestmark = pytest.mark.faults


class BadBus(MemoryBus):
    """A bus that fails as a test says: its messages are not heard, or not sent."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.hears = True
        self.sends = True

    @property
    def is_up(self) -> bool:
        return self.hears

    async def publish(self, channel: str, message: bytes) -> int:
        if not self.sends:
            raise BusDown("not now")
        return await super().publish(channel, message)


def relay_on(bus: BadBus) -> CommandRelay:
    return CommandRelay(bus, PendingCommands(), lambda *_: None, retry_interval=0.01)


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
    heard: list[bytes] = []
    await bus.subscribe("machine", heard.append)
    relay = relay_on(bus)
    bus.hears = False
    with pytest.raises(BusDown) as caught:
        await relay.send("machine", command(relay))
    assert not caught.value.may_be_sent
    assert heard == []
    bus.hears = True
    assert await relay.send("machine", command(relay))
    assert len(heard) == 1


async def test_a_result_that_cannot_be_published_is_retried() -> None:
    bus = BadBus()
    asking, holding = relay_on(bus), relay_on(bus)
    heard: list[bytes] = []
    await bus.subscribe(f"node {asking.node}", heard.append)
    bus.sends = False
    asked = command(asking)
    await holding.deliver_result("machine", CommandResult(id=asked.id, result=Raw(b"{}")))
    assert heard == []
    bus.sends = True
    await eventually(lambda: len(heard) == 1)
