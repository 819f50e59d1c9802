"""Limits the deliveries in flight, for each webhook and in total.

A slow receiver must not delay others. A webhook has a few deliveries in flight at most; the others
wait in its queue. However many receivers hang, half of the slots are reserved for webhooks whose
receiver answered promptly the last time.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from cachetools import FIFOCache

from outrider.service.webhooks.store.deliveries import Delivery


class DeliveryLimits(NamedTuple):
    """How much is in flight, and how much waits in memory rather than in the table.

    Attributes:
        in_flight: deliveries in flight; half of them may be of webhooks whose receiver was slow or
            has not answered yet.
        waiting_bytes: bytes of waiting bodies, over all webhooks.
    """

    in_flight: int = 1000
    in_flight_per_webhook: int = 8
    waiting_per_webhook: int = 4000
    waiting_bytes_per_webhook: int = 4 * 1024 * 1024
    waiting_bytes: int = 32 * 1024 * 1024


DEFAULT_LIMITS: Final = DeliveryLimits()


_MAX_PROMPT: Final = 100_000

DeliveryJob = tuple[Delivery, bytes]
"""A delivery and its body."""


class _Webhook:
    """One webhook: its waiting jobs, the bytes of their bodies, and how many are in flight."""

    __slots__ = ("in_flight", "size", "waiting", "webhook_id")

    def __init__(self, webhook_id: str) -> None:
        self.webhook_id = webhook_id
        self.size = 0
        self.waiting: deque[DeliveryJob] = deque()
        self.in_flight = 0


class DeliveryLimiter:
    """Attempts deliveries as soon as the limits allow, in order for each webhook.

    Args:
        attempt: attempts a delivery; returns whether its receiver was prompt, None if it was not
            contacted. Must not raise.
        on_start: called with the webhook each time one of its deliveries is started.
    """

    def __init__(
        self,
        attempt: Callable[[Delivery, bytes], Awaitable[bool | None]],
        on_start: Callable[[str], None],
        limits: DeliveryLimits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._attempt = attempt
        self._on_start = on_start
        self._webhooks: dict[str, _Webhook] = {}
        self._prompt: FIFOCache[str, None] = FIFOCache(_MAX_PROMPT)
        self._free = limits.in_flight
        self._free_not_prompt = limits.in_flight // 2
        # Webhooks that wait for a slot, in order.
        self._blocked: OrderedDict[str, _Webhook] = OrderedDict()
        self._blocked_not_prompt: OrderedDict[str, _Webhook] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._closed = False

    @property
    def free_slots(self) -> tuple[int, int]:
        """The free slots, and how many of them webhooks that are not prompt may occupy."""
        return self._free, self._free_not_prompt

    @property
    def active_webhooks(self) -> int:
        """The number of webhooks with deliveries that wait or are in flight."""
        return len(self._webhooks)

    def has_room(self, webhook_id: str, count: int, size: int) -> bool:
        """Return whether `count` more deliveries of a webhook, of `size` bytes, may wait here."""
        webhook = self._webhooks.get(webhook_id)
        if webhook is not None:
            count, size = count + len(webhook.waiting), size + webhook.size
        limits = self._limits
        return (
            count <= limits.waiting_per_webhook
            and size <= limits.waiting_bytes_per_webhook
            and self._size <= limits.waiting_bytes
        )

    @property
    def is_full(self) -> bool:
        """Whether the bodies that wait here, of all webhooks, have more bytes than allowed."""
        return self._size > self._limits.waiting_bytes

    def has_enough(self, webhook_id: str, waiting: int) -> bool:
        """Return whether no more of a webhook's deliveries should be fetched from the table.

        More than `waiting` of them wait, or too many bytes; while `is_full`, if any of them wait,
        so that the others still get their turn.
        """
        webhook = self._webhooks.get(webhook_id)
        return webhook is not None and self._has_enough(webhook, waiting)

    def with_enough(self, waiting: int) -> list[str]:
        """Return the webhooks of which `has_enough` is true."""
        webhooks = self._webhooks.values()
        return [one.webhook_id for one in webhooks if self._has_enough(one, waiting)]

    def add(self, delivery: Delivery, body: bytes, *, first: bool = False) -> None:
        """Queue a delivery; with `first`, ahead of those of its webhook that wait."""
        webhook = self._webhooks.get(delivery.webhook_id)
        if webhook is None:
            webhook = self._webhooks[delivery.webhook_id] = _Webhook(delivery.webhook_id)
        webhook.size += len(body)
        self._size += len(body)
        if first:
            webhook.waiting.appendleft((delivery, body))
        else:
            webhook.waiting.append((delivery, body))
        self._start(webhook)

    async def close(self) -> None:
        """Cancel the deliveries in flight and start no others."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _has_enough(self, webhook: _Webhook, waiting: int) -> bool:
        if self.is_full:
            return bool(webhook.waiting)
        too_large = webhook.size > self._limits.waiting_bytes_per_webhook
        return too_large or len(webhook.waiting) > waiting

    def _start(self, webhook: _Webhook) -> None:
        """Start as many of a webhook's deliveries as have a slot."""
        most = self._limits.in_flight_per_webhook
        while webhook.waiting and webhook.in_flight < most and not self._closed:
            prompt = webhook.webhook_id in self._prompt
            if not self._free or not (prompt or self._free_not_prompt):
                blocked = self._blocked if prompt else self._blocked_not_prompt
                blocked[webhook.webhook_id] = webhook
                return
            webhook.in_flight += 1
            self._free -= 1
            self._free_not_prompt -= not prompt
            task = asyncio.create_task(self._run(webhook, self._next(webhook), prompt=prompt))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not webhook.waiting and not webhook.in_flight:
            for webhooks in (self._webhooks, self._blocked, self._blocked_not_prompt):
                webhooks.pop(webhook.webhook_id, None)

    async def _run(self, webhook: _Webhook, job: DeliveryJob, *, prompt: bool) -> None:
        """Attempt deliveries one after the other in one slot, until another webhook needs it."""
        try:
            while True:
                was_prompt = await self._attempt(*job)
                if was_prompt is not None:
                    self._set_prompt(webhook.webhook_id, prompt=was_prompt)
                if not webhook.waiting or self._blocked or self._blocked_not_prompt:
                    break
                if prompt != (webhook.webhook_id in self._prompt):
                    break
                job = self._next(webhook)
        finally:
            webhook.in_flight -= 1
            self._free += 1
            self._free_not_prompt += not prompt
            # Blocked webhooks come first: this one has just had a slot.
            while self._free and self._blocked:
                self._start(self._blocked.popitem(last=False)[1])
            while self._free and self._free_not_prompt and self._blocked_not_prompt:
                self._start(self._blocked_not_prompt.popitem(last=False)[1])
            self._start(webhook)

    def _next(self, webhook: _Webhook) -> DeliveryJob:
        job = webhook.waiting.popleft()
        webhook.size -= len(job[1])
        self._size -= len(job[1])
        self._on_start(webhook.webhook_id)
        return job

    def _set_prompt(self, webhook_id: str, *, prompt: bool) -> None:
        if not prompt:
            self._prompt.pop(webhook_id, None)
        elif webhook_id not in self._prompt:
            self._prompt[webhook_id] = None
