"""The dashboard by keyboard alone: its own keys (docs/dashboard.md), Tab, and dialogs."""

import re

from msgspec.structs import replace
from playwright.async_api import Browser, Locator, expect

from tests.dashboard.accounts import furnished_account, question, session_machine
from tests.dashboard.browser_client import signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.samples import session
from tests.rig.site import Owner

pytestmark = MARKS

HAS_FOCUS_INSIDE = "element => element.contains(document.activeElement)"
# Presses Ctrl+K when React has just added the navigation, before anything else can run.
PRESS_AT_ONCE = """
    new MutationObserver((_, observer) => {
        if (!document.querySelector("nav")) return;
        observer.disconnect();
        dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, cancelable: true }));
    }).observe(document, { childList: true, subtree: true });
"""


async def test_going_to_pages_and_in_lists(user: Owner, browser: Browser) -> None:
    await furnished_account(user)
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        heading = page.get_by_role("heading", level=1)
        rows = page.get_by_role("list", name="Running sessions").get_by_role("link")
        await expect(rows).to_have_count(4)

        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()

        await page.keyboard.press("j")
        await expect(rows.nth(0)).to_be_focused()
        await page.keyboard.press("j")
        await expect(rows.nth(1)).to_be_focused()
        await page.keyboard.press("k")
        await expect(rows.nth(0)).to_be_focused()
        await page.keyboard.press("/")
        box = page.get_by_role("searchbox")
        await expect(box).to_be_focused()
        await page.keyboard.type("gsj/?")  # a field takes every key
        await expect(box).to_have_value("gsj/?")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("Escape")
        await expect(box).to_have_value("")
        await page.keyboard.press("Escape")
        await expect(box).not_to_be_focused()

        for key, name in (("i", "Inbox"), ("m", "Machines"), ("h", "History"), ("s", "Sessions")):
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await expect(heading).to_have_text(name)

        await expect(rows).to_have_count(4)
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(heading).to_have_text("Fix the build")


async def test_the_list_of_keys_and_the_switcher(user: Owner, browser: Browser) -> None:
    await furnished_account(user)
    async with signed_in_page(browser, user) as page:
        await page.goto("/machines")
        button = page.get_by_role("button", name="Connect a machine")
        await button.focus()
        await page.keyboard.press("?")
        keys = page.get_by_role("dialog", name="Keyboard")
        for key in ("g", "s", "i", "m", "/", "j", "k", "a", "r", "?"):
            await expect(keys.get_by_text(key, exact=True).first).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(keys).to_have_count(0)
        await expect(button).to_be_focused()

        for shortcut in ("Control+k", "Meta+k"):
            await page.keyboard.press(shortcut)
            switcher = page.get_by_role("dialog", name="Go to")
            await expect(switcher.get_by_role("combobox")).to_be_focused()
            await page.keyboard.press("Escape")
            await expect(switcher).to_have_count(0)
        await page.keyboard.press("Control+k")
        await page.keyboard.type("changelog")
        await expect(page.get_by_role("option")).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Write the changelog")


async def test_a_key_as_soon_as_the_page_is_shown(user: Owner, browser: Browser) -> None:
    async with signed_in_page(browser, user) as page:
        await page.add_init_script(PRESS_AT_ONCE)
        await page.goto("/")
        await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()


async def test_what_the_switcher_selects_is_in_view(user: Owner, browser: Browser) -> None:
    """The arrows scroll a long list, also under a pointer that rests on it."""
    await user.machine(*(session(title=f"Chat {number}") for number in range(30)))
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        rows = page.get_by_role("list", name="Running sessions").get_by_role("listitem")
        await expect(rows).to_have_count(30)
        await page.keyboard.press("Control+k")
        options = page.get_by_role("listbox", name="Go to").get_by_role("option")
        await expect(options).to_have_count(37)
        await options.nth(2).hover()
        await expect(options.nth(2)).to_have_attribute("aria-selected", "true")
        for number in range(3, 37):
            await page.keyboard.press("ArrowDown")
            await expect(options.nth(number)).to_have_attribute("aria-selected", "true")
        await expect(options.last).to_be_in_viewport()
        for number in reversed(range(36)):
            await page.keyboard.press("ArrowUp")
            await expect(options.nth(number)).to_have_attribute("aria-selected", "true")
        await expect(page.get_by_role("combobox", name="Go to")).to_be_in_viewport(ratio=1)


async def _assert_keeps_the_focus(dialog: Locator) -> None:
    """Press Tab more often than the dialog has elements, forwards and backwards."""
    await expect(dialog).to_be_visible()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(12):
            await dialog.page.keyboard.press(key)
            await dialog.page.wait_for_function(HAS_FOCUS_INSIDE, arg=await dialog.element_handle())


async def test_a_dialog_keeps_the_focus_and_gives_it_back(user: Owner, browser: Browser) -> None:
    account = await furnished_account(user)
    async with signed_in_page(browser, user) as page:
        for path, button, role, name in (
            ("/", "Launch", "dialog", "Launch"),
            ("/machines", "Connect a machine", "dialog", "Connect a machine"),
            (f"/machines/{account.machine.id}", "Revoke", "alertdialog", re.compile("Revoke")),
            (f"/sessions/{account.targets['idle']}", "Stop", "alertdialog", re.compile("Stop")),
        ):
            await page.goto(path)
            opener = page.get_by_role("button", name=button, exact=True)
            await opener.focus()
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("dialog" if role == "dialog" else "alertdialog", name=name)
            await _assert_keeps_the_focus(dialog)
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
            await expect(opener).to_be_focused()


async def test_answering_in_the_inbox(user: Owner, browser: Browser) -> None:
    """`j` selects the first card. What is not answered by the machine yet stays, disabled."""
    asked = question("Run `make`?")
    agent = session(status="waiting_approval", title="First", pending_action=asked)
    async with (
        session_machine(user, agent, "resolve_action") as machine,
        signed_in_page(browser, user) as page,
    ):
        await page.goto("/inbox")
        approve = page.get_by_role("button", name="Approve", exact=True)
        card = page.get_by_role("listitem").filter(has=approve)
        await expect(card).to_contain_text("/srv/project")
        await expect(card).to_contain_text("workbench")
        await page.keyboard.press("a")  # nothing is selected
        await page.keyboard.press("j")
        await expect(card).to_be_focused()
        await expect(page).to_have_url(re.compile(r"/inbox\?question=act_1$"))
        await page.reload()
        await expect(card).to_be_focused()
        await page.keyboard.press("a")
        command = await machine.takes("resolve_action", action="approve")
        await expect(approve).to_be_disabled()
        await expect(page.get_by_role("button", name="Reject", exact=True)).to_be_disabled()
        await machine.reports(status="generating", pending_action=None)
        await machine.machine.answers(command)
        await expect(approve).to_have_count(0)

        again = replace(asked, id="act_2")
        await machine.reports(status="waiting_approval", pending_action=again)
        await expect(approve).to_be_enabled()
        await page.keyboard.press("j")
        await expect(card).to_be_focused()
        await page.keyboard.press("r")
        command = await machine.takes("resolve_action", action="reject", actionId="act_2")
        await machine.reports(status="idle", pending_action=None)
        await machine.machine.answers(command)
        await expect(approve).to_have_count(0)
        assert machine.unanswered.empty()
