"""The least that there is to do: Playwright and the debugging port, with nothing around them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import CDPSession, Page, async_playwright
from tests.daemon.agents.ide.desk import Ide

_CALL = "() => { const at = Date.now(); window.__bare(); return at }"


class Bare:
    """A second connection to an IDE's window."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session
        self._called = asyncio.Event()

    async def listen(self) -> None:
        """Let the page call out."""

        def called(_: Any) -> None:
            self._called.set()

        await self._page.expose_binding("__bare", called)

    async def call(self) -> float:
        """Return the seconds from a call in the page to its arrival here."""
        self._called.clear()
        at: float = await self._page.evaluate(_CALL)
        await asyncio.wait_for(self._called.wait(), 5)
        return max(0.0, time.time() - at / 1000)

    async def picture(self) -> float:
        """Return the seconds that the browser needs for a picture of the page."""
        began = time.perf_counter()
        await self._session.send("Page.captureScreenshot", {"format": "png"})
        return time.perf_counter() - began


@asynccontextmanager
async def bare(ide: Ide) -> AsyncIterator[Bare]:
    """Connect to the IDE's window beside Outrider."""
    endpoint = str(ide.evidence()["endpoint"])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, no_defaults=True)
        page = next(page for page in browser.contexts[0].pages if page.url == ide.page.url)
        one = Bare(page, await page.context.new_cdp_session(page))
        await one.listen()
        yield one
        await browser.close()
