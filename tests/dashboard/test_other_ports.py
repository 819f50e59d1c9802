"""What a server at another port of the service's host can do with the cookie that it gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page

from outrider.service.accounts.one_time_links import new_password_link
from outrider.service.http.session_cookie import COOKIE
from tests.dashboard.browser_client import TIMEOUT_MS
from tests.rig.errors import assert_error
from tests.rig.people import PASSWORD, V1, logged_in
from tests.rig.site import Owner

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
]


class OtherServer:
    """A server that keeps the cookies that it gets, and sets its own.

    Attributes:
        url: its address, at the service's host.
        cookies: the `Cookie` header of each request.
        sets: the `Set-Cookie` headers of its responses.
    """

    def __init__(self) -> None:
        self.url = ""
        self.cookies: list[str] = []
        self.sets: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with an empty page."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        for line in head.splitlines():
            name, _, value = line.partition(": ")
            if name.lower() == "cookie":
                self.cookies.append(value)
        headers = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in self.sets)
        response = (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{headers}Connection: close\r\n\r\n"
        )
        writer.write(response.encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def other_server() -> AsyncIterator[OtherServer]:
    """Run a server at a port of its own."""
    server = OtherServer()
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    async with listener:
        yield server


@asynccontextmanager
async def new_page(browser: Browser, owner: Owner) -> AsyncIterator[Page]:
    """Open a page in a browser of its own, which has nothing in its storage yet."""
    context = await browser.new_context(base_url=owner.site.url)
    context.set_default_timeout(TIMEOUT_MS)
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def log_in(page: Page, owner: Owner) -> None:
    """Fill in the form of the page that asks to log in."""
    await page.get_by_role("textbox", name="Email", exact=True).fill(owner.email)
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("Password", exact=True).press("Enter")


async def shows(page: Page, heading: str) -> None:
    """Wait until the page has this heading."""
    await page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()


async def test_a_link_to_another_port_gives_it_a_cookie_that_is_worth_nothing(
    user: Owner, browser: Browser
) -> None:
    site = user.site
    async with new_page(browser, user) as page, other_server() as other:
        await page.goto("/login")
        await log_in(page, user)
        await shows(page, "Sessions")
        await page.goto(other.url)
        cookie = other.cookies[0]
        assert cookie.startswith(f"{COOKIE}=eyJ"), "a browser sends it to every port"
        token = cookie.partition("=")[2]
        own = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
        for headers in (
            {"Cookie": cookie},
            {"Cookie": cookie, **own},
            {"Authorization": f"Bearer {token}"},
            {"Cookie": cookie, "X-Outrider-Page-Secret": token},
        ):
            stolen = await site.client().get(f"{V1}/account", headers=headers)
            assert_error(stolen, 401, "AUTH_INVALID")
        # Its own page is in the browser that has the cookie, and has another storage.
        await page.evaluate(
            """async (url) => {
                const options = {method: "POST", mode: "no-cors", credentials: "include"};
                await fetch(url, {...options, body: "{}"});
            }""",
            f"{site.url}{V1}/auth/logout",
        )
        assert await page.evaluate("localStorage.length") == 0
        await page.goto("/account")
        await shows(page, "Account")


async def test_cookies_of_another_port_lock_nobody_out(user: Owner, browser: Browser) -> None:
    async with new_page(browser, user) as page, other_server() as other:
        other.sets = [
            f"{COOKIE}=x; Path=/api",
            f"{COOKIE}=eyJhbGciOiJIUzI1NiJ9.e30.x; Path=/api/v1",
            f"{COOKIE}=y; Path=/api/v1/account",
        ]
        await page.goto(other.url)
        await page.goto("/login?next=/account")
        await log_in(page, user)
        await shows(page, "Account")
        await page.reload()
        await shows(page, "Account")


async def test_without_its_storage_a_page_asks_to_log_in_once(
    user: Owner, browser: Browser
) -> None:
    async with new_page(browser, user) as page:
        await page.goto("/login")
        await log_in(page, user)
        await shows(page, "Sessions")
        await page.goto("/icon.svg")  # a page of the dashboard would store its secret again
        await page.evaluate("localStorage.clear()")
        await page.goto("/account")
        await page.get_by_text("Your session has ended").wait_for()
        await log_in(page, user)
        await shows(page, "Account")
        await page.reload()
        await shows(page, "Account")
        tab = await page.context.new_page()
        await tab.goto("/machines")
        await shows(tab, "Machines")


async def test_a_browser_without_storage_stays_logged_in_until_a_reload(
    user: Owner, browser: Browser
) -> None:
    async with new_page(browser, user) as page:
        await page.add_init_script(
            "Object.defineProperty(window, 'localStorage', {get() { throw new Error('none') }})"
        )
        await page.goto("/login?next=/account")
        await log_in(page, user)
        await shows(page, "Account")
        await page.get_by_role("navigation").get_by_role("link", name="Machines").click()
        await shows(page, "Machines")
        await page.reload()
        await page.get_by_role("heading", name="Log in").wait_for()


async def test_the_token_of_a_password_link_leaves_the_address_at_once(
    user: Owner, browser: Browser
) -> None:
    link = await new_password_link(
        user.site.database, (await logged_in(user)).user.id, user.site.url
    )
    async with new_page(browser, user) as page:
        await page.goto(link.url)
        await page.get_by_label("New password", exact=True).fill("a quite different phrase")
        assert page.url == link.url.partition("#")[0]
        await page.get_by_label("The same again", exact=True).fill("a quite different phrase")
        await page.get_by_role("button", name="Set the password").click()
        await page.get_by_text("The password is set").wait_for()
