"""The window of an IDE over its debugging port: found, watched, found again when it is lost.

Every frame of the page runs `watch.js`, which reports what it sees; nothing is asked in a loop
but whether the page still answers.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog

from outrider.contract.errors import OutriderError
from outrider.daemon.agents.ide.driver import Driver
from outrider.daemon.agents.ide.panel import Seen
from outrider.daemon.agents.ide.provider_file import IdeFile
from outrider.daemon.agents.ide.reports import Reports
from outrider.daemon.backoff import Backoff

if TYPE_CHECKING:
    from playwright.async_api import Browser, Frame, Page

CALL_TIMEOUT: Final = 8.0
"""Seconds that a page has for what it is asked to do."""

WATCH_TIMEOUT: Final = 20.0
"""Seconds that a page and its frames have to let themselves be watched."""

STOP_TIMEOUT: Final = 2.0

LOOK_AGAIN: Final = 5.0
"""Seconds between two questions whether the page still answers."""

_WATCH: Final = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")
_BINDING: Final = "__outriderReport"

_log = structlog.get_logger(__name__)

PageState = Literal["lost", "none", "there", "crashed", "silent"]


class WindowError(OutriderError):
    """The window could not do what it was asked."""


class Window:
    """One IDE's window.

    Args:
        endpoint: the debugging port, an http address.
        script: the provider's JavaScript, an object.
        changed: called whenever `state` or `seen` has changed.
    """

    def __init__(
        self,
        endpoint: str,
        file: IdeFile,
        script: str,
        driver: Driver,
        changed: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self._driver = driver
        self._changed = changed
        self._pages = re.compile(file.pages)
        self._url: str | None = None
        spec = msgspec.json.encode({"agents": file.agents}).decode()
        self._source = f"({_WATCH})({spec}, ({script}), {msgspec.json.encode(_BINDING).decode()})"
        self._reports = Reports()
        self._page: Page | None = None
        self._watched = False
        self._broken: Literal["crashed", "silent"] | None = None
        self._connected = False
        self._lost = asyncio.Event()
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.trouble: str | None = None

    @property
    def connected(self) -> bool:
        """Whether the debugging port is connected."""
        return self._connected

    @property
    def state(self) -> PageState:
        """What has become of the page; it is there once it is watched."""
        if not self._connected:
            return "lost"
        if self._page is None:
            return "none"
        return self._broken or ("there" if self._watched else "lost")

    @property
    def page(self) -> "Page":
        """The page.

        Raises:
            WindowError: there is none now.
        """
        if self._page is None or self._broken == "crashed":
            raise WindowError("its window is not there")
        return self._page

    def seen(self) -> dict[str, Seen]:
        """Return what each agent was last seen to be doing; one that is not shown is not there."""
        return self._reports.seen()

    def start(self, url: str | None = None) -> None:
        """Begin to connect, and to connect again. A new browser's empty page is sent to `url`."""
        self._url = url
        self._running = asyncio.create_task(self._run(), name=f"window at {self.endpoint}")

    async def stop(self) -> None:
        """Let go of the window."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=STOP_TIMEOUT)
        self._connected = False
        self._forget()

    async def ask(
        self, verb: str, agent: str | None = None, *words: Any, seconds: float = CALL_TIMEOUT
    ) -> Any:
        """Return what the page answers within so many seconds.

        Raises:
            WindowError: it does not, or its script breaks.
        """
        from playwright.async_api import Error

        frame = self.frame_of(agent)
        try:
            async with asyncio.timeout(seconds):
                return await frame.evaluate(
                    "words => window.__outrider.do(...words)", [verb, agent, *words]
                )
        except TimeoutError as error:
            raise WindowError("its page does not answer") from error
        except Error as error:
            raise WindowError(f"its page says: {first_line(error)}") from error

    def frame_of(self, agent: str | None) -> "Frame":
        """Return the frame that has this agent, the page's own where none has.

        Raises:
            WindowError: there is no page now.
        """
        return self._reports.frame_of(agent) or self.page.main_frame

    # Connecting

    async def _run(self) -> None:
        from playwright.async_api import Error

        backoff = Backoff(random.random)
        while True:
            try:
                async with self._driver.connection(self.endpoint) as browser:
                    self.trouble = None
                    backoff.reset()
                    await self._follow(browser)
            except (Error, OSError) as error:
                self.trouble = first_line(error)
            at_once = self._broken == "crashed"  # loaded again: what is lost is only Playwright's
            self._connected = False
            self._forget()
            self._changed()
            await asyncio.sleep(0 if at_once else backoff.next())

    async def _follow(self, browser: "Browser") -> None:
        """Follow the IDE's page, or the next one when it is closed, until the connection ends."""
        self._lost.clear()
        self._connected = True
        browser.on("disconnected", lambda _: self._wake(lost=True))
        context = browser.contexts[0]
        context.on("page", lambda _: self._wake())
        while browser.is_connected():
            self._news.clear()
            if self._page is None or self._page.is_closed():
                self._forget()
                page = await self._find(context.pages)
                if page is not None:
                    async with asyncio.timeout(WATCH_TIMEOUT):
                        await self._watch(page)
                self._changed()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_AGAIN if self._page else 1.0)
            if self._lost.is_set():
                return
            if self._page is not None and not self._page.is_closed():
                await self._look_again(self._page)

    async def _find(self, pages: list["Page"]) -> "Page | None":
        for page in pages:
            if self._pages.search(page.url):
                return page
        if self._url is not None and pages:
            await pages[0].goto(self._url, wait_until="commit", timeout=CALL_TIMEOUT * 1000)
            self._url = None
            return pages[0]
        return None

    async def _watch(self, page: "Page") -> None:
        self._page, self._watched, self._broken = page, False, None
        page.on("close", lambda _: self._wake())
        page.on("crash", lambda _: self._break("crashed"))
        page.on("framedetached", self._dropped)
        inspector = await page.context.new_cdp_session(page)
        # a page that has crashed is dead to Playwright: loaded again, it needs a new connection
        inspector.on("Inspector.targetReloadedAfterCrash", lambda _: self._wake(lost=True))
        await inspector.send("Inspector.enable")
        await page.expose_binding(_BINDING, self._reported)
        await page.add_init_script(self._source)
        for frame in page.frames:  # its own first
            await self._install(frame)
            self._watched = True
            self._changed()

    async def _install(self, frame: "Frame") -> None:
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                await frame.evaluate(f"() => {{ {self._source} }}")
        except (Error, TimeoutError) as error:
            _log.info("a frame cannot be watched", url=frame.url[:200], error=first_line(error))

    async def _look_again(self, page: "Page") -> None:
        """Ask every frame to look; a page whose main frame does not answer is silent."""
        from playwright.async_api import Error

        for frame in page.frames:
            watched = False
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    watched = await frame.evaluate("() => window.__outrider?.again() ?? false")
            except TimeoutError:
                if frame == page.main_frame:
                    self._break("silent")
                    return
            except Error:
                continue  # it is being loaded, or gone by now: its events tell
            if self._broken == "silent" and frame == page.main_frame:
                self._broken = None
                self._changed()
            if not watched and frame in page.frames:
                self._dropped(frame)
                await self._install(frame)

    # What the page tells

    def _reported(self, source: Any, data: Any) -> None:
        if source["page"] != self._page or not self._reports.take(source["frame"], data):
            return
        self._broken = None
        self._changed()

    def _dropped(self, frame: "Frame") -> None:
        if self._reports.drop(frame):
            self._changed()

    def _break(self, how: Literal["crashed", "silent"]) -> None:
        self._broken = how
        self._reports.clear()
        self._changed()

    def _wake(self, *, lost: bool = False) -> None:
        if lost:
            self._lost.set()
        self._news.set()

    def _forget(self) -> None:
        self._page = self._broken = None
        self._reports.clear()


def first_line(error: Exception) -> str:
    """Return what an error of Playwright says, without its log."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
