"""Run work with a time limit, even if it blocks in a system call."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundWork(Generic[T]):
    """Runs `work` in a daemon thread at once. A thread that hangs ends with the process.

    Args:
        seconds: how long `result` waits at most.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self.seconds = seconds
        self._future: Future[T] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def result(self) -> T:
        """Return the result.

        Raises:
            TimeoutError: the work takes too long.
        """
        return self._future.result(self.seconds)

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self._future.set_exception(error)
