"""The window of an IDE over its debugging port: found, watched, and found again after a loss.

Every frame of the page runs `watch.js`, which reports changes; the page is polled only for whether
it still answers. States of the page: `lost` (no connection), `none` (no such window), `there`
(watched), `crashed`, `silent` (it does not answer).
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog

from outrider.contract.backoff import Backoff
from outrider.contract.errors import OutriderError
from outrider.machine.agents.ide.debugging_port import DebuggingPorts
from outrider.machine.agents.ide.panel import PanelReport
from outrider.machine.agents.ide.spec import IdeSpec
from outrider.machine.agents.patterns import pattern

if TYPE_CHECKING:
    from playwright.async_api import Browser, Frame, Page

MAX_REPORT: Final = 1024 * 1024
"""Characters of the longest report of a frame that is read."""

CALL_TIMEOUT: Final = 8.0
"""Seconds that a page has to answer a call."""

WATCH_TIMEOUT: Final = 20.0
"""Seconds to install the script in a page and all of its frames."""

STOP_TIMEOUT: Final = 2.0

PING_INTERVAL: Final = 5.0
"""Seconds between two checks whether the page still answers."""

_WATCH: Final = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")
_BINDING: Final = "__outriderReport"

_log = structlog.get_logger(__name__)

PageState = Literal["lost", "none", "there", "crashed", "silent"]


class WindowError(OutriderError):
    """The window could not do what was requested."""


class Window:
    """One IDE's window.

    Args:
        endpoint: the debugging port, an http address.
        script: the provider's JavaScript, an object.
        on_change: called whenever `state` or `reports()` has changed.

    Attributes:
        connection_error: why the last attempt to connect failed, None after a success.
    """

    def __init__(
        self,
        endpoint: str,
        spec: IdeSpec,
        script: str,
        ports: DebuggingPorts,
        on_change: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self._ports = ports
        self._on_change = on_change
        self._pages = pattern(spec.pages)
        self._url: str | None = None
        agents = msgspec.json.encode({"agents": spec.agents}).decode()
        self._source = f"({_WATCH})({agents}, ({script}), {msgspec.json.encode(_BINDING).decode()})"
        self._reports = Reports()
        self._page: Page | None = None
        self._watched = False
        self._broken: Literal["crashed", "silent"] | None = None
        self._connected = False
        self._lost = asyncio.Event()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connection_error: str | None = None

    @property
    def connected(self) -> bool:
        """Whether the debugging port is connected."""
        return self._connected

    @property
    def state(self) -> PageState:
        """The state of the page."""
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

    def reports(self) -> dict[str, PanelReport]:
        """Return the newest report of each agent that the page shows, by its type."""
        return self._reports.by_agent()

    def start(self, url: str | None = None) -> None:
        """Begin to connect, and reconnect after losses; navigate an empty page to `url`."""
        self._url = url
        self._task = asyncio.create_task(self._run(), name=f"window at {self.endpoint}")

    async def stop(self) -> None:
        """Disconnect from the window, which stays open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_TIMEOUT)
        self._connected = False
        self._reset()

    async def call(
        self, verb: str, agent: str | None = None, *words: Any, seconds: float = CALL_TIMEOUT
    ) -> Any:
        """Call a function of watch.js (`verb`) in the agent's frame; return the answer.

        Raises:
            WindowError: it does not answer within so many seconds, or its script fails.
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
        """Return the frame that has this agent, else the page's main frame.

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
                async with self._ports.connection(self.endpoint) as browser:
                    self.connection_error = None
                    backoff.reset()
                    await self._follow(browser)
            except (Error, OSError) as error:
                self.connection_error = first_line(error)
            # After a crash the page was reloaded, and only Playwright's connection is lost.
            reconnect_at_once = self._broken == "crashed"
            self._connected = False
            self._reset()
            self._on_change()
            await asyncio.sleep(0 if reconnect_at_once else backoff.next())

    async def _follow(self, browser: "Browser") -> None:
        """Follow the IDE's page, and the next one after it is closed, until the connection ends."""
        self._lost.clear()
        self._connected = True
        browser.on("disconnected", lambda _: self._wake(lost=True))
        context = browser.contexts[0]
        context.on("page", lambda _: self._wake())
        while browser.is_connected():
            self._wakeup.clear()
            if self._page is None or self._page.is_closed():
                self._reset()
                page = await self._find(context.pages)
                if page is not None:
                    async with asyncio.timeout(WATCH_TIMEOUT):
                        await self._watch(page)
                self._on_change()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_INTERVAL if self._page else 1.0):
                    await self._wakeup.wait()
            if self._lost.is_set():
                return
            if self._page is not None and not self._page.is_closed():
                await self._ping(self._page)

    async def _find(self, pages: list["Page"]) -> "Page | None":
        for page in pages:
            if self._pages.matches(page.url, otherwise=False):
                return page
        if self._url is not None and pages:
            await pages[0].goto(self._url, wait_until="commit", timeout=CALL_TIMEOUT * 1000)
            self._url = None
            return pages[0]
        return None

    async def _watch(self, page: "Page") -> None:
        self._page, self._watched, self._broken = page, False, None
        page.on("close", lambda _: self._wake())
        page.on("crash", lambda _: self._set_broken("crashed"))
        page.on("framedetached", self._frame_gone)
        inspector = await page.context.new_cdp_session(page)
        # Playwright cannot use a page after a crash: once reloaded, it needs a new connection.
        inspector.on("Inspector.targetReloadedAfterCrash", lambda _: self._wake(lost=True))
        await inspector.send("Inspector.enable")
        await page.expose_binding(_BINDING, self._reported)
        await page.add_init_script(self._source)
        for frame in page.frames:  # the main frame first
            await self._install(frame)
            self._watched = True
            self._on_change()

    async def _install(self, frame: "Frame") -> None:
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                await frame.evaluate(f"() => {{ {self._source} }}")
        except (Error, TimeoutError) as error:
            _log.info("frame watch failed", url=frame.url[:200], error=first_line(error))

    async def _ping(self, page: "Page") -> None:
        """Have every frame report; a page whose main frame does not answer is silent.

        A frame without the script (one that was reloaded) gets it again.
        """
        from playwright.async_api import Error

        for frame in page.frames:
            watched = False
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    watched = await frame.evaluate("() => window.__outrider?.again() ?? false")
            except TimeoutError:
                if frame == page.main_frame:
                    self._set_broken("silent")
                    return
            except Error:
                continue  # it is being loaded or has been removed, which its events report
            if self._broken == "silent" and frame == page.main_frame:
                self._broken = None
                self._on_change()
            if not watched and frame in page.frames:
                self._frame_gone(frame)
                await self._install(frame)

    # Reports of the page

    def _reported(self, source: Any, data: Any) -> None:
        if source["page"] != self._page or not self._reports.add(source["frame"], data):
            return
        self._broken = None
        self._on_change()

    def _frame_gone(self, frame: "Frame") -> None:
        if self._reports.drop(frame):
            self._on_change()

    def _set_broken(self, how: Literal["crashed", "silent"]) -> None:
        self._broken = how
        self._reports.clear()
        self._on_change()

    def _wake(self, *, lost: bool = False) -> None:
        if lost:
            self._lost.set()
        self._wakeup.set()

    def _reset(self) -> None:
        self._page = self._broken = None
        self._reports.clear()


def first_line(error: Exception) -> str:
    """Return the message of an error of Playwright, without its log."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


class Reports:
    """The newest report of each frame."""

    def __init__(self) -> None:
        self._frames: dict[Frame, dict[str, PanelReport]] = {}

    def add(self, frame: "Frame", data: Any) -> bool:
        """Add a frame's report, a JSON object; return whether it could be decoded."""
        if not isinstance(data, str) or len(data) > MAX_REPORT:
            return False
        try:
            self._frames[frame] = msgspec.json.decode(data, type=dict[str, PanelReport])
        except msgspec.DecodeError as error:
            _log.warning("page report rejected", error=str(error))
            return False
        return True

    def drop(self, frame: "Frame") -> bool:
        """Drop the report of a frame; return whether it had one.

        A frame that is reloaded reports again; one that only changes its address does not.
        """
        return self._frames.pop(frame, None) is not None

    def clear(self) -> None:
        """Drop all reports."""
        self._frames.clear()

    def by_agent(self) -> dict[str, PanelReport]:
        """Return the newest report of each agent; of several, one of a visible chat."""
        newest: dict[str, PanelReport] = {}
        for report in self._frames.values():
            for kind, panel in report.items():
                if kind not in newest or (panel.shown and not newest[kind].shown):
                    newest[kind] = panel
        return newest

    def frame_of(self, agent: str | None) -> "Frame | None":
        """Return the frame that has this agent; of several, one in which it is visible."""
        having = [frame for frame, report in self._frames.items() if agent in report]
        having.sort(key=lambda frame: self._frames[frame][agent or ""].shown, reverse=True)
        return having[0] if having else None
