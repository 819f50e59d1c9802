"""What a node does with commands and answers while it cannot reach the others. Issue 8."""

import pytest
from msgspec import Raw

from outrider.cloud.fleet import routes as routes_module
from outrider.cloud.fleet.bus import BusDown, MemoryBus
from outrider.cloud.fleet.routes import Routes
from outrider.contract.commands import CommandType
from outrider.contract.frames import Command, CommandResult
from tests.service.patience import eventually

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


def command(routes: Routes) -> Command:
    return Command(
        id=routes.new_command_id(),
        command=CommandType.AGENT_STATUS,
        payload=Raw(b"{}"),
        timeout_ms=1000,
    )


async def test_nothing_is_asked_whose_answer_would_not_be_heard() -> None:
    """Redis is back, and takes the command; this node is not subscribed again yet."""
    bus = BadBus()
    heard: list[bytes] = []
    await bus.listen("machine", heard.append)
    routes = Routes(bus)
    bus.hears = False
    with pytest.raises(BusDown):
        await routes.send("machine", command(routes))
    assert heard == []
    bus.hears = True
    assert await routes.send("machine", command(routes))
    assert len(heard) == 1


async def test_an_answer_that_cannot_be_sent_is_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes_module, "_TELL_SECONDS", 0.01)
    bus = BadBus()
    asking, holding = Routes(bus), Routes(bus)
    heard: list[bytes] = []
    await bus.listen(f"node {asking.node}", heard.append)
    bus.sends = False
    asked = command(asking)
    await holding.answer("machine", CommandResult(id=asked.id, result=Raw(b"{}")))
    assert heard == []
    bus.sends = True
    await eventually(lambda: len(heard) == 1)
