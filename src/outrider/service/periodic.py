"""Periodic work, and buffers whose content is stored periodically.

Both survive an outage of the database: the next run tries again, with what could not be stored.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from outrider.service.database.engine import DATABASE_ERRORS

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def run_periodically(
    work: Callable[[], Awaitable[object]], seconds: float, name: str
) -> None:
    """Call `work` after every `seconds` seconds, until cancelled.

    A run that fails because the database is unavailable is logged as `periodic work failed` with
    this `name`; the next run tries again. Any other error is a defect and ends the task.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except DATABASE_ERRORS as error:
            _log.warning("periodic work failed", work=name, error=str(error))


class WriteBehind(Generic[T]):
    """Buffers values by key and stores them together, in the order of their keys' arrival.

    Args:
        store: stores values; if it raises or is cancelled, they stay in the buffer.
        name: names the buffer in the log.
        maximum: keys in the buffer, beyond which new ones are dropped, and logged at the next
            flush; None if the caller bounds the keys.
    """

    def __init__(
        self,
        store: Callable[[dict[str, T]], Awaitable[object]],
        name: str,
        maximum: int | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._maximum = maximum
        self._values: dict[str, T] = {}
        self._dropped = 0
        self._lock = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> T | None:
        """Return the value of a key that is in the buffer."""
        return self._values.get(key)

    def put(self, key: str, value: T) -> None:
        """Buffer a value; it replaces the key's earlier one."""
        if (
            self._maximum is not None
            and len(self._values) >= self._maximum
            and key not in self._values
        ):
            self._dropped += 1
            return
        self._values[key] = value

    async def flush(self) -> dict[str, T]:
        """Store what is in the buffer, and return it.

        Everything that was put before the call is stored when it returns: a flush that has begun
        earlier is waited for. If this raises or is cancelled, the values are back in the buffer,
        except where a newer one has come meanwhile. They may have been stored nevertheless, because
        a connection can be lost after the commit: storing must be idempotent.

        Raises:
            Exception: what `store` raises.
        """
        async with self._lock:
            if self._dropped:
                _log.error("values dropped, buffer full", buffer=self._name, count=self._dropped)
                self._dropped = 0
            flushing, self._values = self._values, {}
            if not flushing:
                return flushing
            try:
                await self._store(flushing)
            except BaseException:
                newer, self._values = self._values, flushing
                for key, value in newer.items():
                    self.put(key, value)
                raise
            return flushing
