"""HTTP clients for what wrk does not measure: mixed requests, their outcomes, a fixed schedule."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, Self

import aiohttp

from benchmarks.service import Server


class Clients(ABC):
    """Clients of a server that make requests for the length of a context, in a thread, or of `run`.

    Args:
        timeout: seconds after which a request counts as not answered.

    Attributes:
        outcomes: how many requests of each kind had each outcome, such as "status: 200".
        latencies: the seconds of each request.
        is_ending: whether the context is ending: `work` returns soon.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._headers = server.headers
        self._timeout = timeout
        self._thread = threading.Thread(target=self._run, name="clients", daemon=True)
        self._failure: BaseException | None = None
        self._client: aiohttp.ClientSession
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.is_ending = False

    @abstractmethod
    async def work(self) -> None:
        """Make requests with `request` until `is_ending`."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_ending = True
        self._thread.join(self._timeout + 10)

    def check(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """Make the requests in this thread; return when `work` does."""
        asyncio.run(self._main())

    async def request(
        self, kind: str, method: str, url: str, due: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request; return the answer's body, an empty one if it failed.

        Args:
            due: the `time.monotonic` from which its latency counts; now by default.
        """
        began = time.monotonic() if due is None else due
        try:
            async with self._client.request(method, url, **options) as answer:
                body = await answer.read()
                self.outcomes[f"{kind}: {answer.status}"] += 1
                return await answer.json() if answer.ok and body else {}
        except TimeoutError:
            self.outcomes[f"{kind}: no answer in time"] += 1
        except aiohttp.ClientError as error:
            self.outcomes[f"{kind}: {type(error).__name__}"] += 1
        finally:
            self.latencies.append(time.monotonic() - began)
        return {}

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  # `check` raises it
            self._failure = error

    async def _main(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as self._client:
            await self.work()
