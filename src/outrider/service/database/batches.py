"""Runs concurrent writes in batches, in their order.

A single one does not wait. Those that arrive while a batch runs form the next one: the thousands of
machines that connect again at once, after a restart, need few transactions.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from outrider.service.database.engine import is_refused

_MAX_BATCH: Final = 200

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches(Generic[Item, Result]):
    """Runs work for several items at once.

    Args:
        run_batch: returns the result of each item, in their order. If it raises, all items of the
            batch fail; but if the database refused a value each is run on its own, so that one bad
            value fails only its own item.
    """

    def __init__(self, run_batch: Callable[[list[Item]], Awaitable[list[Result]]]) -> None:
        self._run_batch = run_batch
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def execute(self, item: Item) -> Result:
        """Run an item in the next batch; raises what `run_batch` raises.

        If the caller is cancelled before its batch starts, the item is not run.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="run batches")
        return await future

    async def close(self) -> None:
        """Stop; waiting callers are cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def _run(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_MAX_BATCH, len(self._waiting)))]
            pending = [(item, future) for item, future in batch if not future.done()]
            try:
                await self._resolve(pending)
            finally:
                for _, future in pending:
                    future.cancel()  # no effect on a resolved one; else this task was cancelled

    async def _resolve(self, pending: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._run_batch([item for item, _ in pending])
        except Exception as error:  # noqa: BLE001  # raised to the callers
            if len(pending) > 1 and is_refused(error):
                for entry in pending:
                    await self._resolve([entry])
                return
            for _, future in pending:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(pending, results, strict=True):
                if not future.done():
                    future.set_result(result)
