"""The main way through the dashboard of a real `outrider up`, on a phone and at a desk."""

import re
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.dashboard.browser_client import WIDTHS, BrowserClient, open_browser
from tests.dashboard.home import Home
from tests.rig.waiting import eventually
from tests.service.webhooks.receiver import receiving

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]


def repository(folder: Path) -> Path:
    """Make a git repository without a commit."""
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_main_way(home: Home, browser: Browser, width: int) -> None:
    async with open_browser(browser, home.up.url, width) as browsing:
        await _logs_in(browsing, home)
        await _launches_chats_and_approves(browsing, repository(home.folder / f"project-{width}"))
        await _uses_a_terminal(browsing, f"build-{width}")
        await _creates_a_webhook(browsing)
        await _approves_a_device(browsing, home, f"laptop-{width}")


async def _logs_in(browsing: BrowserClient, home: Home) -> None:
    """A wrong password first; then the page that was asked for."""
    page = browsing.page
    await page.goto("/machines")
    await expect(page).to_have_url(re.compile(r"/login\?next="))
    await browsing.type_login(home.email, "not the password")
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_label("Email", exact=True)).to_have_value(home.email)
    await browsing.type_login(home.email, home.password)
    await expect(page.get_by_role("heading", name="Machines", exact=True)).to_be_visible()
    await expect(page).to_have_url(f"{home.up.url}/machines")
    await expect(page.get_by_role("status").filter(has_text="online")).to_be_visible()
    await browsing.assert_layout_holds()


async def _launches_chats_and_approves(browsing: BrowserClient, project: Path) -> None:
    page = browsing.page
    await page.get_by_role("navigation").get_by_role("link", name="Sessions").click()
    await page.get_by_role("button", name="Launch", exact=True).click()
    dialog = page.get_by_role("dialog", name="Launch", exact=True)
    await expect(dialog.get_by_label("Machine", exact=True)).to_have_count(1)
    await dialog.get_by_label("Agent", exact=True).select_option("Demo agent")
    directory = dialog.get_by_role("textbox", name="Directory", exact=True)
    await directory.fill(f"{project}/missing")
    await directory.press("Enter")
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await expect(directory).to_have_value(f"{project}/missing")
    await directory.fill(str(project))
    await dialog.get_by_role("button", name="Launch", exact=True).click()

    await expect(page).to_have_url(re.compile("/sessions/"))
    status = page.locator("main").get_by_role("status")
    message = page.get_by_role("textbox", name="Message", exact=True)
    chat = page.get_by_role("log", name="Chat", exact=True)
    await expect(message).to_be_visible()  # until then it may still be the list
    await expect(status).to_have_text("idle")
    await message.fill("Hello from a browser")
    await message.press("Enter")
    await expect(chat).to_contain_text("You said: Hello from a browser")
    await expect(page.get_by_role("heading", name="Hello from a browser", level=1)).to_be_visible()
    await expect(status).to_have_text("idle")

    await message.fill("tool")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(status).to_have_text("waiting_approval")
    await expect(page.get_by_role("status", name="waiting_approval", exact=True)).to_have_count(1)
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    await expect(chat).to_contain_text("Approved.")
    assert (project / "demo.txt").read_text() == "Line 1 of the demo agent\n"
    await page.get_by_role("tab", name="Changes", exact=True).click()
    await expect(page.get_by_role("tabpanel", name="Changes")).to_contain_text("demo.txt")
    await browsing.assert_layout_holds()


async def _uses_a_terminal(browsing: BrowserClient, name: str) -> None:
    page = browsing.page
    await page.goto("/machines")
    online = page.get_by_role("listitem").filter(has=page.get_by_text("online", exact=True))
    await online.get_by_role("link").click()
    await page.get_by_role("textbox", name="Name", exact=True).fill(name)
    await page.get_by_role("button", name="Open", exact=True).click()
    terminal = page.get_by_role("region", name="Terminal", exact=True)
    await expect(terminal.locator(".xterm")).to_be_visible()
    await expect(terminal).to_contain_text(re.compile(r"[#$]"))  # the shell reads
    await page.keyboard.type("printf 'wri%s\\n' tten")
    await page.keyboard.press("Enter")
    await expect(terminal).to_contain_text("written")
    opener = page.get_by_role("button", name=name, exact=True)
    await expect(opener).to_have_count(1)
    await page.get_by_role("textbox", name="Name", exact=True).fill(f"test-{name}")
    await page.get_by_role("button", name="Open", exact=True).click()
    await expect(page.get_by_role("button", name=f"test-{name}", exact=True)).to_have_count(1)
    await expect(opener).to_have_count(1)  # its shell still runs
    await browsing.assert_layout_holds()


async def _creates_a_webhook(browsing: BrowserClient) -> None:
    page = browsing.page
    async with receiving() as receiver:
        await page.goto("/webhooks")
        await expect(page.get_by_role("heading", name="Webhooks")).to_have_count(1)
        await page.get_by_role("button", name="New webhook", exact=True).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("textbox", name="URL", exact=True).fill(receiver.url)
        await expect(dialog.get_by_role("checkbox", name="All events", exact=True)).to_be_checked()
        await dialog.get_by_role("button", name="Create", exact=True).click()
        await expect(dialog).to_contain_text("whsec_")
        await dialog.get_by_role("button", name="Show the webhook").click()
        await page.get_by_role("button", name="Test", exact=True).click()
        await eventually(
            lambda: any(request.event == "webhook:test" for request in receiver.requests)
        )
        deliveries = page.get_by_role("list", name="Deliveries").get_by_role("listitem")
        test = deliveries.filter(has_text="webhook:test")
        await expect(test.get_by_role("status")).to_have_text("succeeded")
        await expect(page.get_by_role("button", name="Test")).to_have_count(1)
    await browsing.assert_layout_holds()
    await page.get_by_role("button", name="Delete", exact=True).click()
    confirm = page.get_by_role("alertdialog").get_by_role("button", name="Delete", exact=True)
    await confirm.click()
    await expect(page).to_have_url(re.compile(r"/webhooks$"))


async def _approves_a_device(browsing: BrowserClient, home: Home, hostname: str) -> None:
    """The machine asks for a code; the person enters it; the machine gets its token."""
    page = browsing.page
    api = f"{home.up.url}/api/v1/auth/device"
    machine = {"hostname": hostname, "platform": "linux"}
    asked = (await home.up.client.post(api, json=machine)).json()
    await page.goto("/device")
    code = page.get_by_role("textbox", name="Code", exact=True)
    await code.fill(asked["userCode"])
    await code.press("Enter")
    await expect(page.locator("main")).to_contain_text(hostname)
    await expect(page.locator("main")).to_contain_text(asked["userCode"])
    await browsing.assert_layout_holds()
    approve = page.get_by_role("button", name="Approve", exact=True)
    await approve.click()
    await expect(approve).to_have_count(0)
    got = await home.up.client.post(f"{api}/token", json={"deviceCode": asked["deviceCode"]})
    assert got.json()["token"].startswith("omt_"), got.text
