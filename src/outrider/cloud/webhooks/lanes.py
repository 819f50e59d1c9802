"""Whose delivery is tried next: a lane for each webhook, and places that all of them share.

A lane has a few deliveries in flight, so that an endpoint which hangs holds up nobody else.
And however many endpoints hang: half of the places are for webhooks whose receiver was prompt
the last time.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final

from outrider.cloud.store.deliveries import Delivery

IN_FLIGHT_PER_WEBHOOK: Final = 8
IN_FLIGHT: Final = 1000
IN_FLIGHT_NOT_PROMPT: Final = IN_FLIGHT // 2
"""How many of the places those may take that were slow, or are not known yet."""

WAITING_PER_WEBHOOK: Final = 4000
WAITING_BYTES_PER_WEBHOOK: Final = 4 * 1024 * 1024
WAITING_BYTES: Final = 32 * 1024 * 1024
"""How much waits here rather than in the table: so many bytes of bodies, of all webhooks."""

_REMEMBERED: Final = 100_000

Parcel = tuple[Delivery, bytes]
"""A delivery with the body that it carries."""


class _Lane:
    """One webhook's deliveries in hand: those that wait, and how many are in flight.

    `size` is of the bodies that wait, in bytes.
    """

    __slots__ = ("flying", "size", "waiting", "webhook_id")

    def __init__(self, webhook_id: str) -> None:
        self.webhook_id = webhook_id
        self.size = 0
        self.waiting: deque[Parcel] = deque()
        self.flying = 0


class Lanes:
    """Has deliveries tried, each as soon as its webhook's lane and the places allow.

    Args:
        attempt: tries a delivery; returns whether its receiver was prompt, None where nobody
            asked it. Raises nothing.
        left: told how many of a webhook's deliveries wait, each time that one of them starts.
    """

    def __init__(
        self,
        attempt: Callable[[Delivery, bytes], Awaitable[bool | None]],
        left: Callable[[str, int], None],
    ) -> None:
        self._attempt = attempt
        self._left = left
        self._lanes: dict[str, _Lane] = {}
        self._prompt: OrderedDict[str, None] = OrderedDict()
        self._free = IN_FLIGHT
        self._free_not_prompt = IN_FLIGHT_NOT_PROMPT
        self._held_up: OrderedDict[str, _Lane] = OrderedDict()
        self._held_up_not_prompt: OrderedDict[str, _Lane] = OrderedDict()
        self._flying: set[asyncio.Task[None]] = set()
        self._size = 0
        self._ending = False

    def has_room(self, webhook_id: str, count: int, size: int) -> bool:
        """Tell whether so many more deliveries of a webhook may wait here, of so many bytes."""
        lane = self._lanes.get(webhook_id)
        if lane is not None:
            count, size = count + len(lane.waiting), size + lane.size
        return (
            count <= WAITING_PER_WEBHOOK
            and size <= WAITING_BYTES_PER_WEBHOOK
            and self._size <= WAITING_BYTES
        )

    def waiting(self, webhook_id: str) -> int:
        """Return how many of a webhook's deliveries wait to be tried."""
        lane = self._lanes.get(webhook_id)
        return 0 if lane is None else len(lane.waiting)

    def with_more_than(self, waiting: int) -> list[str]:
        """Return the webhooks of which more deliveries wait than so many."""
        return [one for one, lane in self._lanes.items() if len(lane.waiting) > waiting]

    def add(self, delivery: Delivery, body: bytes, *, first: bool = False) -> None:
        """Have a delivery tried.

        Args:
            first: before those of its webhook that wait.
        """
        lane = self._lanes.get(delivery.webhook_id)
        if lane is None:
            lane = self._lanes[delivery.webhook_id] = _Lane(delivery.webhook_id)
        lane.size += len(body)
        self._size += len(body)
        if first:
            lane.waiting.appendleft((delivery, body))
        else:
            lane.waiting.append((delivery, body))
        self._start(lane)

    async def end(self) -> None:
        """Stop what is in flight, and start nothing more."""
        self._ending = True
        for task in self._flying:
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)

    def _start(self, lane: _Lane) -> None:
        """Start as many of a lane's deliveries as have a place."""
        while lane.waiting and lane.flying < IN_FLIGHT_PER_WEBHOOK and not self._ending:
            prompt = lane.webhook_id in self._prompt
            if not self._free or not (prompt or self._free_not_prompt):
                held_up = self._held_up if prompt else self._held_up_not_prompt
                held_up[lane.webhook_id] = lane
                return
            lane.flying += 1
            self._free -= 1
            self._free_not_prompt -= not prompt
            task = asyncio.create_task(self._fly(lane, self._next(lane), prompt=prompt))
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)
        if not lane.waiting and not lane.flying:
            for lanes in (self._lanes, self._held_up, self._held_up_not_prompt):
                lanes.pop(lane.webhook_id, None)

    async def _fly(self, lane: _Lane, parcel: Parcel, *, prompt: bool) -> None:
        """Try one delivery after the other in one place, until another lane waits for it."""
        try:
            while True:
                was_prompt = await self._attempt(*parcel)
                if was_prompt is not None:
                    self._remember(lane.webhook_id, prompt=was_prompt)
                if not lane.waiting or self._held_up or self._held_up_not_prompt:
                    break
                if prompt != (lane.webhook_id in self._prompt):
                    break
                parcel = self._next(lane)
        finally:
            lane.flying -= 1
            self._free += 1
            self._free_not_prompt += not prompt
            # They have waited; this lane has just had a place.
            while self._free and self._held_up:
                self._start(self._held_up.popitem(last=False)[1])
            while self._free and self._free_not_prompt and self._held_up_not_prompt:
                self._start(self._held_up_not_prompt.popitem(last=False)[1])
            self._start(lane)

    def _next(self, lane: _Lane) -> Parcel:
        parcel = lane.waiting.popleft()
        lane.size -= len(parcel[1])
        self._size -= len(parcel[1])
        self._left(lane.webhook_id, len(lane.waiting))
        return parcel

    def _remember(self, webhook_id: str, *, prompt: bool) -> None:
        if not prompt:
            self._prompt.pop(webhook_id, None)
        elif webhook_id not in self._prompt:
            self._prompt[webhook_id] = None
            if len(self._prompt) > _REMEMBERED:
                self._prompt.popitem(last=False)
