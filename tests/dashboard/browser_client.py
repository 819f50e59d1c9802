"""Somebody with a browser, who notices everything that a page of the dashboard must never do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

from tests.rig.browser import log_in, page_storage
from tests.rig.people import PASSWORD
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT

TIMEOUT_MS: Final = 2000 * TIMEOUT
"""Within which a page shows what it has to: a browser on a busy machine is slow."""
PHONE: Final = 390
DESK: Final = 1280
WIDTHS: Final = (PHONE, DESK)
SCHEMES: Final = ("light", "dark")

Scheme = Literal["light", "dark"]

_EXPECTED: Final = (
    "Failed to load resource",  # a refusal by the API, which the page shows in its own words
    "net::ERR_",  # the service was stopped by the test
)

# Elements that reach beyond the window and whose ancestors neither scroll nor clip them.
_OVERFLOW: Final = """() => {
    const width = document.documentElement.clientWidth;
    const held = (element) => {
        for (let ancestor = element.parentElement; ancestor; ancestor = ancestor.parentElement) {
            const { overflowX, position } = getComputedStyle(ancestor);
            if (overflowX !== "visible") return true;
            if (position === "fixed") return false;
        }
        return false;
    };
    const wide = [...document.querySelectorAll("body *")].filter((element) => {
        const { right, width: own } = element.getBoundingClientRect();
        return own > 0 && right > width + 1 && !held(element);
    });
    const names = wide.map((element) => element.outerHTML.slice(0, 120));
    if (document.documentElement.scrollWidth > width) names.push(`the page scrolls sideways`);
    return names;
}"""


class BrowserClient:
    """A person with a browser of their own: its tabs share cookies, storage and the stream.

    Attributes:
        faults: what no page may do: run a script of somebody else's, load from another origin,
            break its policy, fail, or write to the console.
    """

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.faults: list[str] = []
        self._origin = urlsplit(url).netloc
        context.on("request", lambda request: self._check(request.url))
        context.on("page", self._watch)
        context.on("console", self._listen)
        context.on("weberror", lambda error: self.faults.append(f"uncaught: {error.error}"))
        self._watch(page)

    async def tab(self, path: str) -> Page:
        """Open another tab."""
        page = await self.context.new_page()
        await page.goto(path)
        return page

    async def log_in(self, email: str, password: str) -> None:
        """Log in through the API, as the form does."""
        await log_in(self.context, self.url, email, password)

    async def type_login(self, email: str, password: str) -> None:
        """Fill in the form of the page, and press Enter."""
        await self.page.get_by_role("textbox", name="Email", exact=True).fill(email)
        field = self.page.get_by_label("Password", exact=True)
        await field.fill(password)
        await field.press("Enter")

    async def assert_layout_holds(self) -> None:
        """Check that nothing reaches beyond the window's width."""
        wide = await self.page.evaluate(_OVERFLOW)
        assert wide == [], wide

    def _watch(self, page: Page) -> None:
        page.on("websocket", lambda socket: self._check(socket.url))
        page.on("dialog", self._dismiss)

    async def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog opened: {dialog.message}")
        await dialog.dismiss()

    def _check(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.netloc != self._origin and parts.scheme not in {"data", "blob", "about"}:
            self.faults.append(f"a request to {url}")

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(
            text in message.text for text in _EXPECTED
        ):
            self.faults.append(f"console: {message.text}")


@asynccontextmanager
async def open_browser(
    browser: Browser, url: str, width: int = DESK, scheme: Scheme = "light"
) -> AsyncIterator[BrowserClient]:
    """Give a person with a browser of their own, on a phone or at a desk.

    At the end, fails if a page did what it must never do.
    """
    phone = width == PHONE
    context = await browser.new_context(
        base_url=url,
        storage_state=page_storage(url),
        viewport={"width": width, "height": 844 if phone else 800},
        color_scheme=scheme,
        reduced_motion="reduce",
        has_touch=phone,
        is_mobile=phone,
        locale="en-GB",
        timezone_id="UTC",
    )
    try:
        context.set_default_timeout(TIMEOUT_MS)
        browsing = BrowserClient(context, await context.new_page(), url)
        yield browsing
        assert browsing.faults == [], browsing.faults
    finally:
        # A handler of a route may still work on a request that closing cancels.
        for page in context.pages:
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, owner: Owner, width: int = DESK
) -> AsyncIterator[BrowserClient]:
    """Give the account's user with a browser in which they are logged in; see `open_browser`."""
    async with open_browser(browser, owner.site.url, width) as browsing:
        await browsing.log_in(owner.email, PASSWORD)
        yield browsing


@asynccontextmanager
async def signed_in_page(browser: Browser, owner: Owner, width: int = DESK) -> AsyncIterator[Page]:
    """Like `signed_in`, for a test that needs nothing but the page."""
    async with signed_in(browser, owner, width) as browsing:
        yield browsing.page
