"""Live terminals: what is typed before they have connected, and what a hostile machine sends."""

import asyncio

from playwright.async_api import Browser, WebSocketRoute, expect

from tests.dashboard.accounts import session_machine
from tests.dashboard.browser_client import signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.samples import session
from tests.rig.site import Owner
from tests.rig.waiting import eventually

pytestmark = MARKS


async def test_what_is_typed_while_a_terminal_connects_is_sent_when_it_has(
    user: Owner, browser: Browser
) -> None:
    connects = asyncio.Event()
    received: list[str | bytes] = []

    async def serve(socket: WebSocketRoute) -> None:
        socket.on_message(lambda data: received.append(data))  # noqa: PLW0108  # no builtin
        await connects.wait()

    async with (
        session_machine(user, session(kind="cli")) as machine,
        signed_in_page(browser, user) as page,
    ):
        await page.route_web_socket("**/terminal?*", serve)
        await page.goto(f"{machine.path}?tab=terminal")
        await expect(page.get_by_role("textbox", name="Terminal input")).to_be_focused()
        await page.keyboard.type("make test")
        assert received == []
        connects.set()
        await eventually(lambda: b"make test" in received)


async def test_a_sequence_that_repeats_without_end_does_not_stop_the_page(
    user: Owner, browser: Browser
) -> None:
    endless = "".join(f"\x1b[2147483647{final}" for final in "LMSTb")

    async def serve(socket: WebSocketRoute) -> None:
        socket.send(f"first{endless} and after it".encode())

    async with (
        session_machine(user, session(kind="cli")) as machine,
        signed_in_page(browser, user) as page,
    ):
        await page.route_web_socket("**/terminal?*", serve)
        await page.goto(f"{machine.path}?tab=terminal")
        terminal = page.get_by_role("region", name="Terminal", exact=True)
        await expect(terminal).to_contain_text("first and after it")
        await page.get_by_role("tab", name="Files", exact=True).click()
        await expect(page.get_by_role("tabpanel", name="Files")).to_be_visible()
