"""Playwright, which speaks to the debugging ports: one for all IDEs, there while it is needed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

CLOSE_TIMEOUT: Final = 1.5

CONNECT_TIMEOUT: Final = 10.0
"""Seconds that a debugging port has to answer."""


def is_installed() -> bool:
    """Tell whether Playwright is here: it comes with the extra `ide`."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError:
        return False
    return True


class Driver:
    """Playwright's process, started with the first connection and ended with the last."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._users = 0
        self._playwright: Playwright | None = None

    @asynccontextmanager
    async def connection(self, endpoint: str) -> AsyncIterator["Browser"]:
        """Give a connection to the debugging port at `endpoint`, an http address.

        Raises:
            playwright.async_api.Error: nothing answers there.
        """
        playwright = await self._acquire()
        try:
            # no_defaults: an IDE that a person uses keeps its colours, focus and downloads
            browser = await playwright.chromium.connect_over_cdp(
                endpoint, timeout=CONNECT_TIMEOUT * 1000, no_defaults=True, is_local=True
            )
            try:
                yield browser
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await browser.close()  # of the connection: the IDE goes on
        finally:
            await asyncio.shield(self._release())

    async def _acquire(self) -> "Playwright":
        from playwright.async_api import async_playwright

        async with self._lock:
            if self._playwright is None:
                self._playwright = await async_playwright().start()
            self._users += 1
            return self._playwright

    async def _release(self) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0 and self._playwright is not None:
                playwright, self._playwright = self._playwright, None
                await playwright.stop()
