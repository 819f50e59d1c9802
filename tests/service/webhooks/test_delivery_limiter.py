"""Places in flight: who gets one, and that receivers which are slow leave room for the others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outrider.service.webhooks.delivery_limiter import DeliveryLimiter, DeliveryLimits
from outrider.service.webhooks.retry_policy import new_delivery
from outrider.service.webhooks.store.deliveries import Delivery
from tests.rig.patience import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


LIMITS = DeliveryLimits(in_flight=32)


class World:
    """Receivers that answer at once, hang until they are let go, or are slow."""

    def __init__(self) -> None:
        self.hanging: set[str] = set()
        self.slow: set[str] = set()
        self.flying: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._let_go = asyncio.Semaphore(0)
        self.limiter = DeliveryLimiter(self._attempt, lambda _webhook: None, LIMITS)

    def send(self, webhook: str, count: int) -> None:
        """Have so many deliveries of a webhook tried."""
        for _ in range(count):
            self.limiter.add(new_delivery(webhook, "evt_x", "webhook:test", 0), b"{}")

    def let_go(self, count: int = 10_000) -> None:
        """Have so many of those that hang, now or later, come to an end."""
        for _ in range(count):
            self._let_go.release()

    async def _attempt(self, delivery: Delivery, _body: bytes) -> bool:
        webhook = delivery.webhook_id
        self.flying[webhook] += 1
        await asyncio.sleep(0)
        if webhook in self.hanging:
            await self._let_go.acquire()
        self.flying[webhook] -= 1
        self.done[webhook] += 1
        return webhook not in self.slow | self.hanging


@pytest_asyncio.fixture(loop_scope="session")
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.limiter.close()


async def test_any_number_that_hang_leave_half_of_the_places(world: World) -> None:
    world.send("prompt", 1)
    await eventually(lambda: world.done["prompt"] == 1)
    world.hanging = {f"hanging{number}" for number in range(10)}
    for webhook in world.hanging:
        world.send(webhook, 20)
    await eventually(lambda: world.flying.total() == 16)
    world.send("prompt", 100)
    await eventually(lambda: world.done["prompt"] == 101)
    assert world.flying.total() == 16
    world.let_go()
    await eventually(lambda: all(world.done[webhook] == 20 for webhook in world.hanging))


async def test_one_that_is_not_known_is_tried_beside_those_that_hang(world: World) -> None:
    """One lane at a time takes what another one leaves: all that are new get their turn."""
    world.hanging = {"hanging"}
    world.send("hanging", 20)
    newcomers = [f"new{number}" for number in range(30)]
    for webhook in newcomers:
        world.send(webhook, 3)
    await eventually(lambda: all(world.done[webhook] == 3 for webhook in newcomers))
    assert world.flying.total() == LIMITS.in_flight_per_webhook


async def test_one_that_begins_to_be_slow_is_not_prompt_any_more(world: World) -> None:
    turning = [f"turning{number}" for number in range(4)]
    for webhook in turning:
        world.send(webhook, 1)
    await eventually(lambda: all(world.done[webhook] == 1 for webhook in turning))
    world.hanging = set(turning)
    for webhook in turning:
        world.send(webhook, 100)
    await eventually(lambda: world.flying.total() == 32)  # nobody could know
    world.let_go(32)
    await eventually(lambda: world.done.total() == 4 + 32 and world.flying.total() == 16)
    world.let_go()
    await eventually(lambda: all(world.done[webhook] == 101 for webhook in turning))


async def test_nothing_is_kept_of_webhooks_without_work(world: World) -> None:
    for number in range(50):
        world.send(f"webhook{number}", 30)
    await eventually(lambda: world.done.total() == 1500)
    await eventually(lambda: not world.flying.total())
    await eventually(lambda: world.limiter.free_slots == (32, 16))
    assert not world.limiter.active_webhooks
