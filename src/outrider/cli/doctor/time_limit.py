"""Run work with a time limit, even if it blocks in a system call."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundWork(Generic[T]):
    """Runs `work` in a daemon thread at once. A thread that hangs ends with the process.

    Args:
        seconds: how long the work may take, from its start.
        clock: the monotonic clock.
    """

    def __init__(
        self,
        work: Callable[[], T],
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ends = clock() + seconds
        self._future: Future[T] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def result(self) -> T:
        """Wait for the result and return it.

        Raises:
            TimeoutError: the work takes too long.
        """
        return self._future.result(max(0.0, self._ends - self._clock()))

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self._future.set_exception(error)
