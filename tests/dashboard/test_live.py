"""What only the real service with the demo agent shows: turns, queues, a killed process."""

import re
import signal
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.dashboard.browser_client import PHONE, open_browser
from tests.dashboard.home import Home, at_home
from tests.rig.stores import SQLite
from tests.servers.server import reserve_ports

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]


async def test_a_queue_and_an_interrupt(home: Home, browser: Browser) -> None:
    """While the agent works, Enter queues; a queued message can be taken back."""
    target = await home.launch("Queue and interrupt")
    async with open_browser(browser, home.up.url, PHONE) as browsing:
        await browsing.log_in(home.email, home.password)
        page = browsing.page
        await page.goto(f"/sessions/{target}")
        status = page.locator("main").get_by_role("status")
        message = page.get_by_role("textbox", name="Message", exact=True)
        chat = page.get_by_role("log", name="Chat", exact=True)
        interrupt = page.get_by_role("button", name="Interrupt", exact=True)
        await expect(status).to_have_text("idle")
        await expect(interrupt).to_have_count(0)
        await message.fill("stream 600")
        await message.press("Enter")
        await expect(status).to_have_text("generating")
        await expect(chat).to_contain_text("These are words that arrive")

        queued = page.get_by_role("list", name="Queued").get_by_role("listitem")
        await message.fill("first queued")
        await message.press("Enter")
        await expect(queued.filter(has_text="first queued")).to_have_count(1)
        await expect(message).to_have_value("")
        await page.get_by_role("button", name="Take back").click()
        await expect(queued).to_have_count(0)

        await message.fill("second, at once")
        await page.get_by_role("button", name="Interrupt and send", exact=True).click()
        await expect(chat).to_contain_text("You said: second, at once")
        await expect(status).to_have_text("idle")
        assert "first queued" not in await chat.inner_text()

        await message.fill("stream 600")
        await message.press("Enter")
        await expect(status).to_have_text("generating")
        await message.fill("a draft that stays")
        await interrupt.click()
        await expect(status).to_have_text("idle")
        await expect(message).to_have_value("a draft that stays")
        await browsing.assert_layout_holds()


async def test_a_question_that_is_answered_elsewhere_leaves_every_page(
    home: Home, browser: Browser
) -> None:
    target = await home.launch("Answered elsewhere")
    async with open_browser(browser, home.up.url) as browsing:
        await browsing.log_in(home.email, home.password)
        inbox = browsing.page
        await inbox.goto("/inbox")
        session = await browsing.tab(f"/sessions/{target}")
        await expect(session.get_by_role("heading", level=1)).to_have_text("Answered elsewhere")
        await home.say(target, "tool", "waiting_approval")
        for page in (inbox, session):
            await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
        await expect(inbox.get_by_role("link", name="Answered elsewhere")).to_be_visible()
        await home.up.call("POST", f"/shortcuts/{target}/approve", {"action": "reject"})
        for page in (inbox, session):
            await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        await expect(session.get_by_role("log", name="Chat")).to_contain_text("Rejected.")


async def test_an_ended_session_is_resumed(home: Home, browser: Browser) -> None:
    """Its chat stays while it has ended, and goes on afterwards."""
    target = await home.launch("Stop and resume")
    async with open_browser(browser, home.up.url) as browsing:
        await browsing.log_in(home.email, home.password)
        page = browsing.page
        await page.goto(f"/sessions/{target}")
        chat = page.get_by_role("log", name="Chat", exact=True)
        await page.get_by_role("tab", name="Changes", exact=True).click()
        await expect(page.get_by_role("heading", name="not in a git repository")).to_be_visible()
        await page.get_by_role("tab", name="Chat", exact=True).click()
        await page.get_by_role("button", name="Stop", exact=True).click()
        confirm = page.get_by_role("alertdialog").get_by_role("button", name="Stop", exact=True)
        await confirm.click()
        resume = page.get_by_role("button", name="Resume", exact=True)
        await expect(resume).to_be_visible()
        await expect(chat).to_contain_text("You said: Stop and resume")
        await resume.click()
        message = page.get_by_role("textbox", name="Message", exact=True)
        await expect(message).to_be_visible()
        await expect(page.locator("main").get_by_role("status")).to_have_text("idle")
        await message.fill("Going on")
        await message.press("Enter")
        await expect(chat).to_contain_text("You said: Going on")
        await expect(chat).to_contain_text("You said: Stop and resume")


async def test_a_service_that_is_killed_and_started_again(
    tmp_path: Path, sqlite: SQLite, browser: Browser
) -> None:
    sqlite.migrated(tmp_path / "data")
    port, release = reserve_ports()
    try:
        async with (
            at_home(tmp_path, port) as before,
            open_browser(browser, before.up.url) as browsing,
        ):
            await browsing.log_in(before.email, before.password)
            page = browsing.page
            await page.goto("/")
            await expect(page.get_by_role("heading", name="No agent is running")).to_be_visible()
            before.up.signal(signal.SIGKILL)
            await before.up.ends()
            banner = page.get_by_role("alert").filter(has_text=re.compile("^Live updates lost"))
            await expect(banner).to_be_visible()
            async with at_home(tmp_path, port) as after:
                await expect(banner).to_have_count(0)
                await after.launch("After the restart")
                await expect(page.get_by_role("link", name="After the restart")).to_be_visible()
                # The streams of the page end before the service does.
                await browsing.context.close()
    finally:
        release()
